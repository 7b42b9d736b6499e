// Package busola is the worker of Busola. It configures the dashboard of a runtime (docs/contracts/processes.md#provisioning).
package busola
