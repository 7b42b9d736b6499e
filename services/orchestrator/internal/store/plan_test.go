package store

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

// finishedRows is the number of ended operations in the database; a few others are unfinished.
const finishedRows = 20000

// filled returns a store with many finished operations, fewer waiting and pending ones, and some in flight.
func filled(t *testing.T) *bundle {
	t.Helper()
	b := setup(t)
	for i := range 30 {
		b.started(i)
	}
	for _, query := range []string{`
INSERT INTO orchestrator.operations (id, type, instance_id, plan, created_at, state, version, cursor, stage, step, stage_attempt, step_attempt,
    dispatch, stage_memory, started_at, finished_at, deadline, due_at)
SELECT gen_random_uuid(), 'update', CASE WHEN n % 20 > 2 THEN 'old-' || n / 3 ELSE 'busy-' || n END, 'azure', now(),
    CASE n % 20 WHEN 0 THEN 'failed' WHEN 1 THEN 'in progress' WHEN 2 THEN 'pending' ELSE 'succeeded' END,
    9, 20, 1, 0, 1, 0, 0, false, now(), now(), now(), CASE WHEN n % 20 = 1 THEN now() END
FROM generate_series(1, $1) AS n`, `
INSERT INTO orchestrator.instances (instance_id) SELECT 'old-' || n FROM generate_series(1, $1) AS n`, `
INSERT INTO orchestrator.instances (instance_id, waiting) SELECT 'busy-' || n, 1 FROM generate_series(1, $1) AS n WHERE n % 20 = 2`, `
INSERT INTO orchestrator.requests (operation_id, body, definition)
SELECT o.id, '{}', 'x' FROM orchestrator.operations o WHERE o.deadline <> o.started_at + interval '1 hour' AND $1 > 0`, `
INSERT INTO orchestrator.history (operation_id, cursor, stage, step, stage_attempt, step_attempt, started_at, finished_at, kind)
SELECT o.id, n, 0, 0, 1, 1, now(), now(), 'succeeded'
FROM orchestrator.operations o, generate_series(1, 2) AS n WHERE o.instance_id LIKE 'old-%' AND $1 > 0`, `
INSERT INTO orchestrator.archive (operation_id, finished_at, operation, request, history)
SELECT gen_random_uuid(), now() - n * interval '1 hour', '{}', '{}', '[]' FROM generate_series(1, $1) AS n`, `
INSERT INTO orchestrator.webhooks (id, name, format, filter, origin, sealed, created_by, created_at, state, due_at)
SELECT ('00000000-0000-4000-8000-' || lpad(n::text, 12, '0'))::uuid, 'w' || n, 'slack', '{}', '', '', '', now(), 'active', now()
FROM generate_series(1, 50) AS n WHERE $1 > 0`, `
INSERT INTO orchestrator.webhook_deliveries (webhook_id, message_id, subject, kind, event, created_at, state)
SELECT ('00000000-0000-4000-8000-' || lpad((1 + n % 50)::text, 12, '0'))::uuid, n::text, '', '', '', now() - n * interval '1 minute',
    CASE n % 40 WHEN 0 THEN 'waiting' ELSE 'delivered' END FROM generate_series(1, $1) AS n`} {
		_, err := b.db.Exec(query, finishedRows)
		require.NoError(t, err)
	}
	_, err := b.db.Exec(`VACUUM ANALYZE orchestrator.operations, orchestrator.instances, orchestrator.requests, orchestrator.history, orchestrator.archive, orchestrator.webhooks, orchestrator.webhook_deliveries`)
	require.NoError(t, err)
	return b
}

