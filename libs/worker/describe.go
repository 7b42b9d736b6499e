package worker

// Described is an optional interface of steps that describe themselves for the generated documentation (docs/steps.md).
type Described interface {
	Describe() Description
}

// Description documents a step for operators and developers. Tests compare it with the behaviour of the step.
type Description struct {
	// Summary is one sentence, in the third person: "Creates the internal evaluation."
	Summary string
	// Calls lists the calls to external systems that the step can make.
	Calls []Call
	// Details lists the members of the worker's own details that the step saves.
	Details []string
	// StageMemory lists what the step puts into the stage memory: keys of Remember, and "overrides:<component>" for SetOverrides.
	StageMemory []string
}

// Call is one kind of call to an external system.
type Call struct {
	// System is the name of the system, as in extclient.Config, for example "avs".
	System string
	// Operation is a method and route or the name of a GraphQL operation, for example "POST /" or "provisionRuntime".
	Operation string
}

// Describe returns the description of a step, and false if the step is not Described.
func Describe(s Step) (Description, bool) {
	d, ok := s.(Described)
	if !ok {
		return Description{}, false
	}
	return d.Describe(), true
}
