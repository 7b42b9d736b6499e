// Package store keeps the broker's instances, operations and sealed credentials
// in the schema "broker" of a Postgres database.
//
// The row of an instance serializes all decisions about it: a transaction locks
// the row or inserts it, and then records the operation, its credentials and its
// publication.
package store

import (
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/services/broker/internal/instance"
)

// Schema is the Postgres schema that the broker owns.
const Schema = "broker"

//go:embed migrations/*.sql
var migrations embed.FS

// Migrate updates the schema. Several processes can call it concurrently.
func Migrate(ctx context.Context, db *sqlx.DB) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return fmt.Errorf("migrate broker schema: %w", err)
	}
	return postgres.Migrate(ctx, db, Schema, files)
}

var (
	// ErrNotFound means that the row does not exist.
	ErrNotFound = errors.New("not found")
	// ErrUnavailable means that the database cannot be reached, or did not answer in time.
	ErrUnavailable = errors.New("database unavailable")
	// ErrRefused means that the database rejects a value; a retry cannot succeed.
	ErrRefused = errors.New("value refused by the database")
)

// Store is safe for concurrent use.
type Store struct {
	db      *sqlx.DB
	timeout time.Duration
	first   atomic.Pointer[firstSeq]
}

// firstSeq is the position of the first unfinished operation, and when it was read.
type firstSeq struct {
	seq    int64
	readAt time.Time
}

// New creates a store. Each call takes at most timeout.
func New(db *sqlx.DB, timeout time.Duration) *Store { return &Store{db: db, timeout: timeout} }

// Ping reports whether the database answers.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return wrap(ctx, "ping database", s.db.PingContext(ctx))
}

// Tx is a transaction.
type Tx struct {
	tx *sqlx.Tx
	// touched are the instances whose row in the list of runtimes may have changed.
	touched map[string]struct{}
}

// touch refreshes the list of runtimes before the transaction commits. Every method that changes an instance, or adds an
// operation that the list shows, calls it.
func (t *Tx) touch(instanceIDs ...string) {
	for _, id := range instanceIDs {
		t.touched[id] = struct{}{}
	}
}

// isDryRun is the condition of an operation that changes nothing in its runtime. The request is kept until the instance is removed.
const isDryRun = `(type LIKE 'upgrade%' AND coalesce(request -> 'operation' -> 'upgrade' ->> 'dryRun', '') = 'true')`

// ignoreDryRuns is the second part of broker.refresh_runtimes, whose locks it needs. A dry run changes no runtime: where one is the newest
// operation that counts, the newest other one decides. That is the last provisioning at the earliest, which has succeeded in these states.
// Index operations_instance.
const ignoreDryRuns = `WITH counted AS (
		SELECT o.instance_id, o.seq, o.type, o.state, ` + isDryRun + ` AS dry
		FROM broker.operations o JOIN broker.runtimes r ON r.instance_id = o.instance_id
		WHERE r.instance_id = ANY ($1) AND r.state IN ('succeeded', 'error', 'updating', 'upgrading') AND o.state NOT IN ('pending', 'cancelled')),
	decisive AS (SELECT DISTINCT ON (instance_id) instance_id, seq, CASE state WHEN 'succeeded' THEN 'succeeded' WHEN 'failed' THEN 'error'
			ELSE CASE type WHEN 'update' THEN 'updating' ELSE 'upgrading' END END AS state
		FROM counted WHERE NOT dry ORDER BY instance_id, seq DESC)
	UPDATE broker.runtimes r SET state = d.state FROM decisive d
	WHERE r.instance_id = d.instance_id AND r.state <> d.state
		AND EXISTS (SELECT FROM counted c WHERE c.instance_id = d.instance_id AND c.dry AND c.seq > d.seq)`

// refresh runs the last statements of a transaction, see broker.refresh_runtimes.
func (t *Tx) refresh(ctx context.Context) error {
	if len(t.touched) == 0 {
		return nil
	}
	ids := postgres.Array(slices.Sorted(maps.Keys(t.touched)))
	for _, statement := range []string{`SELECT broker.refresh_runtimes($1)`, ignoreDryRuns} {
		if _, err := t.tx.ExecContext(ctx, statement, ids); err != nil {
			return fmt.Errorf("refresh list of runtimes: %w", err)
		}
	}
	return nil
}

// retries is the number of retries of a transaction that failed due to a conflict.
const retries = 5

// InTx runs f in a transaction and commits it if f returns nil. f may run several times. InTx wraps an error of f; sql.ErrNoRows
// becomes ErrNotFound. It returns ErrUnavailable for an unavailable database; the transaction may have been committed nevertheless.
func (s *Store) InTx(ctx context.Context, f func(ctx context.Context, tx *Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var err error
	for range retries {
		err = postgres.InTx(ctx, s.db, func(tx *sqlx.Tx) error {
			t := &Tx{tx: tx, touched: make(map[string]struct{})}
			if err := f(ctx, t); err != nil {
				return err
			}
			return t.refresh(ctx)
		})
		if !postgres.IsRetryable(err) {
			break
		}
	}
	return wrap(ctx, "transaction", err)
}

// wrap distinguishes an unavailable database from other errors.
func wrap(ctx context.Context, operation string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrNoRows):
		return ErrNotFound
	case postgres.IsRefused(err):
		return fmt.Errorf("%s: %w: %w", operation, ErrRefused, err)
	// A statement that was cancelled by ctx may return an error of the server.
	case postgres.IsConnection(err), errors.Is(err, context.DeadlineExceeded), ctx.Err() != nil:
		return fmt.Errorf("%s: %w: %w", operation, ErrUnavailable, err)
	}
	return fmt.Errorf("%s: %w", operation, err)
}