func TestPlans_FrequentStatements_UseIndexes(t *testing.T) {
	b := filled(t)
	var inFlight, zeros, times, flags, nulls array
	var some *Row
	for _, id := range b.ids(`SELECT id::text FROM orchestrator.operations WHERE execute_before IS NOT NULL LIMIT 20`) {
		inFlight.raw(id)
		zeros.int(0)
		times.time(epoch)
		flags.raw("false")
		nulls.null()
		some = b.load(id)
	}
	args := func(release bool) []any {
		c := newColumns(1)
		change := b.apply(some, succeeded(some), epoch)
		if release {
			change.Release = &Release{}
		}
		require.NoError(t, c.add(change))
		return c.args()
	}
	var none, types, plans, empty, most, instances array
	types.text(string(event.Update))
	plans.text("azure")
	empty.text("")
	most.int(200)
	for i := range 20 {
		instances.text(fmt.Sprintf("busy-%d", 20*i+2))
	}
	for _, c := range []struct {
		name  string
		query string
		args  []any
		want  []string
	}{
		{"writeSQL", writeOnlySQL, args(false), []string{"operations_pkey"}},
		{"writeReleaseSQL", writeReleaseSQL, args(true), []string{"operations_pkey", "instances_pkey"}},
		{"loadSQL", loadSQL, []any{&inFlight}, []string{"operations_pkey", "requests_pkey"}},
		{"awaitedSQL", awaitedSQL, []any{&inFlight}, []string{"operations_pkey|operations_in_flight", "requests_pkey"}},
		{"marksSQL", marksSQL, nil, []string{"operations_due", "operations_unfinished"}},
		{"sweepStatusSQL", sweepStatusSQL, []any{epoch, "00000000-0000-0000-0000-000000000000", true, epoch}, []string{"operations_due", "operations_in_flight", "operations_pending|operations_unfinished", "operations_held"}},
		{"releasableSQL", releasableSQL, []any{&inFlight, 500}, []string{"operations_held"}},
		{"heldBySQL", heldBySQL, nil, []string{"operations_held"}},
		{"dueSQL", dueSQL, []any{epoch, epoch.Add(time.Hour), 500}, []string{"operations_due"}},
		{"unansweredSQL", unansweredSQL, []any{"00000000-0000-0000-0000-000000000000", epoch.Add(time.Hour), 500}, []string{"operations_in_flight"}},
		{"anyInFlightSQL", anyInFlightSQL, []any{epoch.Add(24 * time.Hour)}, []string{"operations_in_flight"}},
		{"inFlightSQL", inFlightSQL, []any{epoch.Add(24 * time.Hour), "00000000-0000-0000-0000-000000000000", 500}, []string{"operations_in_flight"}},
		{"sentCommandsSQL", sentCommandsSQL, []any{"00000000-0000-0000-0000-000000000000", 500}, []string{"operations_in_flight", "requests_pkey"}},
		{"anyPendingSQL", anyPendingSQL, nil, []string{"operations_pending"}},
		{"pendingQueuesSQL", pendingQueuesSQL, []any{&none, "deprovision", "update", "", "", "", "", 500}, []string{"operations_pending", "operations_instance", "instances_pkey"}},
		{"takeSQL", takeSQL, []any{&none, &types, &empty, &plans, &empty, &most, 200}, []string{"operations_pending", "operations_instance", "instances_pkey"}},
		{"pendingOfSQL", pendingOfSQL, []any{&instances}, []string{"operations_instance"}},
		// Both indexes are small; the planner chooses one by the number of pending operations.
		{"pendingCountsSQL", pendingCountsSQL, nil, []string{"operations_pending|operations_unfinished"}},
		{"startableCountsSQL", startableCountsSQL, nil, []string{"operations_pending|operations_unfinished", "instances_pkey"}},
		{"aheadSQL", aheadSQL, []any{&inFlight}, []string{"operations_pkey", "operations_pending"}},
		{"runningSQL", runningSQL, nil, []string{"operations_in_progress|operations_unfinished"}},
		{"unfinishedSQL", unfinishedSQL, []any{"i-1"}, []string{"operations_instance"}},
		{"newerSQL", newerSQL, []any{&inFlight}, []string{"operations_instance", "operations_pkey"}},
		{"waitedForSQL", waitedForSQL, nil, []string{"operations_limited"}},
		{"queuedSQL", queuedSQL, []any{"ias", false}, []string{"operations_limited"}},
		{"inUseSQL", inUseSQL, nil, []string{"operations_granted"}},
		{"waitingSQL", waitingSQL, nil, []string{"operations_limited"}},
		{"arrivedSQL", arrivedSQL, []any{"ias", false, 200}, []string{"operations_limited"}},
		{"headSQL", headSQL, []any{"ias", false, 0, "00000000-0000-0000-0000-000000000000", 200}, []string{"operations_limited"}},
		{"boundsSQL", boundsSQL, []any{"00000000-0000-0000-0000-000000000000", 200}, []string{"operations_unfinished|operations_pkey|operations_in_progress", "requests_pkey"}},
		{"positionSQL", positionSQL, []any{&inFlight}, []string{"operations_limited"}},
		{"signalledKeysSQL", signalledKeysSQL, nil, []string{"operations_event"}},
		{"signalledSQL", signalledSQL, []any{&inFlight}, []string{"operations_event|operations_pkey"}},
		{"archivedSQL", archivedSQL, []any{&inFlight}, []string{"archive_pkey"}},
		{"archiveSQL", archiveSQL, []any{epoch, 200}, []string{"operations_finished", "operations_pkey", "requests_pkey", "history_pkey"}},
		{"dropOrchestrationsSQL", dropOrchestrationsSQL, []any{epoch, 1}, []string{"orchestrations_ended", "orchestration_members_list"}},
		{"dropArchivedSQL", dropArchivedSQL, []any{epoch, 200}, []string{"archive_finished"}},
		{"readArchivedSQL", readArchivedSQL, []any{&inFlight}, []string{"archive_pkey"}},
		{"archivedHistorySQL", archivedHistorySQL, []any{some.Operation.ID}, []string{"archive_pkey"}},
		{"foldableSQL", foldableSQL, []any{&inFlight, &zeros, 1000}, []string{"operations_pkey", "history_pkey"}},
		{"foldHistoriesSQL", foldHistoriesSQL, []any{&inFlight, &zeros, &inFlight, &zeros, &zeros, &zeros, &zeros, &zeros, &times, &flags, &nulls}, []string{"history_pkey"}},
		{"lockInstancesSQL", lockInstancesSQL, []any{&instances}, []string{"instances_pkey"}},
		{"unpublishedSQL", unpublishedSQL, []any{time.Now().Add(time.Hour), 200}, []string{"operations_unfinished", "operations_finished"}},
		{"activeSinceSQL", activeSinceSQL, []any{"00000000-0000-0000-0000-000000000000", time.Now().Add(time.Hour), 5000}, []string{"operations_unfinished", "operations_finished"}},
		{"entriesAfterSQL", entriesAfterSQL, []any{&inFlight, &zeros, 200}, []string{"history_pkey"}},
		{"endedSinceSQL", endedSinceSQL, []any{epoch, 10_001}, []string{"operations_ended_at"}},
		{"factsUnpublishedSQL", factsUnpublishedSQL, []any{&inFlight, &zeros}, []string{"operations_pkey"}},
		{"aboutSQL", aboutSQL, []any{&inFlight}, []string{"operations_pkey", "requests_pkey"}},
		{"activeWebhooksSQL", activeWebhooksSQL, nil, []string{"webhook_deliveries_waiting"}},
		{"nextMessagesSQL", nextMessagesSQL, []any{"00000000-0000-4000-8000-000000000001", 50}, []string{"webhook_deliveries_waiting"}},
		{"forgetMessagesSQL", forgetMessagesSQL, []any{time.Now().Add(-13 * 24 * time.Hour)}, []string{"webhook_deliveries_ended"}},
		{"unannouncedSQL", unannouncedSQL, nil, []string{"orchestrations_unannounced"}},
		{"factsPublishedSQL", factsPublishedSQL, []any{&inFlight, &zeros, &zeros}, []string{"operations_pkey"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			checkPlan(t, b.explain(c.query, c.args), c.want)
		})
	}
}

