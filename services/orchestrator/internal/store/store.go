// Package store keeps operations, their history, the instances and the pinned
// process definitions in the schema orchestrator. It knows what is written
// together; what is decided is the engine's.
//
// A state is written with a compare-and-set on the row's version, so that any
// number of orchestrators may try and one of them counts.
package store

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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
	// ErrNotFound says that there is no such row.
	ErrNotFound = errors.New("not found")
	// ErrConflict says that the row has changed since it was read. Read it again.
	ErrConflict = errors.New("changed by another")
)

// Migrate brings the schema up to date. Several processes may call it at once.
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
	// Version is that of the row when it was read.
	Version int
	// Definition is the hash of the process definition.
	Definition string
	// Encoded is Operation as JSON, or nil: it never changes, and every command carries it.
	Encoded json.RawMessage
	// EncodedSize is the event.StoredSize of Encoded.
	EncodedSize int
	// TraceParent is the W3C trace context of the request; empty for none.
	TraceParent string
	CreatedAt   time.Time
	// Arrived orders operations by their arrival.
	Arrived int64
	// Archived tells that the operation ended long ago and can only be read.
	Archived bool
}

// Change is a new state of a row that was read, with what is recorded with it.
type Change struct {
	// Row holds the new state and the version that was read.
	Row     *Row
	History []engine.Entry
	// DetailsChanged tells that the details differ from those that were read.
	DetailsChanged bool
	// FactsAfter, if set, is the cursor behind which facts may not be published after this change: no message guards them.
	FactsAfter *int64
	// Release frees the instance, which the operation was in progress on.
	Release *Release
}

// Release is what an ended operation leaves to its instance.
type Release struct {
	// Gone tells that nothing is left behind the instance, and its saved data can go.
	Gone bool
	// Completed names the steps of an unfinished deprovisioning that need not run again.
	Completed []string
}

// Instance is the serialization point of an instance.
type Instance struct {
	ID string
	// Running is the id of the operation in progress; empty when there is none.
	Running string
	// Waiting counts the pending operations.
	Waiting   int
	Details   []byte
	Completed []string
	// New tells that there is no row for it yet.
	New bool
}

// Store reads and writes. Its pools are separate so that readers cannot starve the commits.
type Store struct {
	commit *sqlx.DB
	read   *sqlx.DB

	write, writeRelease, insert, load, archived   *sqlx.Stmt
	lockInstances, createInstances, saveInstances *sqlx.Stmt
}

// New prepares the statements of the hot path. commit is for transitions, read for questions.
func New(ctx context.Context, commit, read *sqlx.DB) (*Store, error) {
	s := &Store{commit: commit, read: read}
	for _, p := range []struct {
		target **sqlx.Stmt
		query  string
	}{
		{&s.write, writeOnlySQL},
		{&s.writeRelease, writeReleaseSQL},
		{&s.insert, insertSQL},
		{&s.load, loadSQL},
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

// Tx is a transaction on the pool for transitions. It ends with the function that it was given to.
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

// NewRelease says what an ended operation leaves to its instance.
func NewRelease(s *engine.State, completed func() []string) *Release {
	r := &Release{}
	if s.Operation.Type != event.Deprovision {
		return r
	}
	if s.Status == event.Succeeded && len(s.NotCompleted) == 0 {
		r.Gone = true
		return r
	}
	// What a suspension has completed says nothing to the deprovisioning after it, which also removes the instance.
	if !s.Operation.Temporary {
		r.Completed = completed()
	}
	return r
}
