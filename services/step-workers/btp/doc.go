// Package btp is the worker of the BTP operator. It adds the Service Manager credentials to a runtime, and removes the customer's service
// bindings and instances before the runtime is removed (docs/contracts/btp.md).
package btp
