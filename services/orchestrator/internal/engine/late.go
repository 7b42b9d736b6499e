package engine

import (
	"slices"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
)

// LateWindow is how long after an unanswered try its requests can still take effect: four times the default timeout of a call.
const LateWindow = 2 * time.Minute

// lateReasons are the reasons (docs/wire-contract.md) of calls that may have reached the external system although they failed.
var lateReasons = []string{"err_network_timeout", "err_network", "err_keb_timeout", "err_keb_cancelled"}

// UnsettledUntil returns when unanswered requests of earlier tries can no longer take effect. It is zero unless this is a deprovisioning that
// started before that time: its steps may have missed what such a request creates, and must run again.
func (s *State) UnsettledUntil() time.Time {
	if s.Operation.Type != event.Deprovision || s.UnansweredAt.IsZero() {
		return time.Time{}
	}
	if until := s.UnansweredAt.Add(LateWindow); until.After(s.StartedAt) {
		return until
	}
	return time.Time{}
}

// mayTakeEffectLate reports whether a request of the command may still take effect after this result: a call got no answer, or the command was
// redelivered while the first worker was frozen or cut off. A result does not show whether it was redelivered, but a redelivered command starts
// at least AckWait after it was sent.
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
