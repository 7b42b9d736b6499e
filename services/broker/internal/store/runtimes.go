package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/services/broker/internal/instance"
)

// RuntimeState is the state of a runtime for operators (docs/contracts/broker.md#list-of-runtimes), see broker.runtime_state
// and ignoreDryRuns.
type RuntimeState string

// The states of a runtime.
const (
	RuntimeProvisioning   RuntimeState = "provisioning"
	RuntimeSucceeded      RuntimeState = "succeeded"
	RuntimeUpdating       RuntimeState = "updating"
	RuntimeUpgrading      RuntimeState = "upgrading"
	RuntimeFailed         RuntimeState = "failed"
	RuntimeError          RuntimeState = "error"
	RuntimeDeprovisioning RuntimeState = "deprovisioning"
	RuntimeSuspended      RuntimeState = "suspended"
	// RuntimeIncomplete is a deprovisioned runtime with steps that were not completed.
	RuntimeIncomplete    RuntimeState = "deprovisionincomplete"
	RuntimeDeprovisioned RuntimeState = "deprovisioned"
)

// RuntimeFilter selects runtimes. A runtime must match one value of each list that is not empty.
type RuntimeFilter struct {
	Accounts, Subaccounts, InstanceIDs, RuntimeIDs, Regions, Shoots, Plans []string
	// States are the included states, Without the excluded ones.
	States, Without []RuntimeState
	// Expired selects expired instances.
	Expired bool
	// Limit is the page size, at least 1, and Offset the number of runtimes before the page.
	Limit, Offset int
	// After, if it is not zero, is the position of the last runtime of the page before, and replaces Offset: the page does not depend on runtimes
	// that have left the list.
	After RuntimePosition
	// LastOperation limits Operations to the newest one that is neither pending nor cancelled.
	LastOperation bool
}

// RuntimePosition is the place of a runtime in the list: its creation time, and its instance id if several have the same time.
type RuntimePosition struct {
	CreatedAt  time.Time
	InstanceID string
}

// Runtime is the operators' view of a runtime.
type Runtime struct {
	InstanceID string
	// RuntimeID is empty if there is no runtime, or its provisioning has not ended.
	RuntimeID string
	State     RuntimeState
	ServiceID string
	Plan      event.Plan
	// SubscriptionAccountID is event.Context.Subscription.
	GlobalAccountID, SubscriptionAccountID, SubaccountID string
	PlatformRegion, Region, Provider, ShootName          string
	CreatedAt                                            time.Time
	// ExpiredAt and DeletedAt are zero if the instance is neither expired nor deleted.
	ExpiredAt, DeletedAt time.Time
	// UserID, Runtime, Effective and Details are empty for a removed instance.
	UserID             string
	Runtime            event.Runtime
	Effective, Details json.RawMessage
	// Operations are sorted by kind; within a kind the newest is first.
	Operations []RuntimeOperation
}

// OperationKind distinguishes operations of the same type.
type OperationKind string

// The kinds of operations. Other kinds have the name of their type.
const (
	KindSuspension   OperationKind = "suspension"
	KindUnsuspension OperationKind = "unsuspension"
)

// RuntimeOperation is the operators' view of an operation.
type RuntimeOperation struct {
	instance.Operation
	Kind OperationKind
	// Total is the number of operations of this kind.
	Total           int
	UpdatedAt       time.Time
	OrchestrationID string
	// RuntimeVersion is the Kyma version that the operation installs or keeps; empty if unknown.
	RuntimeVersion string
	// DryRun reports whether the operation changes nothing in the runtime; false once the instance is removed.
	DryRun bool
}

// where returns the condition of a filter and its arguments.
func (f *RuntimeFilter) where() (string, []any) {
	var (
		conditions []string
		args       []any
	)
	in := func(column string, values []string) {
		switch len(values) {
		case 0:
			return
		case 1:
			// With an equality condition, an index with the list's order avoids sorting.
			args = append(args, values[0])
			conditions = append(conditions, column+" = $"+strconv.Itoa(len(args)))
		default:
			args = append(args, postgres.Array(values))
			conditions = append(conditions, column+" = ANY ($"+strconv.Itoa(len(args))+")")
		}
	}
	in("r.global_account_id", f.Accounts)
	in("r.subaccount_id", f.Subaccounts)
	in("r.instance_id", f.InstanceIDs)
	in("r.runtime_id", f.RuntimeIDs)
	if len(f.RuntimeIDs) > 0 {
		conditions = append(conditions, "r.runtime_id <> ''") // the predicate of index runtimes_runtime
	}
	in("r.region", f.Regions)
	in("r.shoot_name", f.Shoots)
	in("r.plan_name", f.Plans)
	in("r.state", texts(f.States))
	if len(f.Without) > 0 {
		args = append(args, postgres.Array(texts(f.Without)))
		conditions = append(conditions, "r.state <> ALL ($"+strconv.Itoa(len(args))+")")
	}
	if f.Expired {
		conditions = append(conditions, "r.expired_at IS NOT NULL")
	}
	if len(conditions) == 0 {
		return "", args
	}
	return " WHERE " + strings.Join(conditions, " AND "), args
}

