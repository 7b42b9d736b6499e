// Package process holds process definitions: what an operation of a type does,
// as stages and steps, read from YAML files and checked before anything runs.
//
// A definition is data. Load reads the files of a folder and applies overlays,
// so that a team adds a step with a file; Parse reads back a definition that an
// operation was pinned to. The package does no I/O except through the fs.FS
// it is given.
package process
