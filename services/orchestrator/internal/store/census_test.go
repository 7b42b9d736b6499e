package store

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
)

func TestCensus_MixedOperations_CountsUnfinishedOnes(t *testing.T) {
	b := filled(t)
	c, err := b.Census(t.Context())
	require.NoError(t, err)
	type place struct {
		plan   string
		state  event.OperationState
		reason operator.WaitingReason
	}
	got := map[place]int{}
	for _, g := range c.Groups {
		got[place{g.Plan, g.State, g.Reason}] += g.Count
		if g.Type != event.Update || g.Oldest.IsZero() || g.State == event.InProgress && g.Definition == "" {
			t.Errorf("group %+v", g)
		}
		if g.Plan == "azure" && g.Reason == operator.Executing && (g.Since != epoch || !g.InFlight || g.Definition != b.p.Hash()) {
			t.Errorf("in flight: %+v, want sent at %s", g, epoch)
		}
	}
	want := map[place]int{
		{"azure", event.Pending, operator.Admission}:    finishedRows / 20,
		{"azure", event.InProgress, operator.Polling}:   finishedRows / 20,
		{"azure", event.InProgress, operator.Executing}: 30,
	}
	for p, n := range want {
		if got[p] != n {
			t.Errorf("%d operations at %+v, want %d", got[p], p, n)
		}
	}
	if len(got) != len(want) || c.FirstDue.IsZero() {
		t.Errorf("groups %v, first due %s", got, c.FirstDue)
	}
}

// The census must not read ended operations.
func TestCensus_Query_ReadsUnfinishedRowsOnly(t *testing.T) {
	b := filled(t)
	for _, query := range []string{
		`
INSERT INTO orchestrator.orchestrations (id, type, parameters, created_at, state, description, updated_at)
SELECT gen_random_uuid(), 'upgradeKyma', '{}', now(), CASE WHEN n = 1 THEN 'in progress' ELSE 'succeeded' END, '', now() FROM generate_series(1, 200) AS n`, `
INSERT INTO orchestrator.orchestration_members (operation_id, orchestration_id, instance_id, runtime_id, global_account_id, subaccount_id,
    plan_id, plan_name, shoot_name, state, description, due_at, updated_at)
SELECT gen_random_uuid(), o.id, n::text, '', '', '', '', '', '', 'succeeded', '', now(), now()
FROM orchestrator.orchestrations o, generate_series(1, 100) AS n`,
		`VACUUM ANALYZE orchestrator.orchestrations, orchestrator.orchestration_members`,
	} {
		_, err := b.db.Exec(query)
		require.NoError(t, err)
	}
	if all, members, err := NewOrchestrations(b.db, b.db).Census(t.Context()); err != nil || len(all) != 1 || all[0].Count != 1 ||
		len(members) != 1 || members[0] != (Standing{Type: event.UpgradeKyma, State: "succeeded", Count: 100}) {
		t.Errorf("orchestrations %v, operations %v, %v", all, members, err)
	}
	for _, c := range []struct {
		query string
		args  []any
		want  []string
	}{
		{censusSQL, []any{"00000000-0000-0000-0000-000000000000", epoch, epoch}, []string{"operations_pending|operations_unfinished", "operations_in_flight", "operations_due", "requests_pkey"}},
		{firstDueSQL, []any{epoch}, []string{"operations_due"}},
		{activeSQL, nil, []string{"orchestrations_active"}},
		{activeMembersSQL, nil, []string{"orchestrations_active", "orchestration_members_"}},
	} {
		var lines []string
		err := census(t.Context(), b.db, func(tx *sqlx.Tx) error { return tx.Select(&lines, "EXPLAIN "+c.query, c.args...) })
		require.NoError(t, err)
		plan := strings.Join(lines, "\n")
		for _, index := range c.want {
			if !slices.ContainsFunc(strings.Split(index, "|"), func(one string) bool { return strings.Contains(plan, one) }) {
				t.Errorf("the plan does not use %s:\n%s", index, plan)
			}
		}
		if strings.Contains(plan, "Seq Scan") {
			t.Errorf("the plan reads a whole table:\n%s", plan)
		}
	}
}

// A statement must end when its caller stops waiting.
func TestCensus_ContextEnds_CancelsTheQuery(t *testing.T) {
	b := setup(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var limits []string
	err := census(ctx, b.db, func(tx *sqlx.Tx) error {
		return tx.Select(&limits, `SELECT current_setting('statement_timeout') UNION ALL SELECT current_setting('enable_seqscan')`)
	})
	if err != nil || len(limits) != 2 || limits[0] == "0" || limits[1] != "off" {
		t.Errorf("settings %v, %v", limits, err)
	}
	if err := b.db.Select(&limits, `SELECT current_setting('statement_timeout') UNION ALL SELECT current_setting('enable_seqscan')`); err != nil ||
		!slices.Equal(limits[len(limits)-2:], []string{"0", "on"}) {
		t.Errorf("settings after the transaction are %v, %v; want the defaults", limits, err)
	}
}
