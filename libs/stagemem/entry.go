package stagemem

import "strings"

const (
	valuePrefix = "value."
	// OverridePrefix is what the key of every entry of overrides starts with.
	OverridePrefix = "override."
)

// ValueName is the entry of a remembered value.
func ValueName(key string) string { return valuePrefix + key }

// ValueKey is the key of a remembered value, if name is the entry of one.
func ValueKey(name string) (key string, ok bool) { return strings.CutPrefix(name, valuePrefix) }

// OverrideName is the entry of what a step has set for a component. A step's name has no dot, so no two pairs share one.
func OverrideName(step, component string) string { return OverridePrefix + step + "." + component }

// Deaths is the scope of the counts of executions that have ended their process, by step. It is none of a stage, because the memory of stages
// tells a loss by its marker. It lasts until the operation ends.
func Deaths(operationID, stage string) Scope {
	return Scope{OperationID: operationID, Stage: stage + "/deaths", StageAttempt: 1}
}