func texts(states []RuntimeState) []string {
	out := make([]string, len(states))
	for i, s := range states {
		out[i] = string(s)
	}
	return out
}

// count returns the statement that counts the runtimes of a filter. Indexes runtimes_*; without a filter only runtimes_created.
func (f *RuntimeFilter) count() (string, []any) {
	where, args := f.where()
	return `SELECT count(*) FROM broker.runtimes r` + where, args
}

// page returns the statement of a page. total is the number of all matches: a page in the second half is read from the end.
func (f *RuntimeFilter) page(total int) (string, []any) {
	where, args := f.where()
	if f.After != (RuntimePosition{}) {
		return f.pageAfter(where, args)
	}
	order, limit, offset := `r.created_at, r.instance_id`, min(f.Limit, total-f.Offset), f.Offset
	if offset > total/2 {
		order, offset = `r.created_at DESC, r.instance_id DESC`, total-offset-limit
	}
	args = append(args, limit, offset)
	return `SELECT r.instance_id FROM broker.runtimes r` + where + ` ORDER BY ` + order + ` LIMIT $` +
		strconv.Itoa(len(args)-1) + ` OFFSET $` + strconv.Itoa(len(args)), args
}

// pageAfter returns the statement of the page after a position. Indexes runtimes_*, as for count.
func (f *RuntimeFilter) pageAfter(where string, args []any) (string, []any) {
	if where == "" {
		where = " WHERE true"
	}
	args = append(args, f.After.CreatedAt, f.After.InstanceID, f.Limit)
	n := len(args)
	return fmt.Sprintf(`SELECT r.instance_id FROM broker.runtimes r%s AND (r.created_at, r.instance_id) > ($%d, $%d)
		ORDER BY r.created_at, r.instance_id LIMIT $%d`, where, n-2, n-1, n), args
}

// Runtimes returns a page of the matching runtimes, the oldest first, and the number of all matches.
func (s *Store) Runtimes(ctx context.Context, f RuntimeFilter) ([]Runtime, int, error) {
	var (
		out   []Runtime
		total int
	)
	err := s.snapshot(ctx, "list runtimes", func(ctx context.Context, tx *sqlx.Tx) error {
		statement, args := f.count()
		if err := tx.GetContext(ctx, &total, statement, args...); err != nil {
			return err
		}
		if f.Offset >= total {
			return nil
		}
		var ids []string
		statement, args = f.page(total)
		if err := tx.SelectContext(ctx, &ids, statement, args...); err != nil {
			return err
		}
		var err error
		out, err = runtimes(ctx, tx, ids, f.LastOperation)
		return err
	})
	return out, total, err
}

// RuntimesAfter lists at most limit runtimes of instances that are not removed, the oldest first, after a position. It reads all runtimes in
// pages without counting them.
func (s *Store) RuntimesAfter(ctx context.Context, after RuntimePosition, limit int) ([]Runtime, error) {
	var out []Runtime
	err := s.snapshot(ctx, "list runtimes", func(ctx context.Context, tx *sqlx.Tx) error {
		var ids []string
		f := RuntimeFilter{Without: []RuntimeState{RuntimeDeprovisioned}, Limit: limit, After: after}
		// Index runtimes_created.
		statement, args := f.pageAfter(f.where())
		err := tx.SelectContext(ctx, &ids, statement, args...)
		if err != nil {
			return err
		}
		out, err = runtimes(ctx, tx, ids, false)
		return err
	})
	return out, err
}

// snapshot runs f in a transaction in which every statement sees the same data.
func (s *Store) snapshot(ctx context.Context, operation string, f func(ctx context.Context, tx *sqlx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	tx, err := s.db.BeginTxx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return wrap(ctx, operation, err)
	}
	// The transaction only reads, so there is nothing to commit.
	defer func() { _ = tx.Rollback() }()
	return wrap(ctx, operation, f(ctx, tx))
}

