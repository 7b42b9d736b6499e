// Package runtimeaccess is the worker that answers how a runtime is reached, and that makes and removes the access of
// service bindings in it. It has no steps: whoever asks needs the answer at once.
package runtimeaccess
