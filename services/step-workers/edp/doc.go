// Package edp is the worker of the Event Data Platform: it registers the subaccount of an instance as a data tenant, and
// removes the registration again (facts/keb.md 4.1, 4.2, 5.2).
package edp