type runtimeRow struct {
	InstanceID     string         `db:"instance_id"`
	RuntimeID      string         `db:"runtime_id"`
	State          string         `db:"state"`
	ServiceID      string         `db:"service_id"`
	PlanID         string         `db:"plan_id"`
	PlanName       string         `db:"plan_name"`
	Account        string         `db:"global_account_id"`
	Subscription   string         `db:"subscription_account_id"`
	Subaccount     string         `db:"subaccount_id"`
	PlatformRegion string         `db:"platform_region"`
	Region         string         `db:"region"`
	Provider       string         `db:"provider"`
	ShootName      string         `db:"shoot_name"`
	ExpiredAt      sql.NullTime   `db:"expired_at"`
	CreatedAt      time.Time      `db:"created_at"`
	DeletedAt      sql.NullTime   `db:"deleted_at"`
	Context        sql.NullString `db:"context"`
	Runtime        sql.NullString `db:"runtime"`
	Effective      sql.NullString `db:"effective_parameters"`
	Details        sql.NullString `db:"details"`
}

func (r *runtimeRow) view() (Runtime, error) {
	out := Runtime{
		InstanceID: r.InstanceID, RuntimeID: r.RuntimeID, State: RuntimeState(r.State), ServiceID: r.ServiceID,
		Plan: event.Plan{ID: r.PlanID, Name: r.PlanName}, GlobalAccountID: r.Account,
		SubscriptionAccountID: r.Subscription, SubaccountID: r.Subaccount, PlatformRegion: r.PlatformRegion,
		Region: r.Region, Provider: r.Provider, ShootName: r.ShootName, CreatedAt: r.CreatedAt, ExpiredAt: r.ExpiredAt.Time,
		DeletedAt: r.DeletedAt.Time,
	}
	if !r.Context.Valid {
		return out, nil
	}
	out.Effective = json.RawMessage(r.Effective.String)
	if r.Details.Valid {
		out.Details = json.RawMessage(r.Details.String)
	}
	var c event.Context
	if err := errors.Join(
		json.Unmarshal([]byte(r.Context.String), &c), json.Unmarshal([]byte(r.Runtime.String), &out.Runtime),
	); err != nil {
		return out, fmt.Errorf("instance %s: %w", r.InstanceID, err)
	}
	out.UserID = c.UserID
	return out, nil
}

// Primary keys.
const runtimeRows = `SELECT r.instance_id, r.runtime_id, r.state, r.service_id, r.plan_id, r.plan_name,
		r.global_account_id, r.subscription_account_id, r.subaccount_id, r.platform_region, r.region, r.provider,
		r.shoot_name, r.expired_at, r.created_at, coalesce(i.deleted_at, t.deleted_at) AS deleted_at, i.context, i.runtime,
		i.effective_parameters, i.details
	FROM broker.runtimes r LEFT JOIN broker.instances i ON i.id = r.instance_id
	LEFT JOIN broker.tombstones t ON t.instance_id = r.instance_id
	WHERE r.instance_id = ANY ($1) ORDER BY r.created_at, r.instance_id`

// runtimes returns runtimes with their operations, in the order of ids.
func runtimes(ctx context.Context, tx *sqlx.Tx, ids []string, last bool) ([]Runtime, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var rows []runtimeRow
	err := tx.SelectContext(ctx, &rows, runtimeRows, postgres.Array(ids))
	if err != nil {
		return nil, err
	}
	out := make([]Runtime, len(rows))
	at := make(map[string]*Runtime, len(rows))
	for i := range rows {
		if out[i], err = rows[i].view(); err != nil {
			return nil, err
		}
		at[rows[i].InstanceID] = &out[i]
	}
	operations, err := runtimeOperations(ctx, tx, ids, last)
	if err != nil {
		return nil, err
	}
	for _, o := range operations {
		r := at[o.InstanceID]
		r.Operations = append(r.Operations, o)
	}
	return out, nil
}

type runtimeOperationRow struct {
	operationRow
	Kind            string    `db:"kind"`
	Total           int       `db:"total"`
	UpdatedAt       time.Time `db:"updated_at"`
	OrchestrationID string    `db:"orchestration_id"`
	RuntimeVersion  string    `db:"runtime_version"`
	DryRun          bool      `db:"dry_run"`
}

