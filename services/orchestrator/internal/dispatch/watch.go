package dispatch

import (
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// Watcher is told what was committed, once for each commit of this process. It must not block. What a process that was killed has
// committed last it is not told.
type Watcher interface {
	Committed(transitions []Transition)
}

// Transition is what a commit has done to an operation.
type Transition struct {
	OperationID string
	Type        event.OperationType
	// State is that after the commit.
	State event.OperationState
	// Started and Ended tell that it began, and ended, with this commit.
	Started, Ended bool
	// Executions are those that ended.
	Executions []Execution
}

// Execution is how an execution of a step ended. What the orchestrator itself runs or skips has no other worker.
type Execution struct {
	Worker, Step string
	Outcome      event.Outcome
}

// watch tells the watcher of works that were committed.
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
			t.Executions = append(t.Executions, Execution{Worker: worker, Step: step.Name, Outcome: e.Outcome})
		}
	}
	return t
}

// Watchers tell each of several watchers.
type Watchers []Watcher

// Committed implements Watcher.
func (w Watchers) Committed(transitions []Transition) {
	for _, one := range w {
		one.Committed(transitions)
	}
}
