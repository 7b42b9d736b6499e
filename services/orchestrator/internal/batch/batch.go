// Package batch applies one action of an operator to many operations. The
// operations are fixed when the batch is ordered. A controller applies the action
// at a rate, and the result of an operation is committed together with the action.
package batch

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

const (
	// MaxOperations is the maximum number of operations of a batch.
	MaxOperations = 100_000
	// DefaultRate is the rate of a batch that names none, in operations per second. It covers 10,000 operations in less than four minutes.
	DefaultRate = 50
	// MinRate is the lowest rate of a batch that has one.
	MinRate = 0.01
	// MaxRate is the highest rate.
	MaxRate = 10_000

	maxReason = 1000
	maxName   = 200
)

var (
	// ErrNotPossible means that the state of the batch does not allow the request.
	ErrNotPossible = errors.New("not possible")
	// ErrChanged means that the batch no longer runs, or that an operation has a result already.
	ErrChanged = errors.New("the batch has changed")
)

// Action is what a batch does to each of its operations.
type Action string

// The actions.
const (
	Retry  Action = "retry"
	Cancel Action = "cancel"
	Skip   Action = "skip"
)

// Actions returns all actions.
func Actions() []Action { return []Action{Retry, Cancel, Skip} }

// State is the state of a batch.
type State string

// The states. Finished and Cancelled are final.
const (
	Running   State = "running"
	Paused    State = "paused"
	Finished  State = "finished"
	Cancelled State = "cancelled"
)

// States returns all states.
func States() []State { return []State{Running, Paused, Finished, Cancelled} }

// Final reports whether the batch has ended.
func (s State) Final() bool { return s == Finished || s == Cancelled }

// ResultState is the state of one operation of a batch.
type ResultState string

// The states. Waiting is the first one. Skipped means that the action was no longer possible.
const (
	Waiting ResultState = "waiting"
	Done    ResultState = "done"
	Failed  ResultState = "failed"
	Skipped ResultState = "skipped"
)

// ResultStates returns all states of operations.
func ResultStates() []ResultState { return []ResultState{Waiting, Done, Failed, Skipped} }

// Order is what an operator orders.
type Order struct {
	Action Action
	// Stage is the stage to retry from; empty means the one that failed. Step is the step to skip, or the step of Stage to retry from.
	Stage, Step string
	// Filter is the query of the list of operations that selected the operations.
	Filter string
	// Reason and By are never empty.
	Reason, By string
	// Rate is the maximum number of operations per second; zero means no limit.
	Rate float64
}

// Batch is a stored order.
type Batch struct {
	Order

	// ID is a UUID.
	ID        string
	CreatedAt time.Time
	State     State
	// Total is the number of operations. Done, Failed and Skipped are those with a result.
	Total, Done, Failed, Skipped int
	UpdatedAt                    time.Time
	// DueAt is when the next operations are due.
	DueAt time.Time
}

// Left returns the number of operations without a result.
func (b *Batch) Left() int { return b.Total - b.Done - b.Failed - b.Skipped }

// Member is an operation of a batch.
type Member struct {
	// Position is the place in the batch, from one.
	Position                int
	OperationID, InstanceID string
	State                   ResultState
	// Error is the reason of a failed or skipped operation.
	Error string
	// At is the time of the result; zero while the operation waits.
	At time.Time
}

// Validate reports every problem of an order.
func (o *Order) Validate() error {
	var problems []error
	switch o.Action {
	case Retry:
		if o.Step != "" && o.Stage == "" {
			problems = append(problems, errors.New("stage: is required with the step to retry from"))
		}
	case Cancel:
		if o.Step != "" || o.Stage != "" {
			problems = append(problems, errors.New("step, stage: are not allowed for cancel"))
		}
	case Skip:
		if o.Step == "" {
			problems = append(problems, errors.New("step: must name the step to skip"))
		}
		if o.Stage != "" {
			problems = append(problems, errors.New("stage: is allowed only for retry"))
		}
	default:
		problems = append(problems, fmt.Errorf("action %.50q: allowed are %v", string(o.Action), Actions()))
	}
	for _, f := range []struct{ name, value string }{{"stage", o.Stage}, {"step", o.Step}} {
		if len(f.value) > maxName || !printable(f.value) {
			problems = append(problems, fmt.Errorf("%s: must have at most %d bytes, all of them printable", f.name, maxName))
		}
	}
	if strings.TrimSpace(o.Reason) == "" || len(o.Reason) > maxReason || !printable(o.Reason) {
		problems = append(problems, fmt.Errorf("reason: must have 1 to %d printable bytes", maxReason))
	}
	if o.Rate != 0 && !(o.Rate >= MinRate && o.Rate <= MaxRate) {
		problems = append(problems, fmt.Errorf("rate: must be 0 for no limit, or from %v to %v operations per second", MinRate, MaxRate))
	}
	return errors.Join(problems...)
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// Event returns the event that the batch applies to its operations. The history of an operation names the batch.
func (b *Batch) Event() engine.Event {
	by := b.By + " (batch " + b.ID + ")"
	switch b.Action {
	case Retry:
		return engine.Retry{By: by, Stage: b.Stage, Step: b.Step}
	case Cancel:
		return engine.Cancel{Reason: "cancelled by " + by}
	default:
		return engine.SkipStep{Step: b.Step, By: by}
	}
}

// maxChunk is the maximum number of operations in one transaction.
const maxChunk = 100

// chunk returns the number of operations of the next transaction. A batch with a rate has about five transactions per second.
func (b *Batch) chunk() int {
	if b.Rate == 0 {
		return maxChunk
	}
	return min(max(int(b.Rate/5), 1), maxChunk)
}

// pause returns how long the rate delays the operations after n others.
func (b *Batch) pause(n int) time.Duration {
	if b.Rate == 0 {
		return 0
	}
	return time.Duration(float64(n) / b.Rate * float64(time.Second))
}
