// Package processes holds the process definitions that the orchestrator comes
// with, one YAML file per operation type.
package processes

import "embed"

// FS holds the definitions, for process.Load.
//
//go:embed *.yaml
var FS embed.FS
