package worker

// Described is a step that tells what it does, for the generated documentation (docs/steps.md). It is optional.
type Described interface {
	Describe() Description
}

// Description is what people who run or debug a step want to know of it. Tests hold it against what the step really does.
type Description struct {
	// Summary is one sentence, in the third person: "Creates the internal evaluation."
	Summary string
	// Calls are the calls to external systems that the step makes on some path.
	Calls []Call
	// Details names the members of the worker's own details that the step saves.
	Details []string
	// StageMemory names what it puts into the stage memory: keys of Remember, and "overrides:<component>" of SetOverrides.
	StageMemory []string
}

// Call is one kind of call to an external system.
type Call struct {
	// System is the name of the system, as in extclient.Config, for example "avs".
	System string
	// Operation is method and route, or the name of a GraphQL operation, for example "POST /" or "provisionRuntime".
	Operation string
}

// Describe is what a step tells of itself; false if it tells nothing.
func Describe(s Step) (Description, bool) {
	d, ok := s.(Described)
	if !ok {
		return Description{}, false
	}
	return d.Describe(), true
}
