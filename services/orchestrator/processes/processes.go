// Package processes contains the built-in process definitions of the orchestrator,
// one YAML file per operation type.
package processes

import "embed"

// FS contains the definitions, for process.Load.
//
//go:embed *.yaml
var FS embed.FS

// Overlays contains the built-in overlays in the folder "overlays". They are disabled by default.
//
//go:embed overlays/*.yaml
var Overlays embed.FS
