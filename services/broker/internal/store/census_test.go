package store

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/services/broker/internal/instance"
)

// Ended operations must not slow down a census: there are very many of them.
func TestCensus_EndedOperations_AreNotRead(t *testing.T) {
	t.Parallel()
	s := open(t)
	record(t, s, sample("i"), did{kind: event.Provision, state: event.InProgress})
	exec(t, s, `INSERT INTO broker.operations (id, instance_id, type, state, created_at, updated_at, heard_at)
		SELECT 'o-' || n, 'i', 'update', CASE WHEN n % 20 = 0 THEN 'pending' ELSE 'succeeded' END, now(), now(), now() FROM generate_series(1, 20000) AS n`)
	exec(t, s, `INSERT INTO broker.operations (id, instance_id, type, state, created_at, updated_at, heard_at) VALUES ('gone', 'gone', 'deprovision', 'in progress', now(), now(), now())`)
	exec(t, s, `ANALYZE broker.operations`)
	c, err := s.Census(t.Context(), time.Now())
	require.NoError(t, err)
	got := map[Count]bool{}
	for _, o := range c.Operations {
		got[o] = true
	}
	want := map[Count]bool{
		{Type: "provision", State: "in progress", Plan: "aws", Count: 1}: true,
		{Type: "update", State: "pending", Plan: "aws", Count: 1000}:     true,
		{Type: "deprovision", State: "in progress", Count: 1}:            true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("operations (-want +got):\n%s", diff)
	}
	var lines []string
	err = s.count(t.Context(), func(tx *sqlx.Tx) error {
		if _, err := tx.ExecContext(t.Context(), onlyIndexes); err != nil {
			return err
		}
		return tx.Select(&lines, `EXPLAIN `+unfinishedSQL)
	})
	plan := strings.Join(lines, "\n")
	if err != nil || !strings.Contains(plan, "operations_unfinished") || strings.Contains(plan, "Seq Scan") {
		t.Errorf("the plan, %v:\n%s", err, plan)
	}
}

// The newest successful operations of each kind count, however many there are.
func TestUsual_ManyOperations_ReadsTheNewest(t *testing.T) {
	t.Parallel()
	s := open(t)
	record(t, s, sample("i"), did{kind: event.Deprovision, state: event.InProgress})
	exec(t, s, `INSERT INTO broker.operations (id, instance_id, type, state, created_at, updated_at, heard_at)
		SELECT 'o-' || n, 'i', 'update', CASE WHEN n % 10 = 0 THEN 'failed' ELSE 'succeeded' END,
			now() - CASE WHEN n > 19000 THEN interval '10 minutes' ELSE interval '1 hour' END, now(), now()
		FROM generate_series(1, 20000) AS n`)
	exec(t, s, `ANALYZE broker.operations`)
	got, err := s.Usual(t.Context())
	require.NoError(t, err)
	if diff := cmp.Diff(map[instance.Kind]time.Duration{{Type: event.Update, Plan: "aws"}: 10 * time.Minute}, got); diff != "" {
		t.Errorf("usual durations (-want +got):\n%s", diff)
	}
	var lines []string
	err = s.count(t.Context(), func(tx *sqlx.Tx) error {
		return tx.Select(&lines, `EXPLAIN `+usualSQL, postgres.Array([]string{"update", "provision"}), usualOf, usualLeast)
	})
	if plan := strings.Join(lines, "\n"); err != nil || !strings.Contains(plan, "operations_succeeded") {
		t.Errorf("the plan, %v:\n%s", err, plan)
	}
}

// While a transaction is held, the partial indexes have an entry for each former version of ended operations.
func TestStatementsByID_ManyEndedOperations_UseNoPartialIndex(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.db.SetMaxOpenConns(1) // the statistics are those of one session
	record(t, s, sample("i"), did{kind: event.Provision, state: event.InProgress})
	exec(t, s, `INSERT INTO broker.operations (id, instance_id, type, state, created_at, updated_at, heard_at, published_at)
		SELECT 'o-' || n, 'i', 'update', 'succeeded', now(), now(), now(), now() FROM generate_series(1, 5000) AS n`)
	exec(t, s, `ANALYZE broker.operations`)
	scans := func() (n int) {
		exec(t, s, `SELECT pg_stat_force_next_flush()`)
		require.NoError(t, s.db.Get(&n, `SELECT sum(idx_scan) FROM pg_stat_user_indexes
			WHERE schemaname = 'broker' AND indexrelname IN ('operations_unfinished', 'operations_unpublished')`))
		return n
	}
	for what, call := range map[string]func() error{
		"credentials": func() error { _, err := s.Credentials(t.Context(), "i", "i-1", "avs"); return ignored(err) },
		"neighbours":  func() error { _, err := s.Neighbours(t.Context(), "i", "i-1"); return ignored(err) },
		"keep":        func() error { return s.Keep(t.Context(), "i-1", Secret{InstanceID: "i", Name: "avs", Sealed: "x"}) },
		"kept":        func() error { _, err := s.Kept(t.Context(), "i", "i-1", "avs"); return err },
		"unpublished": func() error { _, err := s.UnpublishedOf(t.Context(), []string{"i"}); return err },
		"published":   func() error { return s.Published(t.Context(), []string{"i-1"}, time.Now()) },
	} {
		before := scans()
		require.NoError(t, call(), what)
		if after := scans(); after != before {
			t.Errorf("%s scans a partial index", what)
		}
	}
}

// ignored returns an error unless it says that nothing was found.
func ignored(err error) error {
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}
