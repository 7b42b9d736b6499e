package store

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jmoiron/sqlx"
)

// query calls f for each row.
func query(ctx context.Context, q sqlx.QueryerContext, statement string, args []any, f func(rows *sql.Rows) error) error {
	rows, err := q.QueryContext(ctx, statement, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// collect returns the rows as scan reads them; what is the prefix of errors.
func collect[T any](
	ctx context.Context, q sqlx.QueryerContext, what, statement string, args []any, scan func(rows *sql.Rows, row *T) error,
) (found []T, err error) {
	err = query(ctx, q, statement, args, func(rows *sql.Rows) error {
		var row T
		if err := scan(rows, &row); err != nil {
			return err
		}
		found = append(found, row)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return found, nil
}

// pairs returns rows of a key and a value; what is the prefix of errors.
func pairs[K comparable, V any](ctx context.Context, q sqlx.QueryerContext, what, statement string, args ...any) (map[K]V, error) {
	found := map[K]V{}
	err := query(ctx, q, statement, args, func(rows *sql.Rows) error {
		var key K
		var value V
		if err := rows.Scan(&key, &value); err != nil {
			return err
		}
		found[key] = value
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return found, nil
}
