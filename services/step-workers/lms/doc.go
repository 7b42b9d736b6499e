// Package lms is the worker of the logging service of Kyma 1: it sees to a tenant that the runtimes of a global account in one
// region share, and gets the certificate with which Fluent Bit sends to it (docs/contracts/lms.md). Its steps are switched on by
// the overlay kyma-1, and none of them is worth failing a provisioning.
package lms
