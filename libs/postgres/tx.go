package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
)

// InTx runs f in a transaction and commits it if f returns nil. An error or a panic of f rolls it back, and InTx returns the error
// unchanged. It wraps an error of the commit: after a lost connection, the result of the commit is unknown
// (IsConnection).
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
		// If the context has ended, the transaction is already rolled back.
		if rollback := tx.Rollback(); rollback != nil && err != nil && !errors.Is(rollback, sql.ErrTxDone) {
			err = errors.Join(err, fmt.Errorf("roll back: %w", rollback))
		}
	}()
	if err := f(tx); err != nil {
		return err
	}
	committed = true
	if err := tx.Commit(); err != nil {
		if errors.Is(err, sql.ErrTxDone) && ctx.Err() != nil {
			err = ctx.Err() // the end of the context has rolled the transaction back
		}
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// Array converts a slice to a statement's parameter for a PostgreSQL array, and a pointer to a slice to the target of a scan. JSON
// must be passed as strings: with binary parameters a []byte is sent as bytea.
func Array(v any) any { return pq.Array(v) }
