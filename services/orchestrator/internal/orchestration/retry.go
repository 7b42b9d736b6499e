package orchestration

import (
	"fmt"
	"time"
)

// Candidate is a member that may be retried.
type Candidate struct {
	Member
	// Newest reports whether no newer upgrade of this type exists for its instance, except canceled and skipped ones.
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

// Retry decides the result of a request to retry. asked contains operations, and none for all failed ones. found contains the members of
// the orchestration among them. The error wraps ErrNotPossible if the orchestration is canceling or canceled.
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
