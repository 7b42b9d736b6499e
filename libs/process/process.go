package process

import (
	"slices"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// StageFinally is the name of the finally stage.
const StageFinally = "finally"

// WorkerOrchestrator is the worker of the built-in steps, which the orchestrator runs inside a transition.
const WorkerOrchestrator = "orchestrator"

// Default values and limits of settings.
const (
	// DefaultTimeout is the timeout of an operation (docs/contracts/processes.md#timeouts).
	DefaultTimeout = 24 * time.Hour
	// DefaultExecution is the limit on one execution of a step.
	DefaultExecution = time.Minute
	// DefaultEvery is the time between tries.
	DefaultEvery = 10 * time.Second
	// MaxFinally is the limit on the finally stage, in addition to the operation's timeout.
	MaxFinally = 15 * time.Minute
	// MaxSkipBudget is the longest retry budget of a deprovisioning step with onTimeout: skip (docs/contracts/processes.md#timeouts).
	// Waiting without an error is not a retry: only the operation's timeout limits it.
	MaxSkipBudget = 5 * time.Minute
	// MaxFactor is the largest retry.factor.
	MaxFactor = 10
)

// Policy is what happens to the operation when a step does not succeed.
type Policy string

// Policies.
const (
	// Fail ends the operation as failed. It is the default.
	Fail Policy = "fail"
	// Skip records the step as not completed and continues.
	Skip Policy = "skip"
)

// Scope is what is repeated when a step must run again.
type Scope string

// Scopes.
const (
	// ScopeStage repeats the stage from its first step, with an empty stage memory. It is the default.
	ScopeStage Scope = "stage"
	// ScopeStep repeats only the step, and keeps the stage memory. It is meant for steps that only poll.
	ScopeStep Scope = "step"
)

// NoWorker is what becomes of a step while no worker serves it.
type NoWorker string

// NoWorkerWait stops the retry budget of a step that was never tried until a worker is live.
const NoWorkerWait NoWorker = "wait"

// Process is the definition of an operation type. It is immutable after Load, and safe for concurrent use.
type Process struct {
	Operation event.OperationType
	// Timeout starts when the operation starts.
	Timeout time.Duration
	// Stages run in order; none is empty. Only the last one may be a finally stage.
	Stages []Stage

	canonical []byte
	hash      string
}

// Stage is a group of steps that share the stage memory and are repeated together. A finished stage never runs again, unless an operator
// retries a failed operation from it.
type Stage struct {
	// Name is unique in the process.
	Name string
	// Steps run in order; there is at least one.
	Steps []Step
	// Finally reports whether the stage always runs at the end of the operation: after the last stage, or after the operation fails, times
	// out or is cancelled. Its steps are recorded as not completed if they do not succeed, and do not change the result of the operation.
	Finally bool
}

// Step is a unit of work that a worker executes.
type Step struct {
	// Name is unique in the process.
	Name string
	// Worker executes the step; WorkerOrchestrator marks a built-in step.
	Worker string
	// When is the condition in CEL; empty means always.
	When  string
	Retry Retry
	// Wait is zero if the step has no separate limit for waiting. Retry then also limits waiting.
	Wait Wait
	// Execution is how long a command may have no result before it is sent again. It is zero for a built-in step.
	Execution time.Duration
	// Systems are the external systems that the step calls, sorted; empty means one with the name of the worker, see CalledSystems.
	Systems []string
	// NoWorker says whether the retry budget runs while no worker is live. Empty means that it does.
	NoWorker NoWorker
	// OnTimeout applies when the retry budget or the wait budget is exhausted.
	OnTimeout Policy
	// OnFailure applies when the worker reports a failure.
	OnFailure Policy

	condition *condition
}

// Retry contains the settings for repeating a step. It is zero, except for the scope, for a built-in step.
type Retry struct {
	// Every is the time to the next try if the worker gives none.
	Every time.Duration
	// Factor is above 1 if the time grows: each error in a row multiplies it by Factor, up to Max. Zero means that it does not grow; Max is
	// zero then. Polling without an error does not grow the time.
	Factor float64
	Max    time.Duration
	// Jitter is the fraction, from 0 to 1, by which the time after an error is randomly longer or shorter.
	Jitter float64
	// Timeout is the retry budget, from the first try of the step; zero means until the operation's timeout. For a step with a Wait it
	// limits only retries after errors, and starts again once the step has waited without an error.
	Timeout time.Duration
	// Scope also applies to waiting.
	Scope Scope
}

// Wait limits waiting: the step asks to run again without an error.
type Wait struct {
	// Every is the time to the next poll if the worker gives none.
	Every time.Duration
	// Timeout is the wait budget, from the first time the step waits. Errors do not stop it. Zero means until the operation's timeout.
	Timeout time.Duration
}

// CalledSystems returns the external systems that the step calls. A built-in step calls none.
func (s *Step) CalledSystems() []string {
	switch {
	case s.BuiltIn():
		return nil
	case len(s.Systems) == 0:
		return []string{s.Worker}
	}
	return s.Systems
}

// Waits reports whether the step has a separate limit for waiting.
func (s *Step) Waits() bool { return s.Wait != Wait{} }

// BuiltIn reports whether the orchestrator runs the step itself.
func (s *Step) BuiltIn() bool { return s.Worker == WorkerOrchestrator }

// Hash identifies the definition. Definitions with the same stages, steps and settings have the same hash, whatever the layout of their
// files. It has 32 hexadecimal digits.
func (p *Process) Hash() string { return p.hash }

// Canonical returns the definition as JSON, for Parse. The caller must not modify it.
func (p *Process) Canonical() []byte { return p.canonical }

// Equal reports whether both processes have the same definition.
func (p *Process) Equal(other *Process) bool {
	if p == nil || other == nil {
		return p == other
	}
	return p.hash == other.hash
}

// At returns the step with these indexes of stage and step; nil if there is none.
func (p *Process) At(stage, step int) *Step {
	if stage < 0 || stage >= len(p.Stages) || step < 0 || step >= len(p.Stages[stage].Steps) {
		return nil
	}
	return &p.Stages[stage].Steps[step]
}

// Find returns the indexes of a step and its stage.
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

// Finally returns the index of the finally stage, or -1.
func (p *Process) Finally() int {
	if last := len(p.Stages) - 1; last >= 0 && p.Stages[last].Finally {
		return last
	}
	return -1
}

// Set contains the definitions by operation type.
type Set map[event.OperationType]*Process

// Workers returns the sorted names of all workers in the set, except the orchestrator.
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

// BuiltInSteps returns the sorted names of the steps that the orchestrator runs itself.
func BuiltInSteps() []string {
	return []string{
		"Init_Step", "Starting", "Update_Kyma_Initialization", "Upgrade_Cluster_Initialisation", "Upgrade_Kyma_Initialisation",
	}
}
