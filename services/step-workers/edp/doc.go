// Package edp is the worker of the Event Data Platform: it registers the subaccount of an instance as a data tenant, and
// removes the registration again (docs/contracts/edp.md).
package edp
