package dispatch

import (
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// Watcher is notified once of each commit of this process. It must not block. It is not notified of the last commit of a process that
// is killed.
type Watcher interface {
	Committed(transitions []Transition)
}

// Transition is the effect of a commit on an operation.
type Transition struct {
	OperationID string
	Type        event.OperationType
	// State is the state after the commit.
	State event.OperationState
	// Started and Ended report whether the operation started or ended with this commit.
	Started, Ended bool
	// Executions are the executions of steps that ended.
	Executions []Execution
}

// Execution is an ended execution of a step. Steps that the orchestrator itself runs or skips have process.WorkerOrchestrator as worker.
type Execution struct {
	Worker, Step string
	Outcome      event.Outcome
	// Polled reports whether a retry had no error.
	Polled bool
	// Took is the duration from the start of the execution to its end.
	Took time.Duration
}

// watch notifies the watcher of committed works.
func (d *Dispatcher) watch(works []*work) {
	if d.deps.Watcher == nil {
		return
	}
	transitions := make([]Transition, 0, len(works))
	for _, w := range works {
		if w.change != nil || w.inserted {
			transitions = append(transitions, w.transition())
		}
	}
	if len(transitions) > 0 {
		d.deps.Watcher.Committed(transitions)
	}
}

func (w *work) transition() Transition {
	t := Transition{
		OperationID: w.row.Operation.ID, Type: w.row.Operation.Type, State: w.row.Status, Ended: w.change != nil && w.row.Status.Final(),
	}
	if w.change == nil {
		return t
	}
	for i := range w.change.History {
		switch e := &w.change.History[i]; e.Kind {
		case engine.KindStarted:
			t.Started = true
		case engine.KindStep:
			step := &w.process.Stages[e.Stage].Steps[e.Step]
			worker := step.Worker
			if e.StepAttempt == 0 { // no command was sent
				worker = process.WorkerOrchestrator
			}
			t.Executions = append(t.Executions, Execution{Worker: worker, Step: step.Name, Outcome: e.Outcome, Polled: e.Outcome == event.OutcomeRetry && e.Error == nil, Took: e.FinishedAt.Sub(e.StartedAt)})
		}
	}
	return t
}

// Watchers notifies several watchers.
type Watchers []Watcher

// Committed implements Watcher.
func (w Watchers) Committed(transitions []Transition) {
	for _, one := range w {
		one.Committed(transitions)
	}
}
