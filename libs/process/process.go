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

// Step is a unit of work that a worker executes. In a process file and in an overlay it has these members.
//
//	operation: provision
//	changes:
//	  - add:
//	      after: EDP_Registration
//	      step:
//	        name: Hello_World
//	        worker: hello-world
//	        when: plan.name != "own_cluster"
//	        retry: {every: 10s, max: 1m, factor: 2, jitter: 0.5, timeout: 10m}
//	        wait: {every: 30s, timeout: 1h}
//	        execution: 30s
//	        onTimeout: skip
//	        onFailure: skip
//	        noWorker: wait
//	        systems: [greeter]
type Step struct {
	// Name is what `Name()` of the step returns. It must be unique in the process.
	Name string `yaml:"name" required:"true" format:"name" example:"name: Hello_World"`
	// Worker executes the step: the name given to `worker.Main`. The worker `orchestrator` marks a built-in step, which has no
	// settings except `when`.
	Worker string `yaml:"worker" required:"true" format:"name" example:"worker: hello-world"`
	// When is the condition in CEL. If it is false, the step is skipped. If it is absent, the step always runs.
	When string `yaml:"when" format:"condition" example:"when: plan.name != \"own_cluster\""`
	// Retry repeats the step, or its stage.
	Retry Retry `yaml:"retry" example:"retry: {every: 10s, timeout: 10m}"`
	// Wait limits waiting: the step asks to run again without an error. If it is absent, `retry` also limits waiting.
	Wait Wait `yaml:"wait" example:"wait: {every: 30s, timeout: 1h}"`
	// Execution limits one execution. Without a result by then, the try has failed, and the command is sent again.
	Execution time.Duration `yaml:"execution" default:"1m" example:"execution: 30s"`
	// OnTimeout applies when the retry budget or the wait budget is exhausted. The value `skip` needs a `retry.timeout`, and a
	// `wait.timeout` beside a `wait`; in a deprovisioning the `retry.timeout` is then at most 5 minutes.
	OnTimeout Policy `yaml:"onTimeout" default:"fail" example:"retry: {timeout: 5m}, onTimeout: skip"`
	// OnFailure applies when the worker reports a failure.
	OnFailure Policy `yaml:"onFailure" default:"fail" example:"onFailure: skip"`
	// NoWorker is what becomes of a step that was never tried while no worker is live. If it is absent, the retry budget is spent.
	NoWorker NoWorker `yaml:"noWorker" example:"noWorker: wait"`
	// Systems are the external systems that the step calls, for the scope of holds and limits. If they are absent, it is one with the name
	// of the worker.
	Systems []string `yaml:"systems" format:"name" example:"systems: [gardener, provisioner]"`

	condition *condition
}

// Retry contains the settings for repeating a step. In the stage `finally`, `timeout` is at most 5 minutes, which is also its default.
//
//	operation: provision
//	changes:
//	  - retime: {step: Resolve_Target_Secret, retry: {every: 5s, max: 2m, factor: 2, jitter: 0.5, timeout: 20m}}
type Retry struct {
	// Every is the time to the next try if the worker gives none.
	Every time.Duration `yaml:"every" default:"10s" example:"retry: {every: 30s}"`
	// Max is the longest time to the next try. It is required if `factor` is above 1.
	Max time.Duration `yaml:"max" example:"retry: {every: 5s, max: 1m, factor: 2}"`
	// Factor multiplies the time with each error in a row. Polling without an error does not lengthen it. With 1, or if it is absent, the
	// time does not grow.
	Factor float64 `yaml:"factor" minimum:"1" maximum:"10" example:"retry: {every: 5s, max: 1m, factor: 2}"`
	// Jitter is the fraction by which the time after an error is randomly longer or shorter.
	Jitter float64 `yaml:"jitter" default:"0" minimum:"0" maximum:"1" example:"retry: {every: 10s, jitter: 0.5}"`
	// Timeout is the retry budget, from the first try of the step. If it is absent, only the timeout of the operation limits the tries. For
	// a step with `wait` it limits only retries after errors, and starts again once the step has waited without an error.
	Timeout time.Duration `yaml:"timeout" example:"retry: {timeout: 10m}"`
	// Scope is what runs again. It also applies to waiting.
	Scope Scope `yaml:"scope" default:"stage" example:"retry: {scope: step}"`
}

// Wait limits waiting. At least one member is required. In the stage `finally`, `timeout` is at most 5 minutes, which is also its
// default.
//
//	operation: provision
//	changes:
//	  - retime: {step: Check_Runtime, wait: {every: 5m, timeout: 8h}}
type Wait struct {
	// Every is the time to the next poll if the worker gives none. If it is absent, it is `retry.every`.
	Every time.Duration `yaml:"every" example:"wait: {every: 30s}"`
	// Timeout is the wait budget, from the first time the step waits. Errors do not stop it. If it is absent, only the timeout of the
	// operation limits waiting.
	Timeout time.Duration `yaml:"timeout" example:"wait: {timeout: 2h}"`
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
