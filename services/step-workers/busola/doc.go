// Package busola is the worker of Busola, the dashboard: it configures the dashboard of a runtime
// (docs/contracts/processes.md#provisioning).
package busola
