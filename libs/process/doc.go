// Package process contains process definitions. A definition lists the stages and steps of an operation type. It is read from YAML files
// and validated before anything runs.
//
// Load reads the files of a folder and applies overlays, so that a team can add a step with a file. Parse reads a definition that was
// stored with an operation. The package does no I/O except through the fs.FS it is given.
package process
