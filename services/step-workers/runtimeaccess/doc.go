// Package runtimeaccess is the worker that returns the address of a runtime, and that creates and removes the access of service bindings
// in it. It has questions but no steps, because the caller needs an immediate answer.
package runtimeaccess