func checkPlan(t *testing.T, plan string, want []string) {
	t.Helper()
	for _, index := range want {
		if !slices.ContainsFunc(strings.Split(index, "|"), func(name string) bool { return strings.Contains(plan, name) }) {
			t.Errorf("the plan does not use %s:\n%s", index, plan)
		}
	}
	for _, table := range []string{"operations", "requests", "instances", "history", "archive", "webhook_deliveries"} {
		if strings.Contains(plan, "Seq Scan on "+table) {
			t.Errorf("the plan reads the whole table %s:\n%s", table, plan)
		}
	}
}

var (
	// tableScan matches the nodes of a plan that read a table, and keyScan those that look rows up by a primary key.
	tableScan = regexp.MustCompile(`(Index Scan using|Index Only Scan using|Bitmap Index Scan on|Seq Scan on) \w+`)
	keyScan   = regexp.MustCompile(`(Index Scan using|Index Only Scan using|Bitmap Index Scan on) \w+_pkey .*\n +Index Cond:`)
)

// Prepared statements are planned once for all arguments, often while the tables are still empty, and must find rows by their keys even then.
func TestPlans_PreparedStatements_FindRowsByKey(t *testing.T) {
	for name, b := range map[string]*bundle{"empty": setup(t), "filled": filled(t)} {
		for _, c := range []struct {
			name  string
			query string
			keys  []string
		}{
			{"writeOnlySQL", writeOnlySQL, []string{"operations_pkey"}},
			{"writeReleaseSQL", writeReleaseSQL, []string{"operations_pkey", "instances_pkey"}},
			{"insertSQL", insertSQL, nil},
			{"loadSQL", loadSQL, []string{"operations_pkey", "requests_pkey"}},
			{"lockSQL", lockSQL, []string{"operations_pkey", "requests_pkey"}},
			{"archivedSQL", archivedSQL, []string{"archive_pkey"}},
			{"lockInstancesSQL", lockInstancesSQL, []string{"instances_pkey"}},
			{"createInstancesSQL", createInstancesSQL, nil},
			{"saveInstancesSQL", saveInstancesSQL, []string{"instances_pkey"}},
		} {
			t.Run(name+"/"+c.name, func(t *testing.T) {
				plan := b.explainPrepared(c.query)
				checkPlan(t, plan, c.keys)
				if scans, keys := tableScan.FindAllString(plan, -1), keyScan.FindAllString(plan, -1); len(scans) != len(keys) {
					t.Errorf("rows are found by %q, want keys only:\n%s", scans, plan)
				}
			})
		}
	}
}