const (
	// runtimeOperationKind maps an operation to its kind.
	runtimeOperationKind = `CASE WHEN NOT suspension THEN type WHEN type = 'provision' THEN 'unsuspension' ELSE 'suspension' END`
	// Only the newest two updates and upgrades are shown (docs/contracts/broker.md#list-of-runtimes). If an id was used before,
	// only the newest provisioning and deprovisioning are shown. Index operations_instance.
	allOperations = `SELECT ` + operationColumns + `, kind, total, updated_at, orchestration_id, runtime_version, ` + isDryRun + ` AS dry_run FROM (
			SELECT *, row_number() OVER newest AS rank, count(*) OVER (PARTITION BY instance_id, kind) AS total
			FROM (SELECT *, ` + runtimeOperationKind + ` AS kind FROM broker.operations WHERE instance_id = ANY ($1)) AS o
			WINDOW newest AS (PARTITION BY instance_id, kind ORDER BY seq DESC)) AS ranked
		WHERE rank <= CASE WHEN kind IN ('provision', 'deprovision') THEN 1
			WHEN kind IN ('suspension', 'unsuspension') THEN 100 ELSE 2 END
		ORDER BY instance_id, kind, seq DESC`
	// Index operations_instance.
	lastOperations = `SELECT DISTINCT ON (instance_id) ` + operationColumns + `, ` + runtimeOperationKind + ` AS kind, 1 AS total,
			updated_at, orchestration_id, runtime_version, ` + isDryRun + ` AS dry_run
		FROM broker.operations WHERE instance_id = ANY ($1)
		ORDER BY instance_id, state IN ('pending', 'cancelled'), seq DESC`
)

func runtimeOperations(ctx context.Context, tx *sqlx.Tx, ids []string, last bool) ([]RuntimeOperation, error) {
	statement := allOperations
	if last {
		statement = lastOperations
	}
	var rows []runtimeOperationRow
	if err := tx.SelectContext(ctx, &rows, statement, postgres.Array(ids)); err != nil {
		return nil, err
	}
	out := make([]RuntimeOperation, len(rows))
	for i := range rows {
		o, err := rows[i].operation()
		if err != nil {
			return nil, err
		}
		out[i] = RuntimeOperation{
			Operation: *o, Kind: OperationKind(rows[i].Kind), Total: rows[i].Total, UpdatedAt: rows[i].UpdatedAt,
			OrchestrationID: rows[i].OrchestrationID, RuntimeVersion: rows[i].RuntimeVersion, DryRun: rows[i].DryRun,
		}
	}
	return out, nil
}

// Summary is an existing instance with the id, the state and the saved data of its runtime.
type Summary struct {
	Instance  instance.Instance
	RuntimeID string
	State     RuntimeState
	// Details may be empty.
	Details json.RawMessage
}

// Summaries lists at most limit instances in the order of their ids, starting after one. ids limits it to those instances.
func (s *Store) Summaries(ctx context.Context, ids []string, after string, limit int) ([]Summary, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var rows []struct {
		instanceRow
		RuntimeID string         `db:"runtime_id"`
		State     string         `db:"state"`
		Details   sql.NullString `db:"details"`
	}
	statement := `SELECT ` + qualified(instanceColumns) + `, i.runtime_id, r.state, i.details
		FROM broker.instances i JOIN broker.runtimes r ON r.instance_id = i.id WHERE i.id > $1`
	args := []any{storable(after), limit}
	if len(ids) > 0 {
		statement += ` AND i.id = ANY ($3)`
		args = append(args, postgres.Array(ids))
	}
	// Primary keys.
	if err := s.db.SelectContext(ctx, &rows, statement+` ORDER BY i.id LIMIT $2`, args...); err != nil {
		return nil, wrap(ctx, "list instances", err)
	}
	out := make([]Summary, len(rows))
	for n := range rows {
		i, err := rows[n].instance()
		if err != nil {
			return nil, err
		}
		out[n] = Summary{
			Instance: *i, RuntimeID: rows[n].RuntimeID, State: RuntimeState(rows[n].State), Details: json.RawMessage(rows[n].Details.String),
		}
	}
	return out, nil
}

// qualified prefixes columns with the alias of an instance.
func qualified(columns string) string {
	names := strings.Split(columns, ",")
	for i, name := range names {
		names[i] = "i." + strings.TrimSpace(name)
	}
	return strings.Join(names, ", ")
}
