package engine

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
)

// LateWindow is how long after an unanswered try its requests can still take effect: twice the longest default timeout of a
// call, which is 60 s for IAS and SPC.
const LateWindow = 2 * time.Minute

// maxNamed is the maximum number of removed objects in a message.
const maxNamed = 10

// lateReasons are the reasons (docs/wire-contract.md) of calls that may have reached the external system although they failed.
var lateReasons = []string{"err_network_timeout", "err_network", reasonTimeout, reasonCancelled}

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

// removesLateEffects reports whether the objects that this operation deletes were created late: it is a deprovisioning of an instance that was
// deprovisioned before, too early.
func (s *State) removesLateEffects() bool {
	return s.Operation.Type == event.Deprovision && !s.UnansweredAt.IsZero() && s.UnsettledUntil().IsZero()
}

// IsUnsaved reports whether the details of a stale result differ from the saved data of the worker. Such a result may name an object that no
// later step knows.
func (s *State) IsUnsaved(worker string, details json.RawMessage) bool {
	_, changed, err := mergeDetails(s.Details, worker, details)
	return err == nil && changed != nil
}

// withLateEffects adds to the message of a step the objects that unanswered requests had created, and that it deleted.
func withLateEffects(message string, removed []string) string {
	if len(removed) == 0 {
		return message
	}
	if message != "" {
		message += "; "
	}
	if more := len(removed) - maxNamed; more > 0 {
		removed = append(slices.Clone(removed[:maxNamed]), fmt.Sprintf("and %d more", more))
	}
	return message + "removed what an unanswered request had created: " + strings.Join(removed, ", ")
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
