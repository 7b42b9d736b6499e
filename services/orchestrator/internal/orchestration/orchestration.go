// Package orchestration upgrades many runtimes, a few at a time: which instances
// are meant, when each of them may be disturbed, and what is started next. An
// orchestration has one member per instance, and a member is one operation that
// the broker records and the orchestrator runs like any other.
//
// Everything but the Controller is pure.
package orchestration

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/libs/event"
)

// ErrNotPossible says that the state of the orchestration does not allow what was asked for.
var ErrNotPossible = errors.New("not possible")

// State is the state of an orchestration or of a member, spelt as in docs/contracts/processes.md#states.
type State string

// The states. A member is never Canceling, and an orchestration never Skipped.
const (
	// Pending: not begun; for a member, not started yet.
	Pending    State = "pending"
	InProgress State = "in progress"
	Succeeded  State = "succeeded"
	Failed     State = "failed"
	// Canceling: nothing new is started, and what is in progress is awaited.
	Canceling State = "canceling"
	Canceled  State = "canceled"
	// Retrying: failed ones are to be started again; for a member, it repeats a failed one and is not started yet.
	Retrying State = "retrying"
	// Skipped: there is no operation, and the description says why.
	Skipped State = "skipped"
)

// States are those that an orchestration can be in.
func States() []State {
	return []State{Pending, InProgress, Retrying, Canceling, Succeeded, Failed, Canceled}
}

// MemberStates are those that a member can be in.
func MemberStates() []State {
	return []State{Pending, InProgress, Retrying, Succeeded, Failed, Canceled, Skipped}
}

// Final reports whether an orchestration or a member in this state has ended. A failed orchestration may be retried.
func (s State) Final() bool {
	return s == Succeeded || s == Failed || s == Canceled || s == Skipped
}

// CanceledDescription is the description of an orchestration that was canceled.
const CanceledDescription = "Orchestration was canceled"

// Orchestration is a fleet upgrade.
type Orchestration struct {
	// ID is a UUID.
	ID string
	// Type is event.UpgradeKyma or event.UpgradeCluster.
	Type        event.OperationType
	State       State
	Description string
	Parameters  Parameters
	CreatedAt   time.Time
	UpdatedAt   time.Time
	// DueAt is when the targets of a pending orchestration are looked up next; zero once it has begun.
	DueAt time.Time
}

// New returns an orchestration that has not begun. The parameters must be valid.
func New(t event.OperationType, p Parameters, now time.Time) *Orchestration {
	return &Orchestration{
		ID: newID(), Type: t, State: Pending, Description: "queued for processing", Parameters: p,
		CreatedAt: now, UpdatedAt: now, DueAt: now,
	}
}

// Start is when the first operation may start.
func (o *Orchestration) Start() time.Time {
	if at, ok := scheduled(o.Parameters.Strategy); ok {
		return at
	}
	return o.CreatedAt
}

// Upgrade is what a member's operation brings.
func (o *Orchestration) Upgrade(m *Member) event.Upgrade {
	u := event.Upgrade{
		OrchestrationID: o.ID, DryRun: o.Parameters.DryRun, Notification: o.Parameters.Notification,
		MaintenanceWindowBegin: optional(m.WindowBegin), MaintenanceWindowEnd: optional(m.WindowEnd),
	}
	if k := o.Parameters.Kyma; k != nil {
		u.KymaVersion = k.Version
	}
	if k := o.Parameters.Kubernetes; k != nil {
		u.KubernetesVersion, u.MachineImage, u.MachineImageVersion = k.KubernetesVersion, k.MachineImage, k.MachineImageVersion
	}
	return u
}

func optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// Member is one instance of an orchestration, and the operation on it.
type Member struct {
	// OperationID is a UUID, chosen when the member is made: asking the broker twice for its operation records it once.
	OperationID     string
	OrchestrationID string
	InstanceID      string
	RuntimeID       string
	GlobalAccountID string
	SubaccountID    string
	Plan            event.Plan
	ShootName       string
	State           State
	Description     string
	// Window is the window of the runtime; nil when the orchestration does not care.
	Window *Window
	// WindowBegin and WindowEnd are the occurrence that the operation is planned for; zero without one.
	WindowBegin, WindowEnd time.Time
	// DueAt is when the operation may start.
	DueAt     time.Time
	UpdatedAt time.Time
	// RetriedAs is the operation that repeats this failed one; empty when there is none.
	RetriedAs string
}

// plan sets when the member is due: in the next occurrence of its window that has not ended, or at once.
func (m *Member) plan(now time.Time) {
	m.DueAt, m.WindowBegin, m.WindowEnd = now, time.Time{}, time.Time{}
	if m.Window != nil {
		m.WindowBegin, m.WindowEnd = m.Window.Next(now)
		m.DueAt = m.WindowBegin
	}
}

// Again returns the member that repeats a failed one, with an operation of its own. An immediate one does not wait for its
// window.
func (m *Member) Again(immediate bool, now time.Time) *Member {
	next := *m
	next.OperationID, next.State, next.Description, next.RetriedAs, next.UpdatedAt = newID(), Retrying, "", "", now
	next.plan(now)
	if immediate {
		next.DueAt, next.WindowBegin, next.WindowEnd = now, time.Time{}, time.Time{}
	}
	return &next
}

// Candidates returns members for the instances, in the order in which they are due. windows are those of the shoots by their
// name, and count only if the orchestration cares for them. A runtime without any window is skipped, and says so.
func Candidates(o *Orchestration, policy *Policy, instances []event.InstanceSummary, windows map[string]Window, now time.Time) []*Member {
	from := o.Start()
	if from.Before(now) {
		from = now
	}
	members := make([]*Member, 0, len(instances))
	for i := range instances {
		instance := &instances[i]
		m := &Member{
			OrchestrationID: o.ID, InstanceID: instance.InstanceID, RuntimeID: instance.RuntimeID, GlobalAccountID: instance.GlobalAccountID,
			SubaccountID: instance.SubaccountID, Plan: instance.Plan, ShootName: instance.Runtime.ShootName, State: Pending, UpdatedAt: now,
		}
		if o.Parameters.Strategy.MaintenanceWindow {
			m.Window = policy.window(instance, windows)
			if m.Window == nil {
				m.State = Skipped
				m.Description = fmt.Sprintf("shoot %s has no maintenance window, and the maintenance policy gives it none", m.ShootName)
			}
		}
		m.plan(from)
		members = append(members, m)
	}
	slices.SortFunc(members, func(a, b *Member) int {
		if c := a.DueAt.Compare(b.DueAt); c != 0 {
			return c
		}
		return strings.Compare(a.InstanceID, b.InstanceID)
	})
	// Ids grow, so that the order of ids is the order in which members are due at first.
	for _, m := range members {
		m.OperationID = newID()
	}
	return members
}

// newID grows with every call in this process, and with time.
func newID() string { return uuid.Must(uuid.NewV7()).String() }

// Stats counts members by state.
type Stats map[State]int

// String lists the states that have members, in the order of MemberStates.
func (s Stats) String() string {
	var parts []string
	for _, state := range MemberStates() {
		if n := s[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	if len(parts) == 0 {
		return "no instance matches the targets"
	}
	return strings.Join(parts, ", ")
}

// Ended tells what an orchestration in this state becomes with these members, and whether it has ended.
func (s Stats) Ended(from State) (to State, ended bool) {
	if s[Pending]+s[Retrying]+s[InProgress] > 0 {
		return from, false
	}
	switch {
	case from == Canceling:
		return Canceled, true
	case s[Failed] > 0:
		return Failed, true
	}
	return Succeeded, true
}
