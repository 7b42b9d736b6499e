// Package avs is the worker of the Availability Service: it creates the evaluations that watch an instance from inside
// and outside, tags them, and removes them again (facts/keb.md 4.1, 4.2, 5.1).
package avs
