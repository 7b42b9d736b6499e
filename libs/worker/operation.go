package worker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// Operation is the input of a step: the order, the position of the operation, and access to its saved data and to
// the stage memory. Copies share that access. Its methods are safe for concurrent use until Run returns.
type Operation struct {
	// ID is a UUID that is the same in every step and attempt.
	ID         string
	Type       event.OperationType
	InstanceID string
	Plan       event.Plan
	Context    event.Context
	Runtime    event.Runtime
	// Credentials lists the names that ClaimCredentials accepts.
	Credentials []string
	// Temporary, Purpose, UserAgent, Update and Upgrade are the fields of event.Operation. Update and Upgrade are nil for other types.
	Temporary bool
	Purpose   event.Purpose
	UserAgent string
	Update    *event.Changes
	Upgrade   *event.Upgrade

	Stage string
	Step  string
	// StageAttempt and StepAttempt count from 1.
	StageAttempt int
	StepAttempt  int
	// FirstTriedAt is the time of the first try of this step since it last succeeded, from which its budgets count.
	FirstTriedAt time.Time
	// ExecuteBefore is the deadline of the context of Run.
	ExecuteBefore time.Time
	// Event is the event that the step has waited for, see WaitForEvent; nil if none has come. A step that runs again after it returned
	// anything but WaitForEvent gets the event again.
	Event *event.Signal

	session *session
}

// Override is one setting of a component.
type Override struct {
	// Key is a path such as "global.domainName".
	Key   string `json:"key"`
	Value string `json:"value"`
	// Secret means that the consumer of the override must keep the value in a Secret.
	Secret bool `json:"secret,omitempty"`
}

// ComponentOverrides holds the overrides of a component that the steps of a stage have set. An empty component means all components.
type ComponentOverrides struct {
	Component string
	// Entries is ordered by key without duplicates. If two steps set the same key, the later step wins.
	Entries []Override
}

// Parameters decodes the parameters of the order, including the plan's defaults, into a pointer. They contain no
// secrets; use ClaimCredentials for these.
func (op Operation) Parameters(into any) error {
	if op.session == nil {
		return ErrNoSession
	}
	if len(op.session.parameters) == 0 {
		return nil
	}
	return decode("parameters", op.session.parameters, into)
}

// Details decodes the details that a worker has saved in this or an earlier operation of the instance into a pointer. It
// leaves into unchanged if there are none. A step may read the details of every worker, including those that this
// execution has saved.
func (op Operation) Details(worker string, into any) error {
	if op.session == nil {
		return ErrNoSession
	}
	part, err := op.session.readDetails(worker)
	if err != nil || part == nil {
		return err
	}
	return decode(fmt.Sprintf("details of worker %q", worker), part, into)
}

// SaveDetails saves members of this worker's own details. own must encode to a JSON object of at most
// 256 KiB. Its members replace saved members with the same names, and null removes a member. Other members
// do not change. The details are part of this execution's result, whatever its outcome, and must not contain secrets. An error
// also fails the step, so the step may ignore it.
func (op Operation) SaveDetails(own any) error {
	if op.session == nil {
		return ErrNoSession
	}
	return op.session.saveDetails(own)
}

// SetOverrides stores settings of a component in the stage memory when the step is done or skipped; a retry or a
// failure discards them. They replace the settings of an earlier execution of the same step, and extend those of other
// steps. It panics if the SDK did not create the Operation.
func (op Operation) SetOverrides(component string, entries []Override) {
	op.mustSession().setOverrides(component, slices.Clone(entries))
}

// Overrides returns the overrides that the steps of this stage have set, including this execution, ordered by
// component and key. It returns ErrStageLost if the memory is lost.
func (op Operation) Overrides(ctx context.Context) ([]ComponentOverrides, error) {
	if op.session == nil {
		return nil, ErrNoSession
	}
	all, err := op.session.overrides(ctx)
	return all, own(err)
}

// Remember stores a value in the stage memory for later steps of this stage when the step is done or skipped; a
// retry or a failure discards it. It is intended for secrets: the value is encrypted, held in memory only, and deleted when
// the stage ends. The steps of the stage share the keys; the last write wins. It panics if the SDK did not create the
// Operation.
func (op Operation) Remember(key string, value []byte) {
	op.mustSession().remember(key, slices.Clone(value))
}

// Recall returns a value that a step of this stage has remembered, or ErrNotRemembered or ErrStageLost.
func (op Operation) Recall(ctx context.Context, key string) ([]byte, error) {
	if op.session == nil {
		return nil, ErrNoSession
	}
	value, err := op.session.recall(ctx, key)
	return value, own(err)
}

// ClaimCredentials requests credentials of the instance from the broker and decodes them into a pointer. name is one of
// op.Credentials, see the Credentials... constants in package event; for other names it returns ErrNoCredentials. The SDK never
// stores the credentials, and a step must neither log them nor save them in the details. It waits at most 10 s.
func (op Operation) ClaimCredentials(ctx context.Context, name string, into any) error {
	if op.session == nil {
		return ErrNoSession
	}
	if !slices.Contains(op.Credentials, name) {
		return own(fmt.Errorf("claim credentials %q: %w (it has %q)", name, ErrNoCredentials, op.Credentials))
	}
	return own(op.session.claim(ctx, name, into))
}

// Neighbours returns the current number of other instances in the subaccount of the instance, without instances that are suspended or
// being removed, and without own clusters. It asks the broker and waits at most 10 s.
func (op Operation) Neighbours(ctx context.Context) (int, error) {
	if op.session == nil {
		return 0, ErrNoSession
	}
	var n event.Neighbours
	err := op.session.claim(ctx, event.ClaimNeighbours, &n)
	return n.Count, own(err)
}

// NoteRemoved reports that the step deleted an object in its external system, or began to delete it, for example "evaluation 12". A missing object
// does not count. If the instance was already deprovisioned, an unanswered request had created the object late, and operators see its name.
// object must not contain secrets. It panics if the SDK did not create the Operation.
func (op Operation) NoteRemoved(object string) { op.mustSession().noteRemoved(object) }

// Keep stores a value of the instance, which may be secret, encrypted in the broker for this and later operations. There is one
// value per worker and instance; it is replaced immediately, even if the step fails later. value must encode to
// JSON of at most event.MaxKept bytes. Keep waits at most 10 s.
func (op Operation) Keep(ctx context.Context, value any) error {
	if op.session == nil {
		return ErrNoSession
	}
	return own(op.session.keep(ctx, value))
}

// Kept decodes the value that this worker has kept of the instance into a pointer. It returns ErrNotKept if there is none, and
// ErrKeptBroken if it cannot be decrypted. A step must neither log secret parts of the value nor save them in the details, because the
// SDK does not know which parts are secret. It waits at most 10 s.
func (op Operation) Kept(ctx context.Context, into any) error {
	if op.session == nil {
		return ErrNoSession
	}
	return own(op.session.kept(ctx, into))
}

func (op Operation) mustSession() *session {
	if op.session == nil {
		panic(ErrNoSession.Error())
	}
	return op.session
}

func (op Operation) now() time.Time {
	if op.session == nil {
		return time.Now()
	}
	return op.session.now()
}
