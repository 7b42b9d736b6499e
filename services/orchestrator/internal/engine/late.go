package engine

import (
	"slices"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
)

// LateWindow is the longest time after the end of an unanswered try in which its requests can take effect: four times the deadline of a call.
const LateWindow = 2 * time.Minute

// lateReasons are the reasons (docs/wire-contract.md) of calls that an external system may have received, and of steps that may have ended
// within a call.
var lateReasons = []string{"err_network_timeout", "err_network", "err_keb_timeout", "err_keb_cancelled"}

// UnsettledUntil returns when requests of earlier tries can no longer arrive, if this is after the start of this deprovisioning. Then its steps
// may have run too early to find what they create, and must run again after that time. Otherwise it is zero.
func (s *State) UnsettledUntil() time.Time {
	if s.Operation.Type != event.Deprovision || s.Operation.Temporary || s.UnansweredAt.IsZero() {
		return time.Time{}
	}
	if until := s.UnansweredAt.Add(LateWindow); until.After(s.StartedAt) {
		return until
	}
	return time.Time{}
}

// mayTakeEffectLate reports whether requests of the command may still take effect after this result: a call was not answered, or the command
// was redelivered, and the worker that had it first may be frozen or cut off. The result does not tell that it is of a redelivery, but
// the execution then started AckWait after the command was sent.
func (m *machine) mayTakeEffectLate(r *Result, step *process.Step) bool {
	if r.Error != nil && slices.Contains(lateReasons, r.Error.Reason) {
		return true
	}
	return !r.StartedAt.IsZero() && r.StartedAt.Sub(m.s.SentAt) >= event.CommandsConsumer(step.Worker).AckWait
}

func (m *machine) noteUnanswered() {
	if m.s.Operation.Type != event.Deprovision {
		m.s.UnansweredAt = m.now
	}
}
