package orchestration

import (
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/api/operator"
)

// Tally counts the members of an orchestration that a retry has not replaced.
type Tally struct {
	Stats Stats
	// Recent is the number of operations that have succeeded or failed since ActiveSince.
	Recent int
	// LastDue is the latest time at which a waiting member is due; zero if none waits.
	LastDue time.Time
}

// shortestRate is the time after which a rate is known.
const shortestRate = time.Second

// Progress returns the progress of the orchestration, with an estimate while it runs.
func (o *Orchestration) Progress(t Tally, now time.Time) operator.Progress {
	p := operator.Progress{
		Succeeded: t.Stats[Succeeded], Failed: t.Stats[Failed], InProgress: t.Stats[InProgress], Waiting: t.Stats[Pending] + t.Stats[Retrying],
	}
	for state, n := range t.Stats {
		p.Total += n
		if state.Final() {
			p.Ended += n
		}
	}
	active := now.Sub(o.ActiveSince)
	if !o.State.Running() || o.ActiveSince.IsZero() || active < shortestRate || t.Recent == 0 {
		return p
	}
	p.PerMinute = float64(t.Recent) / active.Minutes()
	each := active / time.Duration(t.Recent)
	end := now.Add(time.Duration(p.InProgress+p.Waiting) * each)
	// Operations that wait for a window do not start before.
	if p.Waiting > 0 && t.LastDue.Add(each).After(end) {
		end = t.LastDue.Add(each)
	}
	end = end.UTC().Truncate(time.Second)
	p.EstimatedEnd = &end
	return p
}

// Explanation returns the description with the progress of a running or paused orchestration.
func (o *Orchestration) Explanation(p *operator.Progress) string {
	if p.Total == 0 || !o.Begun() || !o.State.Running() && o.State != Paused {
		return o.Description
	}
	text := fmt.Sprintf("%d of %d operations have ended", p.Ended, p.Total)
	if p.Failed > 0 {
		text += fmt.Sprintf(", %d of them failed", p.Failed)
	}
	if o.Description != "" {
		text = o.Description + "; " + text
	}
	return text
}

// Failure is an error of failed members.
type Failure struct {
	Message string
	Count   int
	// OperationID is one of the operations.
	OperationID string
}