// The counts of errors read no ended operations, and of the failed ones only those of their period.
// Either index of a pair bounds what is read, and the planner takes the cheaper one for the data. Failing operations: operations_unfinished contains
// those in progress and the pending ones, and operations_in_progress and operations_pending one state each, so that both ways read each unfinished
// operation and no other. Failed operations: both indexes begin at the time; operations_finished also reads what has succeeded since then.
func TestPlans_Errors_UseIndexes(t *testing.T) {
	b := filled(t)
	for name, c := range map[string]struct {
		query func(w *where) string
		want  string
	}{
		"failing": {query: func(w *where) string {
			return fmt.Sprintf(failingSQL, w.unserved(Places{{Type: event.Update, Always: true}}))
		}, want: "operations_(in_progress|unfinished)"},
		"failed": {query: func(w *where) string { return fmt.Sprintf(failedSQL, w.bind("%s", time.Now().Add(time.Hour))) }, want: "operations_(ended_at|finished)"},
	} {
		w := &where{}
		query := c.query(w)
		query += fmt.Sprintf(errorsSQL, "min", w.bind("%s", 100))
		var plan []string
		err := census(t.Context(), b.db, func(tx *sqlx.Tx) error { return tx.Select(&plan, "EXPLAIN "+query, w.args...) })
		require.NoError(t, err)
		text := strings.Join(plan, "\n")
		if !regexp.MustCompile(c.want).MatchString(text) || strings.Contains(text, "Seq Scan on operations") || strings.Contains(text, "Seq Scan on requests") {
			t.Errorf("%s: the plan does not use %s:\n%s", name, c.want, text)
		}
	}
}

