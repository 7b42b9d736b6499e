package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/testkit"
)

func TestInTx_Error_RollsBack(t *testing.T) {
	t.Parallel()
	db := database(t)
	exec(t, db, `CREATE TABLE t (n int)`)
	insert := func(tx *sqlx.Tx) { exec(t, tx, `INSERT INTO t VALUES (1)`) }

	require.NoError(t, postgres.InTx(t.Context(), db, func(tx *sqlx.Tx) error { insert(tx); return nil }))
	if n := count(t, db, `SELECT count(*) FROM t`); n != 1 {
		t.Errorf("%d rows after a commit, want 1", n)
	}

	broken := errors.New("broken")
	if err := postgres.InTx(t.Context(), db, func(tx *sqlx.Tx) error { insert(tx); return broken }); err != broken { //nolint:errorlint // it must be returned unchanged
		t.Errorf("got %v, want the error as it is", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	err := postgres.InTx(ctx, db, func(tx *sqlx.Tx) error { insert(tx); cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}

	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_ = postgres.InTx(t.Context(), db, func(tx *sqlx.Tx) error { insert(tx); panic("broken") })
	}()
	if n := count(t, db, `SELECT count(*) FROM t`); n != 1 {
		t.Errorf("%d rows after an error, a cancelled context and a panic, want 1", n)
	}
	// The pool reclaims the connection of a cancelled context in the background.
	testkit.Eventually(t, time.Minute, "no connection is in use", func() bool { return db.Stats().InUse == 0 })
}

func TestArray_RoundTrip_IsEqual(t *testing.T) {
	t.Parallel()
	db := database(t)
	var ids []int64
	if err := db.QueryRowContext(t.Context(), `SELECT array_agg(n * 2 ORDER BY n) FROM unnest($1::bigint[]) n`,
		postgres.Array([]int64{1, 2})).Scan(postgres.Array(&ids)); err != nil {
		t.Fatal(err)
	}
	if len(ids) != 2 || ids[0] != 2 || ids[1] != 4 {
		t.Errorf("got %v, want [2 4]", ids)
	}
	var text string
	if err := db.GetContext(t.Context(), &text, `SELECT ($1::jsonb[])[2]->>'a'`,
		postgres.Array([]string{`{"a":"b"}`, `{"a":"c, \"d\""}`})); err != nil {
		t.Fatal(err)
	}
	if text != `c, "d"` {
		t.Errorf("got %s", text)
	}
}
