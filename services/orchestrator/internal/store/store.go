// Package store keeps operations, their history, the instances and the pinned
// process definitions in the schema orchestrator. It contains no decisions;
// these are made by the engine.
//
// A state is written with a compare-and-set on the version of its row. If several
// orchestrators write the same row, one of them succeeds.
package store

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Schema is the schema that this service owns.
const Schema = "orchestrator"

var (
	// ErrNotFound means that the row does not exist.
	ErrNotFound = errors.New("not found")
	// ErrConflict means that the row has changed since it was read. The caller should read it again.
	ErrConflict = errors.New("changed by another")
)

// Migrate runs the migrations of the schema. Several processes may call it concurrently.
func Migrate(ctx context.Context, db *sqlx.DB) error {
	sub, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return fmt.Errorf("open migrations: %w", err)
	}
	return postgres.Migrate(ctx, db, Schema, sub)
}

// Row is an operation as stored.
type Row struct {
	engine.State
	// Version is the version of the row when it was read.
	Version int
	// Definition is the hash of the process definition.
	Definition string
	// Encoded is Operation as JSON, or nil. It never changes, and every command contains it.
	Encoded json.RawMessage
	// EncodedSize is the event.StoredSize of Encoded.
	EncodedSize int
	// TraceParent is the W3C trace context of the request; empty for none.
	TraceParent string
	CreatedAt   time.Time
	// Arrived orders operations by their arrival.
	Arrived int64
	// Archived reports whether the operation is in the archive and can only be read.
	Archived bool
}

// Change is a new state of a row that was read, with its history entries.
type Change struct {
	// Row holds the new state and the version that was read.
	Row     *Row
	History []engine.Entry
	// DetailsChanged reports whether the details differ from those that were read.
	DetailsChanged bool
	// FactsAfter, if set, is the cursor after which facts may not be published, because the change was not caused by a message.
	FactsAfter *int64
	// Release, if set, frees the instance of the operation.
	Release *Release
}

// Release is the update of an instance at the end of an operation.
type Release struct {
	// Gone means that the instance is deprovisioned and its saved data can be deleted.
	Gone bool
	// Removed means that the runtime is deprovisioned, and the saved data are kept only to deprovision it again.
	Removed bool
	// Completed holds the names of the steps of an unfinished deprovisioning that need not run again.
	Completed []string
}

// Instance is the row of an instance. Operations of an instance are serialized by locking it.
type Instance struct {
	ID string
	// Running is the id of the operation in progress; empty if there is none.
	Running string
	// Waiting counts the pending operations.
	Waiting   int
	Details   []byte
	Completed []string
	// UnansweredAt has the meaning of engine.State.UnansweredAt, after the last finished operation.
	UnansweredAt time.Time
	// Removed has the meaning of Release.Removed.
	Removed bool
	// New means that the row does not exist yet.
	New bool
}

// Store reads and writes operations. It has separate pools, so that queries cannot starve commits.
type Store struct {
	commit *sqlx.DB
	read   *sqlx.DB

	write, writeRelease, insert, load, lock, archived *sqlx.Stmt
	lockInstances, createInstances, saveInstances     *sqlx.Stmt

	maxFilterTime time.Duration
	marks         atomic.Pointer[Marks]
	// ranksDue is the time from which SweepStatus reads the ranks, in nanoseconds since 1970; 0 means never.
	ranksDue atomic.Int64
}

// New prepares the frequent statements that find rows by their keys: they are planned once, so their best plan must not depend on how many rows
// there are. commit is the pool for transitions, and read the pool for queries.
func New(ctx context.Context, commit, read *sqlx.DB) (*Store, error) {
	s := &Store{commit: commit, read: read, maxFilterTime: maxFilterTime}
	for _, p := range []struct {
		target **sqlx.Stmt
		query  string
	}{
		{&s.write, writeOnlySQL},
		{&s.writeRelease, writeReleaseSQL},
		{&s.insert, insertSQL},
		{&s.load, loadSQL},
		{&s.lock, lockSQL},
		{&s.archived, archivedSQL},
		{&s.lockInstances, lockInstancesSQL},
		{&s.createInstances, createInstancesSQL},
		{&s.saveInstances, saveInstancesSQL},
	} {
		stmt, err := commit.PreparexContext(ctx, p.query)
		if err != nil {
			return nil, fmt.Errorf("prepare statement: %w", err)
		}
		*p.target = stmt
	}
	return s, nil
}

// Tx is a transaction on the pool for transitions. It is valid only in the function passed to InTx.
type Tx struct {
	s  *Store
	tx *sqlx.Tx
}

// InTx runs f in a transaction.
func (s *Store) InTx(ctx context.Context, f func(tx *Tx) error) error {
	return postgres.InTx(ctx, s.commit, func(tx *sqlx.Tx) error { return f(&Tx{s: s, tx: tx}) })
}

// Ping reports whether the database answers.
func (s *Store) Ping(ctx context.Context) error { return s.read.PingContext(ctx) }

// NewRelease returns the update of the instance for an ended operation.
func NewRelease(s *engine.State, completed func() []string) *Release {
	r := &Release{}
	if s.Operation.Type != event.Deprovision {
		return r
	}
	done, settled := s.Status == event.Succeeded && len(s.NotCompleted) == 0, s.UnsettledUntil().IsZero()
	switch {
	// A suspension keeps the time of the unanswered request, because the next deprovisioning may still be too early.
	case s.Operation.Temporary && !settled:
		r.Removed = done
	case done:
		r.Gone = true
	// A deprovisioning after a suspension repeats its steps, because it also removes the instance.
	case s.Operation.Temporary:
	case settled:
		r.Completed = completed()
	// A deprovisioning after requests that may have taken effect late repeats its steps to remove what these have created.
	default:
		r.Removed = s.Status == event.Succeeded && slices.Equal(s.NotCompleted, []string{event.StepRemoveInstance})
	}
	return r
}
