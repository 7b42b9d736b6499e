package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
)

// InTx runs f in a transaction and commits it when f returns nil. An error or a panic of f rolls it back; the error is
// returned as it is, so that the caller can decide on it. An error of the commit is wrapped: with a lost connection it
// is not known whether the commit happened (IsConnection).
func InTx(ctx context.Context, db *sqlx.DB, f func(*sqlx.Tx) error) (err error) {
	tx, err := db.BeginTxx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin transaction: %w", err)
	}
	committed := false
	defer func() {
		if committed {
			return
		}
		// A context that has ended has rolled back already.
		if rollback := tx.Rollback(); rollback != nil && err != nil && !errors.Is(rollback, sql.ErrTxDone) {
			err = errors.Join(err, fmt.Errorf("roll back: %w", rollback))
		}
	}()
	if err := f(tx); err != nil {
		return err
	}
	committed = true
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// Array makes a slice usable as a statement's parameter for a PostgreSQL array, and a pointer to a slice usable as the
// target of a scan. JSON goes as a string: with binary parameters a []byte is sent as bytea.
func Array(v any) any { return pq.Array(v) }
