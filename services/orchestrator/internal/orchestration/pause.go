package orchestration

import (
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/api/operator"
)

// Pause is why and since when an orchestration is paused.
type Pause struct {
	Reason operator.PauseReason `json:"reason"`
	// By is the operator; empty for other reasons.
	By string    `json:"by,omitempty"`
	At time.Time `json:"at"`
	// From is the state to resume.
	From State `json:"from"`
}

// Reasons with which an orchestration withdraws operations that have not started: it cancels them, and starts them again with new IDs.
const (
	// PausedReason is that of a paused orchestration. It starts the operations again when it is resumed.
	PausedReason = "the orchestration was paused before the operation started"
	// MissedReason is that of operations whose maintenance window has ended. They start again in the next one.
	MissedReason = "the maintenance window ended before the operation started"
)

// PauseBy pauses the orchestration for an operator. It reports whether that changes anything. The error wraps ErrNotPossible.
func (o *Orchestration) PauseBy(name string, now time.Time) (changed bool, err error) {
	switch {
	case o.State == Paused:
		return false, nil
	case o.State.Final():
		return false, fmt.Errorf("%w: the orchestration has ended as %s", ErrNotPossible, operator.Prose(o.State))
	case o.State == Canceling:
		return false, fmt.Errorf("%w: the orchestration is being cancelled", ErrNotPossible)
	}
	o.pause(operator.PausedByOperator, name, "paused by "+name, now)
	return true, nil
}

func (o *Orchestration) pause(reason operator.PauseReason, by, description string, now time.Time) {
	o.Pause = &Pause{Reason: reason, By: by, At: now, From: o.State}
	o.State, o.Description, o.UpdatedAt = Paused, description, now
}

// Resume continues a paused orchestration. failed is the number of failed members. It reports whether that changes anything. The error wraps
// ErrNotPossible.
func (o *Orchestration) Resume(name string, failed int, now time.Time) (changed bool, err error) {
	switch {
	case o.State.Final():
		return false, fmt.Errorf("%w: the orchestration has ended as %s; retry repeats its failed operations", ErrNotPossible, operator.Prose(o.State))
	case o.State == Canceling:
		return false, fmt.Errorf("%w: the orchestration is being cancelled", ErrNotPossible)
	case o.State != Paused:
		return false, nil
	case o.Pause.Reason == operator.PausedForApproval:
		return false, fmt.Errorf("%w: the orchestration waits for the approval of its canary; approve it, or cancel the orchestration", ErrNotPossible)
	case o.Pause.Reason == operator.PausedByFailures:
		o.FailuresAccepted = failed
	}
	o.resume("resumed by "+name, now)
	return true, nil
}

// Approve starts the operations outside the canary. The error wraps ErrNotPossible.
func (o *Orchestration) Approve(name string, now time.Time) error {
	if o.State != Paused || o.Pause.Reason != operator.PausedForApproval {
		text := string(operator.Prose(o.State))
		if o.State == Paused {
			text = o.Description + "; resume it"
		}
		return fmt.Errorf("%w: the orchestration does not wait for approval: it is %s", ErrNotPossible, text)
	}
	o.CanaryPassed = true
	o.resume("canary approved by "+name, now)
	return nil
}

func (o *Orchestration) resume(description string, now time.Time) {
	o.State, o.Description, o.UpdatedAt = o.Pause.From, description, now
	o.Pause, o.NotificationFailingSince = nil, time.Time{}
	if o.State.Running() {
		o.ActiveSince = now
	}
}

// Begun reports whether the members are fixed, and may be started unless the orchestration is paused.
func (o *Orchestration) Begun() bool {
	return o.State != Pending && (o.State != Paused || o.Pause.From != Pending)
}

// Running reports whether members may be started in this state.
func (s State) Running() bool { return s == InProgress || s == Retrying }

// Counts are the numbers of members that decide how many more may start. Members that a retry has replaced do not count.
type Counts struct {
	// Waiting reports whether any member waits.
	Waiting            bool
	InProgress, Failed int
	// Canary counts the members of the canary by state.
	Canary Stats
}

// Room is how many members may be started.
type Room struct {
	// Workers is the maximum number of all members.
	Workers int
	// Others is the maximum number among them of members that do not belong to the canary yet.
	Others int
	// Canary reports whether the started members become members of the canary.
	Canary bool
}

// Admit returns how many members may be started. It pauses the orchestration if too many members have failed, or if its canary has ended and must
// be approved, and it continues after a successful canary. changed reports whether the orchestration is changed.
func (o *Orchestration) Admit(c Counts, now time.Time) (room Room, changed bool) {
	if !o.State.Running() || !c.Waiting {
		return Room{}, false
	}
	strategy := &o.Parameters.Strategy
	failed := c.Failed - o.FailuresAccepted
	if limit, ok, err := strategy.MaxFailures.Limit(o.Members); err == nil && ok && failed > limit {
		o.pause(operator.PausedByFailures, "", tooManyFailures(failed, limit, o), now)
		return Room{}, true
	}
	room.Workers = max(0, strategy.Parallel.Workers-c.InProgress)
	room.Others = room.Workers
	canary := strategy.Canary
	if canary == nil || o.CanaryPassed {
		return room, false
	}
	ended, members := 0, 0
	for state, n := range c.Canary {
		if state == Skipped {
			continue // another runtime takes its place
		}
		members += n
		if state.Final() {
			ended += n
		}
	}
	if ended < canary.Size {
		room.Others = min(room.Workers, max(0, canary.Size-members))
		room.Canary = true
		return room, false
	}
	if canary.Then == operator.CanarySuccess && c.Canary[Succeeded] == ended {
		o.CanaryPassed, o.UpdatedAt = true, now
		return room, true
	}
	o.pause(operator.PausedForApproval, "", "waiting for approval of the canary: "+c.Canary.String(), now)
	return Room{}, true
}

func tooManyFailures(failed, limit int, o *Orchestration) string {
	noun := "operations"
	if failed == 1 {
		noun = "operation"
	}
	text := fmt.Sprintf("paused when %d %s had failed, maxFailures allows %d", failed, noun, limit)
	if m := string(o.Parameters.Strategy.MaxFailures); m != fmt.Sprint(limit) {
		text += fmt.Sprintf(" (%s of %d)", m, o.Members)
	}
	if o.FailuresAccepted > 0 {
		text += fmt.Sprintf("; %d earlier failures were accepted", o.FailuresAccepted)
	}
	return text
}
