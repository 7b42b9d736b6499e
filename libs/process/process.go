package process

import (
	"slices"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// StageFinally is the name of the finally stage.
const StageFinally = "finally"

// WorkerOrchestrator is the worker of the built-in steps, which the orchestrator runs itself inside a transition.
const WorkerOrchestrator = "orchestrator"

// Values that a step has when its file says nothing.
const (
	// DefaultTimeout is the timeout of an operation (docs/contracts/processes.md#timeouts).
	DefaultTimeout = 24 * time.Hour
	// DefaultExecution is how long one execution of a step may take.
	DefaultExecution = time.Minute
	// DefaultEvery is the time to the next try.
	DefaultEvery = 10 * time.Second
	// MaxFinally is how long the finally stage may take beside the operation's own timeout.
	MaxFinally = 15 * time.Minute
	// MaxSkipBudget is the longest retry budget of a deprovisioning step that may be passed over
	// (docs/contracts/processes.md#timeouts). Waiting for something that makes progress is not a retry: it has only the limit of
	// the operation.
	MaxSkipBudget = 5 * time.Minute
)

// Policy says what becomes of the operation when a step does not succeed.
type Policy string

// The policies.
const (
	// Fail ends the operation as failed. It is the default.
	Fail Policy = "fail"
	// Skip records the step as not completed and goes on.
	Skip Policy = "skip"
)

// Scope says what is repeated when a step wants to be taken up again.
type Scope string

// The scopes.
const (
	// ScopeStage repeats the stage from its first step, with a fresh stage memory. It is the default.
	ScopeStage Scope = "stage"
	// ScopeStep repeats the step alone and keeps the stage memory; it is meant for steps that only poll.
	ScopeStep Scope = "step"
)

// Process is the definition of an operation type. It never changes once loaded and may be read concurrently.
type Process struct {
	Operation event.OperationType
	// Timeout runs from the start of the operation.
	Timeout time.Duration
	// Stages run in order; none is empty. Only the last one may be a finally stage.
	Stages []Stage

	canonical []byte
	hash      string
}

// Stage groups steps that share the stage memory and are repeated together. A finished stage never runs again.
type Stage struct {
	// Name is unique in the process.
	Name string
	// Steps run in order; there is at least one.
	Steps []Step
	// Finally marks the stage that runs however the operation ends: after the last stage, or when it fails, times out or is
	// cancelled. Its steps are passed over when they do not succeed, and change nothing about how the operation ends.
	Finally bool
}

// Step is one piece of work, executed by a worker.
type Step struct {
	// Name is unique in the process.
	Name string
	// Worker executes the step; WorkerOrchestrator marks a built-in step.
	Worker string
	// When is the source of the condition in CEL; empty means always.
	When  string
	Retry Retry
	// Wait is zero for a step without a limit of its own for waiting; then Retry covers waiting too.
	Wait Wait
	// Execution is how long a command may stay unanswered before it is sent again; zero for a built-in step.
	Execution time.Duration
	// OnTimeout applies when the retry budget or the wait budget is spent.
	OnTimeout Policy
	// OnFailure applies when the worker reports a failure.
	OnFailure Policy

	condition *condition
}

// Retry says how a step is taken up again. It is zero, except for the scope, for a built-in step.
type Retry struct {
	// Every is the time to the next try when the worker names none.
	Every time.Duration
	// Timeout is the retry budget, from the first try of the step; zero means until the operation's timeout. For a step with a
	// Wait it limits retries after errors only, and starts again once the step has waited without an error.
	Timeout time.Duration
	// Scope applies to waiting too.
	Scope Scope
}

// Wait limits how long a step waits: how long it asks to be taken up again without an error.
type Wait struct {
	// Every is the time to the next look when the worker names none.
	Every time.Duration
	// Timeout is the wait budget, from the first time the step waits; errors in between do not stop it. Zero means until the
	// operation's timeout.
	Timeout time.Duration
}

// Waits reports whether the step has a limit of its own for waiting.
func (s *Step) Waits() bool { return s.Wait != Wait{} }

// BuiltIn tells whether the orchestrator itself runs the step.
func (s *Step) BuiltIn() bool { return s.Worker == WorkerOrchestrator }

// Hash identifies the definition: the same stages, steps and settings have the same hash however their file is laid
// out. It is 32 hexadecimal digits.
func (p *Process) Hash() string { return p.hash }

// Canonical is the definition as JSON, for Parse. It must not be modified.
func (p *Process) Canonical() []byte { return p.canonical }

// Equal reports whether both define the same process.
func (p *Process) Equal(other *Process) bool {
	if p == nil || other == nil {
		return p == other
	}
	return p.hash == other.hash
}

// Find returns the indices of the stage and of the step of that name.
func (p *Process) Find(step string) (stageIndex, stepIndex int, ok bool) {
	for i := range p.Stages {
		for j := range p.Stages[i].Steps {
			if p.Stages[i].Steps[j].Name == step {
				return i, j, true
			}
		}
	}
	return 0, 0, false
}

// Finally is the index of the finally stage, or -1.
func (p *Process) Finally() int {
	if last := len(p.Stages) - 1; last >= 0 && p.Stages[last].Finally {
		return last
	}
	return -1
}

// Set holds the definitions by operation type.
type Set map[event.OperationType]*Process

// Workers names every worker that executes a step of the set, sorted, without the orchestrator itself.
func (s Set) Workers() []string {
	var names []string
	for _, p := range s {
		for _, stage := range p.Stages {
			for i := range stage.Steps {
				if !stage.Steps[i].BuiltIn() {
					names = append(names, stage.Steps[i].Worker)
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// BuiltInSteps names the steps that the orchestrator runs itself, sorted.
func BuiltInSteps() []string {
	return []string{
		"Init_Step", "Starting", "Update_Kyma_Initialization", "Upgrade_Cluster_Initialisation", "Upgrade_Kyma_Initialisation",
	}
}
