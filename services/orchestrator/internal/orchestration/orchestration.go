// Package orchestration upgrades many runtimes, a few at a time. It selects the instances, determines when each of them may be disrupted,
// and starts the next ones. An orchestration has one member for each instance. A member is one operation, which the broker records and the
// orchestrator runs like any other.
//
// Everything except the Controller is pure.
package orchestration

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
)

// ErrNotPossible is returned when the state of the orchestration does not allow the request.
var ErrNotPossible = errors.New("not possible")

// State is the state of an orchestration or of a member. The spelling is that of docs/contracts/processes.md#states.
type State string

// States. A member is never Canceling or Paused, and an orchestration never Skipped.
const (
	// Pending means not started.
	Pending    State = "pending"
	InProgress State = "in progress"
	Succeeded  State = "succeeded"
	Failed     State = "failed"
	// Canceling means that nothing new is started, and operations in progress continue.
	Canceling State = "canceling"
	Canceled  State = "canceled"
	// Retrying means that failed operations are to be started again. For a member, it repeats a failed one and is not started yet.
	Retrying State = "retrying"
	// Skipped means that there is no operation. The description has the reason.
	Skipped State = "skipped"
	// Paused means that nothing new is started until an operator continues the orchestration. Operations in progress continue.
	Paused State = "paused"
)

// States returns the states of an orchestration.
func States() []State {
	return []State{Pending, InProgress, Retrying, Paused, Canceling, Succeeded, Failed, Canceled}
}

// MemberStates returns the states of a member.
func MemberStates() []State {
	return []State{Pending, InProgress, Retrying, Succeeded, Failed, Canceled, Skipped}
}

// Final reports whether an orchestration or a member in this state has ended. A failed orchestration may be retried.
func (s State) Final() bool {
	return s == Succeeded || s == Failed || s == Canceled || s == Skipped
}

// CanceledDescription is the description of an orchestration that was cancelled, in the spelling of the original broker.
const CanceledDescription = "Orchestration was canceled"

// Orchestration is an upgrade of many runtimes.
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
	// DueAt is when the targets of a pending orchestration are looked up next; zero once it has started.
	DueAt time.Time
	// StartedAt is when the first operation could start, and ActiveSince when the orchestration started or was resumed last; zero before.
	StartedAt, ActiveSince time.Time
	// Pause is set in the state Paused only.
	Pause *Pause
	// CanaryPassed reports whether members outside the canary may be started.
	CanaryPassed bool
	// FailuresAccepted is the number of failures that an operator has accepted, which no longer count.
	FailuresAccepted int
	// NotificationFailingSince is when its announcement failed first; zero if it has not failed. A resume resets it.
	NotificationFailingSince time.Time
	// CancelNotified reports whether customers need no further notice of the cancellation.
	CancelNotified bool
	// Members is the number of members that could be upgraded when the orchestration started.
	Members int
}

// New returns an orchestration that has not started. The parameters must be valid.
func New(t event.OperationType, p Parameters, now time.Time) *Orchestration {
	return &Orchestration{
		ID: newID(), Type: t, State: Pending, Description: "queued for processing", Parameters: p,
		CreatedAt: now, UpdatedAt: now, DueAt: now,
	}
}

// Start returns when the first operation may start.
func (o *Orchestration) Start() time.Time {
	if at, ok := scheduled(o.Parameters.Strategy); ok {
		return at
	}
	return o.CreatedAt
}

// Upgrade returns the target of a member's operation.
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

// Member is one instance of an orchestration, and its operation.
type Member struct {
	// OperationID is a UUID that is chosen when the member is created, so that repeated requests to the broker record one operation.
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
	// Window is the window of the runtime; nil if the orchestration ignores windows.
	Window *Window
	// WindowBegin and WindowEnd are the planned occurrence of the window; zero if there is none.
	WindowBegin, WindowEnd time.Time
	// DueAt is when the operation may start.
	DueAt     time.Time
	UpdatedAt time.Time
	// RetriedAs is the operation that repeats this one; empty if there is none.
	RetriedAs string
	// Canary reports whether the member belongs to the canary.
	Canary bool
}

// missed reports whether the member has a window that has ended at a time.
func (m *Member) missed(now time.Time) bool { return !m.WindowEnd.IsZero() && !m.WindowEnd.After(now) }

// plan sets when the member is due: in the next occurrence of its window that has not ended, or at once.
func (m *Member) plan(now time.Time) {
	m.DueAt, m.WindowBegin, m.WindowEnd = now, time.Time{}, time.Time{}
	if m.Window != nil {
		m.WindowBegin, m.WindowEnd = m.Window.Next(now)
		m.DueAt = m.WindowBegin
	}
}

// Again returns a member that repeats one with a new operation. If immediate, it does not wait for its window.
func (m *Member) Again(immediate bool, now time.Time) *Member {
	next := *m
	next.OperationID, next.State, next.Description, next.RetriedAs, next.UpdatedAt = newID(), Retrying, "", "", now
	next.plan(now)
	if immediate {
		next.DueAt, next.WindowBegin, next.WindowEnd = now, time.Time{}, time.Time{}
	}
	return &next
}

// Candidates returns members for the instances, in the order in which they are due. windows contains the windows of shoots by name; they
// apply only if the orchestration observes windows. A runtime without a window is skipped, with the reason in its description.
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
	// IDs increase, so that the order of IDs is the initial order of members.
	for _, m := range members {
		m.OperationID = newID()
	}
	return members
}

// newID returns an ID that increases with time and with every call in this process.
func newID() string { return uuid.Must(uuid.NewV7()).String() }

// Stats counts members by state.
type Stats map[State]int

// String lists the states that have members, in the order of MemberStates.
func (s Stats) String() string {
	var parts []string
	for _, state := range MemberStates() {
		if n := s[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, operator.Prose(state)))
		}
	}
	if len(parts) == 0 {
		return "no instance matches the targets"
	}
	return strings.Join(parts, ", ")
}

// Ended returns the next state of an orchestration with these members, and whether it has ended.
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
