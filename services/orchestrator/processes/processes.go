// Package processes holds the process definitions that the orchestrator comes
// with, one YAML file per operation type.
package processes

import "embed"

// FS holds the definitions, for process.Load.
//
//go:embed *.yaml
var FS embed.FS

// Overlays holds the overlays that come with the orchestrator, in the folder "overlays". They are off by default.
//
//go:embed overlays/*.yaml
var Overlays embed.FS