func (b *bundle) ids(query string) []string {
	b.t.Helper()
	var found []string
	require.NoError(b.t, b.db.Select(&found, query))
	return found
}

// explain returns the plan of a statement.
func (b *bundle) explain(query string, args []any) string {
	b.t.Helper()
	return b.explainWith("EXPLAIN ", query, args)
}

// explainRun runs a statement and returns its plan with the pages that it read.
func (b *bundle) explainRun(query string, args []any) string {
	b.t.Helper()
	return b.explainWith("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) ", query, args)
}

func (b *bundle) explainWith(explain, query string, args []any) string {
	b.t.Helper()
	var plan []string
	err := b.InTx(b.t.Context(), func(tx *Tx) error {
		return tx.tx.Select(&plan, explain+query, args...)
	})
	require.NoError(b.t, err)
	return strings.Join(plan, "\n")
}

// explainPrepared returns the plan of a statement that is planned once for all arguments, like those on the pool for transitions.
func (b *bundle) explainPrepared(query string) string {
	b.t.Helper()
	parameters := 0
	for _, number := range regexp.MustCompile(`\$(\d+)`).FindAllStringSubmatch(query, -1) {
		n, err := strconv.Atoi(number[1])
		require.NoError(b.t, err)
		parameters = max(parameters, n)
	}
	var plan []string
	err := b.InTx(b.t.Context(), func(tx *Tx) error {
		for _, statement := range []string{
			`SET LOCAL enable_seqscan = off`, `SET LOCAL plan_cache_mode = force_generic_plan`, `PREPARE once AS ` + query,
		} {
			if _, err := tx.tx.Exec(statement); err != nil {
				return err
			}
		}
		execute := "EXPLAIN EXECUTE once"
		if parameters > 0 {
			execute += "(" + strings.TrimSuffix(strings.Repeat("NULL,", parameters), ",") + ")"
		}
		if err := tx.tx.Select(&plan, execute); err != nil {
			return err
		}
		_, err := tx.tx.Exec(`DEALLOCATE once`)
		return err
	})
	require.NoError(b.t, err)
	return strings.Join(plan, "\n")
}

// An update of a step must not change an index, because this would bloat the table and its indexes.
func TestPlans_StepUpdates_AreHeapOnly(t *testing.T) {
	b := setup(t)
	rows := make([]*Row, 20)
	for i := range rows {
		rows[i] = b.started(i)
	}
	// One batch per cursor, for both steps repeatedly.
	const rounds = 25
	for range rounds {
		changes := make([]*Change, len(rows))
		for i, r := range rows {
			changes[i] = b.apply(r, succeeded(r), epoch)
			if changes[i].Row.Status.Final() {
				changes[i].Row.State = b.load(r.Operation.ID).State
				changes[i].Row.Step, changes[i].History = 0, nil
			}
			rows[i] = changes[i].Row
		}
		written, err := b.Write(t.Context(), changes)
		if err != nil || len(written) != len(rows) {
			t.Fatalf("%d rows written, error %v", len(written), err)
		}
	}
	var updates, hot int
	testkit.Eventually(t, 20*time.Second, "the statistics show the updates", func() bool {
		row := b.db.QueryRow(`SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE schemaname = 'orchestrator' AND relname = 'operations'`)
		require.NoError(t, row.Scan(&updates, &hot))
		return updates >= rounds*len(rows)
	})
	if hot < updates*9/10 {
		t.Errorf("%d of %d updates are heap-only, want nearly all", hot, updates)
	}
}
