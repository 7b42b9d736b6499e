//go:build race

package harness

// buildFlags build the programs as the tests themselves were built.
func buildFlags() []string { return []string{"-race"} }
