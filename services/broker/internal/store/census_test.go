package store

import (
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
