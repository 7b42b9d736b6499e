// Package avs is the worker of the Availability Service. It creates the internal and external evaluations of an instance, tags
// them, and removes them (docs/contracts/avs.md).
package avs