type instanceRow struct {
	ID           string       `db:"id"`
	ServiceID    string       `db:"service_id"`
	PlanID       string       `db:"plan_id"`
	PlanName     string       `db:"plan_name"`
	Context      string       `db:"context"`
	Runtime      string       `db:"runtime"`
	Parameters   string       `db:"parameters"`
	Effective    string       `db:"effective_parameters"`
	DashboardURL string       `db:"dashboard_url"`
	RequestHash  string       `db:"request_hash"`
	OperationID  string       `db:"operation_id"`
	CreatedAt    time.Time    `db:"created_at"`
	DeletedAt    sql.NullTime `db:"deleted_at"`
	ExpiredAt    sql.NullTime `db:"expired_at"`
	Maintenance  string       `db:"maintenance_version"`
}

func (r *instanceRow) instance() (*instance.Instance, error) {
	i := &instance.Instance{
		ID: r.ID, ServiceID: r.ServiceID, Plan: event.Plan{ID: r.PlanID, Name: r.PlanName},
		Sent: json.RawMessage(r.Parameters), Effective: json.RawMessage(r.Effective), DashboardURL: r.DashboardURL,
		RequestHash: r.RequestHash, OperationID: r.OperationID, CreatedAt: r.CreatedAt, DeletedAt: r.DeletedAt.Time,
		ExpiredAt: r.ExpiredAt.Time, MaintenanceVersion: r.Maintenance,
	}
	if err := errors.Join(
		json.Unmarshal([]byte(r.Context), &i.Context), json.Unmarshal([]byte(r.Runtime), &i.Runtime),
	); err != nil {
		return nil, fmt.Errorf("read instance: %w", err)
	}
	return i, nil
}

const instanceColumns = `id, service_id, plan_id, plan_name, context, runtime, parameters, effective_parameters,
	dashboard_url, request_hash, operation_id, created_at, deleted_at, expired_at, maintenance_version`

type operationRow struct {
	ID           string         `db:"id"`
	InstanceID   string         `db:"instance_id"`
	Type         string         `db:"type"`
	State        string         `db:"state"`
	Cursor       int64          `db:"cursor"`
	Stage        string         `db:"stage"`
	Step         string         `db:"step"`
	StageAttempt int            `db:"stage_attempt"`
	StepAttempt  int            `db:"step_attempt"`
	Message      string         `db:"message"`
	Error        sql.NullString `db:"error"`
	NotCompleted []byte         `db:"not_completed"`
	SupersededBy string         `db:"superseded_by"`
	Suspension   bool           `db:"suspension"`
	CreatedAt    time.Time      `db:"created_at"`
	Published    bool           `db:"published"`
	Stages       string         `db:"stages"`
}

const operationColumns = `id, instance_id, type, state, cursor, stage, step, stage_attempt, step_attempt, message, error,
	array_to_json(not_completed)::text AS not_completed, superseded_by, suspension, created_at,
	published_at IS NOT NULL AS published,
	coalesce((SELECT s.stages FROM broker.stage_orders s WHERE s.id = stage_order), '') AS stages`

func (r *operationRow) operation() (*instance.Operation, error) {
	o := &instance.Operation{
		ID: r.ID, InstanceID: r.InstanceID, Type: event.OperationType(r.Type), SupersededBy: r.SupersededBy,
		Suspension: r.Suspension, CreatedAt: r.CreatedAt, Published: r.Published,
		Progress: instance.Progress{
			State: event.OperationState(r.State), Cursor: r.Cursor, Message: r.Message,
			Position: event.Position{Stage: r.Stage, Step: r.Step, StageAttempt: r.StageAttempt, StepAttempt: r.StepAttempt},
		},
	}
	if r.Stages != "" {
		o.Stages = strings.Split(r.Stages, ",")
	}
	if err := json.Unmarshal(r.NotCompleted, &o.NotCompleted); err != nil {
		return nil, fmt.Errorf("read operation: %w", err)
	}
	if r.Error.Valid {
		if err := json.Unmarshal([]byte(r.Error.String), &o.Error); err != nil {
			return nil, fmt.Errorf("read operation: %w", err)
		}
	}
	return o, nil
}

func getInstance(ctx context.Context, q sqlx.QueryerContext, id, lock string) (*instance.Instance, error) {
	var row instanceRow
	// Primary key.
	err := sqlx.GetContext(ctx, q, &row, `SELECT `+instanceColumns+` FROM broker.instances WHERE id = $1 `+lock, id)
	if err != nil {
		return nil, wrap(ctx, "read instance", err)
	}
	return row.instance()
}

func getOperation(ctx context.Context, q sqlx.QueryerContext, where string, args ...any) (*instance.Operation, error) {
	var row operationRow
	err := sqlx.GetContext(ctx, q, &row, `SELECT `+operationColumns+` FROM broker.operations `+where, args...)
	if err != nil {
		return nil, wrap(ctx, "read operation", err)
	}
	return row.operation()
}

const (
	// Primary key.
	operationByID = `WHERE id = $1`
	// Index operations_instance. Platforms neither request nor see upgrades.
	newestOperation = `WHERE instance_id = $1 AND type NOT IN ('upgradeKyma', 'upgradeCluster') ORDER BY seq DESC LIMIT 1`
)
