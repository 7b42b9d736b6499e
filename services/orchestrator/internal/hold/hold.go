// Package hold pauses operations. A hold has a scope; an operation in it does not
// start, and sends no command. Every orchestrator keeps the holds in memory and
// reads them again when another one reports a change, and regularly.
package hold

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
)

// Scope selects operations and their steps. All fields that are set must match.
type Scope struct {
	Operation     string              `json:"operation,omitempty"`
	Instance      string              `json:"instance,omitempty"`
	GlobalAccount string              `json:"globalAccount,omitempty"`
	Plan          string              `json:"plan,omitempty"`
	Region        string              `json:"region,omitempty"`
	Type          event.OperationType `json:"type,omitempty"`
	Step          string              `json:"step,omitempty"`
	Worker        string              `json:"worker,omitempty"`
	// System is an external system that the step calls.
	System string `json:"system,omitempty"`
}

// Hold is a pause of the operations in its scope.
type Hold struct {
	// ID is a UUID.
	ID    string
	Scope Scope
	// RejectsOrders reports whether the broker rejects new orders in the scope.
	RejectsOrders bool
	// Reason and CreatedBy are never empty.
	Reason    string
	CreatedBy string
	CreatedAt time.Time
	// Until is the time at which the hold ends by itself; zero means that it must be released.
	Until time.Time
}

// Active reports whether the hold has not ended by itself.
func (h *Hold) Active(now time.Time) bool { return h.Until.IsZero() || now.Before(h.Until) }

// Matches reports whether the scope contains the next command of an operation. The step is nil for an operation that has not started: a
// scope with a step, a worker or a system does not contain it.
func (s *Scope) Matches(op *event.Operation, next *process.Step) bool {
	return s.matchesOperation(op) && s.matchesStep(next)
}

func (s *Scope) matchesOperation(op *event.Operation) bool {
	return matches(s.Operation, op.ID) && matches(s.Instance, op.InstanceID) && matches(s.GlobalAccount, op.Context.GlobalAccountID) &&
		(matches(s.Plan, op.Plan.Name) || matches(s.Plan, op.Plan.ID)) && matches(s.Region, op.Runtime.Region) &&
		matches(string(s.Type), string(op.Type))
}

func (s *Scope) matchesStep(step *process.Step) bool {
	if s.Step == "" && s.Worker == "" && s.System == "" {
		return true
	}
	return step != nil && matches(s.Step, step.Name) && matches(s.Worker, step.Worker) &&
		(s.System == "" || slices.Contains(step.CalledSystems(), s.System))
}

func matches(want, got string) bool { return want == "" || want == got }

const (
	maxReason = 1000
	maxName   = 200
)

// Validate reports every problem of a new hold.
func (h *Hold) Validate(now time.Time) error {
	var problems []error
	if h.Scope == (Scope{}) {
		problems = append(problems, errors.New("scope: must not be empty"))
	}
	s := &h.Scope
	for _, f := range []struct{ name, value string }{
		{"operation", s.Operation},
		{"instance", s.Instance},
		{"globalAccount", s.GlobalAccount},
		{"plan", s.Plan},
		{"region", s.Region},
		{"step", s.Step},
		{"worker", s.Worker},
		{"system", s.System},
	} {
		if len(f.value) > maxName || !printable(f.value) {
			problems = append(problems, fmt.Errorf("scope.%s: must have at most %d bytes, all of them printable", f.name, maxName))
		}
	}
	if s.Operation != "" {
		if id, err := uuid.Parse(s.Operation); err != nil || id.String() != s.Operation {
			problems = append(problems, fmt.Errorf("scope.operation %.50q: must be a UUID", s.Operation))
		}
	}
	if types := event.OperationTypes(); s.Type != "" && !slices.Contains(types, s.Type) {
		problems = append(problems, fmt.Errorf("scope.type %.50q: allowed are %v", string(s.Type), types))
	}
	if h.RejectsOrders {
		problems = append(problems, s.rejectable())
	}
	if strings.TrimSpace(h.Reason) == "" || len(h.Reason) > maxReason || !printable(h.Reason) {
		problems = append(problems, fmt.Errorf("reason: must have 1 to %d printable bytes", maxReason))
	}
	if !h.Until.IsZero() && !now.Before(h.Until) {
		problems = append(problems, errors.New("until: must be in the future"))
	}
	return errors.Join(problems...)
}

// rejectable returns why the broker cannot reject the orders in a scope: it does not know the operations and steps that they lead to, and
// rejects neither a deprovisioning nor an upgrade.
func (s *Scope) rejectable() error {
	orders := Scope{Instance: s.Instance, GlobalAccount: s.GlobalAccount, Plan: s.Plan, Region: s.Region, Type: s.Type}
	switch {
	case *s != orders:
		return errors.New("orders reject: the scope may have only instance, globalAccount, plan, region and type")
	case s.Type != "" && s.Type != event.Provision && s.Type != event.Update:
		return fmt.Errorf("orders reject: scope.type: allowed are %s and %s", event.Provision, event.Update)
	}
	return nil
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}
