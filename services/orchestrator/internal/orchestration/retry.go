package orchestration

import (
	"fmt"
	"slices"
	"time"
)

// Candidate is a member that may be retried.
type Candidate struct {
	Member
	// Newest reports whether no later upgrade of this type was started for its instance. Dry runs and canceled or skipped upgrades do not count.
	Newest bool
}

// Retries is the result of a request to retry members.
type Retries struct {
	// State and Description are the new values of the orchestration.
	State       State
	Description string
	// New contains the members to add. Each one replaces the member at the same index of Replaced.
	New      []*Member
	Replaced []string
	// Old and Invalid are operations that are not retried: Old because a newer one exists, Invalid because they are not failed operations
	// of this orchestration.
	Old, Invalid []string
}

// Retryable returns the states of the members that a retry repeats: failed ones, and after a cancellation also those that it has cancelled.
func (o *Orchestration) Retryable() []State {
	if o.State == Canceled {
		return []State{Failed, Canceled}
	}
	return []State{Failed}
}

// Retry decides the result of a request to retry. asked contains operations, and none for all that can be retried. found contains the members
// of the orchestration among them. The error wraps ErrNotPossible if the orchestration is being cancelled, or if its customers were notified of
// its cancellation.
func Retry(o *Orchestration, asked []string, found []Candidate, immediate bool, now time.Time) (Retries, error) {
	r := Retries{State: o.State, Description: o.Description}
	switch {
	case o.State == Canceling:
		return r, fmt.Errorf("%w: the orchestration is being cancelled; retry it when it is cancelled", ErrNotPossible)
	case o.State == Canceled && o.Parameters.Notification && !o.Parameters.DryRun:
		return r, fmt.Errorf("%w: customers were notified that the orchestration is cancelled; order a new one with the same targets", ErrNotPossible)
	}
	known := map[string]*Candidate{}
	for i := range found {
		known[found[i].OperationID] = &found[i]
		if len(asked) == 0 {
			r.add(o, &found[i], immediate, now)
		}
	}
	seen := make(map[string]bool, len(asked))
	for _, id := range asked {
		switch c := known[id]; {
		case seen[id]:
		case c == nil || !slices.Contains(o.Retryable(), c.State):
			r.Invalid = append(r.Invalid, id)
		default:
			r.add(o, c, immediate, now)
		}
		seen[id] = true
	}
	if o.State.Final() && len(r.New) > 0 {
		r.State, r.Description = Retrying, o.Description+", retrying"
	}
	return r, nil
}

func (r *Retries) add(o *Orchestration, c *Candidate, immediate bool, now time.Time) {
	if !slices.Contains(o.Retryable(), c.State) {
		return
	}
	if c.RetriedAs != "" || o.State.Final() && !c.Newest {
		r.Old = append(r.Old, c.OperationID)
		return
	}
	r.New = append(r.New, c.Again(immediate, now))
	r.Replaced = append(r.Replaced, c.OperationID)
}
