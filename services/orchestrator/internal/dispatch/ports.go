package dispatch

import (
	"context"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/batch"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/limit"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// Store keeps operations. The methods of its parts and of Tx are documented in package store.
type Store interface {
	// InTx runs f once, in a transaction that is committed if f returns no error.
	InTx(ctx context.Context, f func(tx Tx) error) error
	Operations
	Sweep
	Cleanup
	FactStore
	SignalStore
	Bounded(ctx context.Context, after string, limit int) ([]store.Bounded, error)
}

// Operations reads and writes operations outside of a transaction.
type Operations interface {
	Load(ctx context.Context, ids []string) (map[string]*store.Row, error)
	Write(ctx context.Context, changes []*store.Change) (map[string]int, error)
}

// Sweep finds operations to process.
type Sweep interface {
	SentCommands(ctx context.Context, after string, limit int) ([]store.SentCommand, error)
	AnyInFlight(ctx context.Context, until time.Time) (bool, error)
	AnyPending(ctx context.Context) (bool, error)
	ActiveSince(ctx context.Context, since time.Time, after string, limit int) ([]string, error)
}

// Cleanup removes data that is no longer needed after operations have ended.
type Cleanup interface {
	DropInstances(ctx context.Context, ids []string) error
	ForgetUsers(ctx context.Context, deprovisionings []string) error
}

// FactStore records which facts may not be published, and reads the history from which facts are derived.
type FactStore interface {
	Unpublished(ctx context.Context, endedSince time.Time, limit int) ([]store.FactRange, error)
	FactsUnpublished(ctx context.Context, ranges []store.FactRange) error
	FactsPublished(ctx context.Context, ranges []store.FactRange) error
	EntriesAfter(ctx context.Context, ranges []store.FactRange, limit int) (map[string][]engine.Entry, error)
}

// SignalStore keeps events from outside.
type SignalStore interface {
	AddSignals(ctx context.Context, signals []event.Signal) (int, error)
	SignalledKeys(ctx context.Context, limit int) ([]string, error)
}

// Tx is a transaction.
type Tx interface {
	Rows
	Intake
	Instances
	Finder
	Candidates
	Histories
	Batches
	Waiters
}

// Rows reads, locks and writes operations.
type Rows interface {
	Load(ctx context.Context, ids []string) (map[string]*store.Row, error)
	Lock(ctx context.Context, ids []string) (map[string]*store.Row, error)
	Unfinished(ctx context.Context, instanceID string) ([]*store.Row, error)
	Write(ctx context.Context, changes []*store.Change) (map[string]int, error)
}

// Intake adds operations, and supports the retry of failed ones.
type Intake interface {
	Insert(ctx context.Context, added []*store.Change) error
	Archived(ctx context.Context, ids []string) ([]string, error)
	Newer(ctx context.Context, ids []string) (map[string]string, error)
	ReopenMembers(ctx context.Context, operationIDs []string, now time.Time) error
}

// Instances locks and saves instances.
type Instances interface {
	LockInstances(ctx context.Context, ids []string) (map[string]*store.Instance, error)
	SaveInstances(ctx context.Context, instances []*store.Instance) error
}

// Finder finds and locks due operations.
type Finder interface {
	Due(ctx context.Context, now time.Time, limit int) ([]string, error)
	Unanswered(ctx context.Context, now time.Time, limit int) ([]string, error)
	InFlight(ctx context.Context, until time.Time, after string, limit int) ([]string, error)
	Releasable(ctx context.Context, active []string, limit int) ([]string, error)
	Signalled(ctx context.Context, keys []string) ([]store.Signalled, error)
	SignalsDelivered(ctx context.Context, delivered []store.Signalled, now time.Time) error
}

// Candidates finds and locks operations that may start.
type Candidates interface {
	PendingOf(ctx context.Context, instanceIDs []string) ([]store.Candidate, error)
	LockAdmission(ctx context.Context) error
	PendingQueues(ctx context.Context, w limit.Window, except []string) ([]limit.Waiting, error)
	Running(ctx context.Context) (map[limit.Queue]int, error)
	Take(ctx context.Context, turns []limit.Turn, except []string, limit int) ([]store.Candidate, error)
}

// Histories folds stored histories.
type Histories interface {
	Foldable(ctx context.Context, through map[string]int64, limit int) (found map[string][]engine.Entry, ok bool, err error)
	FoldHistories(ctx context.Context, folds []store.Fold) error
}

// Batches records what batches did.
type Batches interface {
	RecordBatch(ctx context.Context, id string, results []batch.Member, due, now time.Time) error
}

// Waiters finds and orders commands that wait for limits.
type Waiters interface {
	LockLimits(ctx context.Context) error
	LockAll(ctx context.Context, ids []string) ([]string, error)
	InUse(ctx context.Context) (map[string]int, error)
	Rates(ctx context.Context, now time.Time) (map[string]time.Time, error)
	SetRates(ctx context.Context, next map[string]time.Time) error
	Lines
}

// Lines are the queues of commands that wait for limits.
type Lines interface {
	WaitedFor(ctx context.Context) ([]string, error)
	Queued(ctx context.Context, queue string, upgrade bool) (bool, error)
	Head(ctx context.Context, queue string, upgrade bool, after store.Waiter, limit int) ([]store.Waiter, error)
	Arrived(ctx context.Context, queue string, upgrade bool, limit int) ([]store.Waiter, error)
	Turns(ctx context.Context, queue string, upgrade bool, accounts []string) (next map[string]float64, highest float64, err error)
	SetPlaces(ctx context.Context, waiters []store.Waiter) error
	SetTurns(ctx context.Context, queue string, upgrade bool, next map[string]float64) error
	Move(ctx context.Context, from string, w store.Waiter) error
	DropTurns(ctx context.Context, now time.Time) error
}

// Postgres adapts store.Store to the interface Store.
type Postgres struct{ *store.Store }

var _ Store = Postgres{}

// InTx implements Store.
func (p Postgres) InTx(ctx context.Context, f func(tx Tx) error) error {
	return p.Store.InTx(ctx, func(tx *store.Tx) error { return f(tx) })
}

// Delivery is a message to be settled exactly once with Ack, Nak or Dead.
type Delivery interface {
	Message() (e cloudevents.Event, subject string)
	Ack() error
	Nak(after time.Duration) error
	Dead(ctx context.Context, reason string) error
}

var _ Delivery = (*bus.Delivery)(nil)

// Deliveries converts deliveries of the bus to the interface Delivery.
func Deliveries(batch []*bus.Delivery) []Delivery {
	deliveries := make([]Delivery, len(batch))
	for i, d := range batch {
		deliveries[i] = d
	}
	return deliveries
}

// MemoryPurger purges the stage memory of ended stages asynchronously; an empty stage means the whole operation.
type MemoryPurger interface {
	Purge(operationID, stage string)
}

// Publisher publishes messages and returns when the bus has confirmed them. bus.Unpublished decodes its errors.
type Publisher interface {
	Publish(ctx context.Context, msgs ...bus.Message) error
}

// Notifier publishes a notice, which may be lost, outside of any stream.
type Notifier interface {
	Notify(subject string, notice any) error
}

// Definitions finds process definitions.
type Definitions interface {
	// Current returns the definition for a new operation of a type; nil if there is none.
	Current(t event.OperationType) *process.Process
	// Pinned returns the definition with a hash.
	Pinned(ctx context.Context, hash string) (*process.Process, error)
}

// Workers tracks live workers.
type Workers interface {
	// Serves reports whether a live worker serves the step.
	Serves(worker, step string) bool
	// ServesRamped reports whether the live ramped replicas have the version and serve the step.
	ServesRamped(worker, step, version string) bool
}

// Ramps knows which operations go to the ramped version of a worker.
type Ramps interface {
	// Version returns the version of the ramped replicas to which an operation goes; empty for the other replicas.
	Version(op *event.Operation, worker string, startedAt time.Time) string
}

type noRamps struct{}

func (noRamps) Version(*event.Operation, string, time.Time) string { return "" }

// Memory is the stage memory.
type Memory interface {
	// Purge deletes the memory of a stage; an empty stage means the whole operation.
	Purge(ctx context.Context, operationID, stage string) error
}
