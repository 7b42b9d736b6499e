package orchestration

import (
	"fmt"
	"time"
)

// Candidate is a member that may be retried.
type Candidate struct {
	Member
	// Newest tells that no newer upgrade of this kind is there for its instance, canceled and skipped ones aside.
	Newest bool
}

// Retries is what becomes of a request to retry members.
type Retries struct {
	// State and Description are the orchestration's afterwards.
	State       State
	Description string
	// New are the members to add, each in place of the one at the same index of Replaced.
	New      []*Member
	Replaced []string
	// Old and Invalid name operations that are not retried: a newer one is there, or they are no failed ones of this
	// orchestration.
	Old, Invalid []string
}

// Retry decides what a request to retry does. asked names operations, none for all that have failed; found are those of
// them that the orchestration has. The error wraps ErrNotPossible when the orchestration is, or is being, canceled.
func Retry(o *Orchestration, asked []string, found []Candidate, immediate bool, now time.Time) (Retries, error) {
	r := Retries{State: o.State, Description: o.Description}
	if o.State == Canceling || o.State == Canceled {
		return r, fmt.Errorf("%w: the orchestration is %s", ErrNotPossible, o.State)
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
		case c == nil || c.State != Failed:
			r.Invalid = append(r.Invalid, id)
		default:
			r.add(o, c, immediate, now)
		}
		seen[id] = true
	}
	if o.State == Failed && len(r.New) > 0 {
		r.State, r.Description = Retrying, o.Description+", retrying"
	}
	return r, nil
}

func (r *Retries) add(o *Orchestration, c *Candidate, immediate bool, now time.Time) {
	if c.State != Failed {
		return
	}
	if c.RetriedAs != "" || o.State == Failed && !c.Newest {
		r.Old = append(r.Old, c.OperationID)
		return
	}
	r.New = append(r.New, c.Again(immediate, now))
	r.Replaced = append(r.Replaced, c.OperationID)
}
