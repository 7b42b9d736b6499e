package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// Operation is what a step works on: what was ordered, where the operation stands, and access to its saved data and to
// the memory of the stage. Copies share that access; it may be used by several goroutines until Run returns.
type Operation struct {
	// ID is a UUID, the same in every step and attempt.
	ID         string
	Type       event.OperationType
	InstanceID string
	Plan       event.Plan
	Context    event.Context
	Runtime    event.Runtime
	// Credentials names what ClaimCredentials can get.
	Credentials []string
	// Temporary, UserAgent, Update and Upgrade are those of event.Operation. The last two are nil for other operations.
	Temporary bool
	UserAgent string
	Update    *event.Changes
	Upgrade   *event.Upgrade

	Stage string
	Step  string
	// StageAttempt and StepAttempt count from 1.
	StageAttempt int
	StepAttempt  int
	// FirstTriedAt is when this step was first tried since it last succeeded; its budgets do not begin before.
	FirstTriedAt time.Time
	// ExecuteBefore is when the context of Run ends.
	ExecuteBefore time.Time

	session *session
}

// Override is one setting of a component.
type Override struct {
	// Key is a path such as "global.domainName".
	Key   string `json:"key"`
	Value string `json:"value"`
	// Secret tells the consumer of the override to keep the value in a Secret.
	Secret bool `json:"secret,omitempty"`
}

// ComponentOverrides is all that the steps of a stage have set for one component. An empty component means every one.
type ComponentOverrides struct {
	Component string
	// Entries is ordered by key and names each once; where two steps set the same key, the later step wins.
	Entries []Override
}

// Parameters decodes the parameters of the order, with the plan's defaults filled in, into a pointer. They hold no
// secret; those are claimed with ClaimCredentials.
func (op Operation) Parameters(into any) error {
	if op.session == nil {
		return ErrNoSession
	}
	if len(op.session.parameters) == 0 {
		return nil
	}
	if err := json.Unmarshal(op.session.parameters, into); err != nil {
		return fmt.Errorf("parameters: %w", err)
	}
	return nil
}

// Details decodes what a worker has saved in this operation, or in the instance's earlier ones, into a pointer. It
// leaves into untouched when there is nothing. A step may read every worker's part; what this very execution has
// saved is seen too.
func (op Operation) Details(worker string, into any) error {
	if op.session == nil {
		return ErrNoSession
	}
	part, err := op.session.readDetails(worker)
	if err != nil || part == nil {
		return err
	}
	if err := json.Unmarshal(part, into); err != nil {
		return fmt.Errorf("details of worker %q: %w", worker, err)
	}
	return nil
}

// SaveDetails saves members of this worker's own part of the details. own must encode to a JSON object of at most
// 256 KiB; its members replace those saved before under the same names, and a null removes one. Members it does not
// name stay. The data travels with the result of this execution, whatever its outcome, and holds no secret. An error
// here also makes the step failed, so a step may ignore it.
func (op Operation) SaveDetails(own any) error {
	if op.session == nil {
		return ErrNoSession
	}
	return op.session.saveDetails(own)
}

// SetOverrides puts settings of a component into the stage memory when the step is done or skipped; a retry or a
// failure drops them. They replace what this same step has set for the component before, and add to what other steps
// have set. It panics on an Operation that was not made by the SDK.
func (op Operation) SetOverrides(component string, entries []Override) {
	op.mustSession().setOverrides(component, slices.Clone(entries))
}

// Overrides is what all steps of this stage have set so far, with what this execution has set itself, ordered by
// component and key. Its error is ErrStageLost if the memory is gone, see there.
func (op Operation) Overrides(ctx context.Context) ([]ComponentOverrides, error) {
	if op.session == nil {
		return nil, ErrNoSession
	}
	all, err := op.session.overrides(ctx)
	return all, own(err)
}

// Remember puts a value into the stage memory when the step is done or skipped, for the later steps of this stage; a
// retry or a failure drops it. This is the place for secrets: the value is sealed, kept in memory only, and gone when
// the stage ends. The key is shared by the steps of the stage; the last one wins. It panics on an Operation that was
// not made by the SDK.
func (op Operation) Remember(key string, value []byte) {
	op.mustSession().remember(key, slices.Clone(value))
}

// Recall is what a step of this stage has remembered. Its errors are ErrNotRemembered and ErrStageLost, see there.
func (op Operation) Recall(ctx context.Context, key string) ([]byte, error) {
	if op.session == nil {
		return nil, ErrNoSession
	}
	value, err := op.session.recall(ctx, key)
	return value, own(err)
}

// ClaimCredentials asks the broker for credentials of the instance and decodes them into a pointer. name is one of
// op.Credentials, see the Credentials... names in package event; any other is ErrNoCredentials. The answer is never
// stored by the SDK, and a step must neither log it nor save it in the details. It waits at most 10 s.
func (op Operation) ClaimCredentials(ctx context.Context, name string, into any) error {
	if op.session == nil {
		return ErrNoSession
	}
	if !slices.Contains(op.Credentials, name) {
		return own(fmt.Errorf("claim credentials %q: %w (it has %q)", name, ErrNoCredentials, op.Credentials))
	}
	return own(op.session.claim(ctx, name, into))
}

// Neighbours returns how many other instances the subaccount of the instance has at this moment: those that neither are suspended nor being
// removed, own clusters apart. It asks the broker, and waits at most 10 s.
func (op Operation) Neighbours(ctx context.Context) (int, error) {
	if op.session == nil {
		return 0, ErrNoSession
	}
	var n event.Neighbours
	err := op.session.claim(ctx, event.ClaimNeighbours, &n)
	return n.Count, own(err)
}

// Keep has the broker keep a value of the instance, sealed, for this and later operations: what the worker needs again, and what
// is secret. There is one for each worker and instance; value replaces it at once, also when the step fails later. It encodes to
// JSON of at most event.MaxKept bytes. It waits at most 10 s.
func (op Operation) Keep(ctx context.Context, value any) error {
	if op.session == nil {
		return ErrNoSession
	}
	return own(op.session.keep(ctx, value))
}

// Kept decodes what this worker has had the broker keep of the instance into a pointer; ErrNotKept if there is nothing, and
// ErrKeptBroken if it cannot be opened. A step must neither log what is secret of it nor save that in the details: the SDK does not
// know which part is. It waits at most 10 s.
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
