// Package entry names the entries that steps keep in the stage memory, so that remembered values and overrides do not
// meet.
package entry

import "strings"

const (
	valuePrefix = "value."
	// OverridePrefix is what the key of every entry of overrides starts with.
	OverridePrefix = "override."
)

// Value is the entry of a remembered value.
func Value(key string) string { return valuePrefix + key }

// ValueKey is the key of a remembered value, if name is the entry of one.
func ValueKey(name string) (key string, ok bool) { return strings.CutPrefix(name, valuePrefix) }

// Override is the entry of what a step has set for a component. A step's name has no dot, so no two pairs share one.
func Override(step, component string) string { return OverridePrefix + step + "." + component }
