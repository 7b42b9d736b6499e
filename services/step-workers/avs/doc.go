// Package avs is the worker of the Availability Service: it creates the evaluations that watch an instance from inside
// and outside, tags them, and removes them again (docs/contracts/avs.md).
package avs
