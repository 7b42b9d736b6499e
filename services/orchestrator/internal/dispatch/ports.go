package dispatch

import (
	"context"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// Store keeps operations. What its parts and those of Tx promise is said at the methods of package store.
type Store interface {
	// InTx runs f in a transaction, which is committed if f returns no error. f may run more than once.
	InTx(ctx context.Context, f func(tx Tx) error) error
	Operations
	Sweep
	Leftovers
	FactNotes
}

// Operations reads and writes operations outside of a transaction.
type Operations interface {
	Load(ctx context.Context, ids []string) (map[string]*store.Row, error)
	Write(ctx context.Context, changes []*store.Change) (map[string]int, error)
}

// Sweep finds what is to be taken up.
type Sweep interface {
	Out(ctx context.Context, behind string, limit int) ([]store.Out, error)
	AnyInFlight(ctx context.Context, until time.Time) (bool, error)
	PendingTypes(ctx context.Context, types []event.OperationType) ([]event.OperationType, error)
	ActiveSince(ctx context.Context, since time.Time, behind string, limit int) ([]string, error)
}

// Leftovers removes what ended operations have left behind.
type Leftovers interface {
	DropInstances(ctx context.Context, ids []string) error
	ForgetUsers(ctx context.Context, deprovisionings []string) error
}

// FactNotes knows which facts may not be published, and the history from which they follow.
type FactNotes interface {
	Unpublished(ctx context.Context, endedSince time.Time, limit int) ([]store.FactRange, error)
	FactsUnpublished(ctx context.Context, ranges []store.FactRange) error
	FactsPublished(ctx context.Context, ranges []store.FactRange) error
	LinesAfter(ctx context.Context, ranges []store.FactRange, limit int) (map[string][]engine.Entry, error)
}

// Tx is a transaction.
type Tx interface {
	Rows
	Intake
	Instances
	Finder
	Candidates
}

// Rows reads, locks and writes operations.
type Rows interface {
	Load(ctx context.Context, ids []string) (map[string]*store.Row, error)
	Lock(ctx context.Context, id string) (*store.Row, error)
	Unfinished(ctx context.Context, instanceID string) ([]*store.Row, error)
	Write(ctx context.Context, changes []*store.Change) (map[string]int, error)
}

// Intake adds operations, and knows what an operator may bring back.
type Intake interface {
	Insert(ctx context.Context, news []*store.Change) error
	Archived(ctx context.Context, ids []string) ([]string, error)
	Newer(ctx context.Context, id, instanceID string) (string, error)
	ReopenMember(ctx context.Context, operationID string, now time.Time) error
}

// Instances locks and saves instances.
type Instances interface {
	LockInstances(ctx context.Context, ids []string) (map[string]*store.Instance, error)
	SaveInstances(ctx context.Context, instances []*store.Instance) error
}

// Finder locks operations whose time has come.
type Finder interface {
	Due(ctx context.Context, now time.Time, limit int) ([]string, error)
	Unanswered(ctx context.Context, now time.Time, limit int) ([]string, error)
	InFlight(ctx context.Context, until time.Time, behind string, limit int) ([]string, error)
}

// Candidates locks operations that may start.
type Candidates interface {
	Pending(ctx context.Context, t event.OperationType, limit int) ([]store.Candidate, error)
	PendingOf(ctx context.Context, instanceIDs []string) ([]store.Candidate, error)
	Admission(ctx context.Context, t event.OperationType) (int, error)
}

// Postgres is the store in Postgres as a Store.
type Postgres struct{ *store.Store }

var _ Store = Postgres{}

// InTx implements Store.
func (p Postgres) InTx(ctx context.Context, f func(tx Tx) error) error {
	return p.Store.InTx(ctx, func(tx *store.Tx) error { return f(tx) })
}

// Delivery is a message that waits for an answer: Ack, Nak or Dead, once.
type Delivery interface {
	Message() (e cloudevents.Event, subject string)
	Ack() error
	Nak(after time.Duration) error
	Dead(ctx context.Context, reason string) error
}

var _ Delivery = (*bus.Delivery)(nil)

// Deliveries are those of the bus as the dispatcher takes them.
func Deliveries(batch []*bus.Delivery) []Delivery {
	deliveries := make([]Delivery, len(batch))
	for i, d := range batch {
		deliveries[i] = d
	}
	return deliveries
}

// Cleaner empties the stage memory of ended stages, soon; an empty stage means the whole operation.
type Cleaner interface {
	Purge(operationID, stage string)
}

// Publisher takes messages and returns when the bus has them.
type Publisher interface {
	Publish(ctx context.Context, msgs ...bus.Message) error
}

// Definitions finds process definitions.
type Definitions interface {
	// Current is the definition for a new operation of a type; nil when there is none.
	Current(t event.OperationType) *process.Process
	// Pinned is the definition with a hash.
	Pinned(ctx context.Context, hash string) (*process.Process, error)
}

// Workers knows which workers live.
type Workers interface {
	// Serves reports whether a live worker serves the step.
	Serves(worker, step string) bool
}

// Memory is the stage memory.
type Memory interface {
	// Purge forgets what the steps of a stage have put there; an empty stage means the whole operation.
	Purge(ctx context.Context, operationID, stage string) error
}
