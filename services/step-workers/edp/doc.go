// Package edp is the worker of the Event Data Platform. It registers the subaccount of an instance as a data tenant, and removes
// the registration (docs/contracts/edp.md).
package edp
