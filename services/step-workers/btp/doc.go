// Package btp is the worker of the BTP operator: it gives a runtime its Service Manager credentials, and cleans what the
// customer had made with them out of the runtime before it goes (docs/contracts/btp.md).
package btp
