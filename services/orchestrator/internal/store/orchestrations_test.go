package store

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/services/orchestrator/internal/orchestration"
)

// activeOrchestration stores an orchestration in progress with due members.
func (b *bundle) activeOrchestration(members int) (*Orchestrations, *orchestration.Orchestration) {
	b.t.Helper()
	p, err := orchestration.ParseParameters(event.UpgradeKyma, []byte(`{"targets": {"include": [{"target": "all"}]}, "strategy": {"parallel": {"workers": 10}}}`))
	require.NoError(b.t, err)
	s := NewOrchestrations(b.db, b.db)
	o := orchestration.New(event.UpgradeKyma, p, epoch)
	require.NoError(b.t, s.Create(b.t.Context(), o))
	instances := make([]event.InstanceSummary, members)
	for i := range instances {
		instances[i] = event.InstanceSummary{InstanceID: fmt.Sprintf("i-%05d", i), Plan: event.Plan{ID: "p", Name: "azure"}}
	}
	next := *o
	next.State, next.DueAt = orchestration.InProgress, time.Time{}
	require.NoError(b.t, s.Assign(b.t.Context(), &next, orchestration.Candidates(o, nil, instances, nil, epoch)))
	return s, &next
}

// A round must not read all members, because 10,000 members have 10,000 rounds.
func TestMembers_Round_ReadsOnlyItsMembers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, o := b.activeOrchestration(5000)
	if n, err := s.Claim(t.Context(), o.ID, epoch); err != nil || n != 10 {
		t.Fatalf("claimed %d, %v", n, err)
	}
	_, err := b.db.Exec(`ANALYZE orchestrator.orchestration_members`)
	require.NoError(t, err)
	for name, query := range map[string]string{
		"claim": `SELECT m.operation_id FROM orchestrator.orchestration_members m WHERE m.orchestration_id = '%s' AND ` + waiting +
			` AND m.due_at <= now() AND (m.window_end IS NULL OR m.window_end > now()) ORDER BY m.due_at, m.operation_id LIMIT 10`,
		"canary": `SELECT m.state, count(*) FROM orchestrator.orchestration_members m
			WHERE m.orchestration_id = '%s' AND m.canary AND m.retried_as IS NULL GROUP BY m.state`,
		"failed": `SELECT count(*) FROM orchestrator.orchestration_members
			WHERE orchestration_id = '%s' AND state = 'failed' AND retried_as IS NULL`,
		"in progress": `SELECT count(*) FROM orchestrator.orchestration_members m WHERE m.orchestration_id = '%s' AND m.state = 'in progress'`,
		"next due":    `SELECT min(m.due_at) FROM orchestrator.orchestration_members m WHERE m.orchestration_id = '%s' AND ` + waiting,
		"settle": `SELECT m.operation_id FROM orchestrator.orchestration_members m JOIN orchestrator.operations o ON o.id = m.operation_id
			WHERE m.orchestration_id = '%s' AND m.state = 'in progress' AND o.state IN ('succeeded', 'failed', 'cancelled')`,
	} {
		var plan []string
		require.NoError(t, b.db.Select(&plan, "EXPLAIN "+fmt.Sprintf(query, o.ID)))
		if text := strings.Join(plan, "\n"); strings.Contains(text, "Seq Scan on orchestration_members") ||
			!regexp.MustCompile("orchestration_members_(waiting|in_progress|canary|failed)").MatchString(text) {
			t.Errorf("%s:\n%s", name, text)
		}
	}
}

func TestMembers_DuplicateInstance_IsOneMember(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, o := b.activeOrchestration(3)
	// The members of a started orchestration cannot be replaced.
	err := s.Assign(t.Context(), o, nil)
	if err == nil || !strings.Contains(err.Error(), "the orchestration is in progress") {
		t.Errorf("error %v", err)
	}
	page, total, err := s.Members(t.Context(), o.ID, MemberFilter{Limit: 2, Offset: 1})
	if err != nil || total != 3 || len(page) != 2 || page[0].InstanceID != "i-00001" {
		t.Errorf("page %v of %d, %v", page, total, err)
	}
	_, err = b.db.Exec(`
INSERT INTO orchestrator.orchestration_members (operation_id, orchestration_id, instance_id, runtime_id, global_account_id, subaccount_id,
    plan_id, plan_name, shoot_name, state, description, due_at, updated_at)
SELECT gen_random_uuid(), orchestration_id, instance_id, '', '', '', '', '', '', state, '', due_at, updated_at
FROM orchestrator.orchestration_members LIMIT 1`)
	if !postgres.IsUniqueViolation(err, "orchestration_members_current") {
		t.Errorf("an instance is a member twice: %v", err)
	}
}

func TestReopenMembers_AcceptedFailure_CountsAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, o := b.activeOrchestration(3)
	_, err := s.Claim(t.Context(), o.ID, epoch)
	require.NoError(t, err)
	var failed []string
	require.NoError(t, b.db.Select(&failed, `
UPDATE orchestrator.orchestration_members SET state = 'failed' WHERE instance_id <> 'i-00000' RETURNING operation_id::text`))
	_, err = b.db.Exec(`UPDATE orchestrator.orchestrations SET failures_accepted = 2`)
	require.NoError(t, err)
	for i, operation := range failed {
		require.NoError(t, b.InTx(t.Context(), func(tx *Tx) error { return tx.ReopenMembers(t.Context(), []string{operation}, epoch) }))
		reopened, err := s.Get(t.Context(), o.ID)
		require.NoError(t, err)
		if want := 1 - i; reopened.FailuresAccepted != want {
			t.Errorf("%d failures are accepted after %d retries, want %d", reopened.FailuresAccepted, i+1, want)
		}
	}
}

// The rate counts the operations that have ended since the orchestration became active.
func TestReopenMembers_FailedOrchestration_IsActiveSinceThen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, o := b.activeOrchestration(1)
	_, err := s.Claim(t.Context(), o.ID, epoch)
	require.NoError(t, err)
	var operation string
	require.NoError(t, b.db.Get(&operation, `UPDATE orchestrator.orchestration_members SET state = 'failed' RETURNING operation_id::text`))
	_, err = b.db.Exec(`UPDATE orchestrator.orchestrations SET state = 'failed', active_since = $1`, epoch)
	require.NoError(t, err)
	later := epoch.Add(48 * time.Hour)
	require.NoError(t, b.InTx(t.Context(), func(tx *Tx) error { return tx.ReopenMembers(t.Context(), []string{operation}, later) }))
	got, err := s.Get(t.Context(), o.ID)
	require.NoError(t, err)
	if got.State != orchestration.InProgress || !got.ActiveSince.Equal(later) {
		t.Errorf("the orchestration is %s since %s, want in progress since %s", got.State, got.ActiveSince, later)
	}
}

// Operations have their ids from the order of their orchestration, which may be days before it runs.
func TestRetry_OtherUpgrades_OnlyLaterOnesCount(t *testing.T) {
	t.Parallel()
	hour := func(n int) time.Time { return epoch.Add(time.Duration(n) * time.Hour) }
	var never time.Time
	for name, c := range map[string]struct {
		first          bool      // the other orchestration is ordered first
		claimed, other time.Time // when the operation and that of the other orchestration were claimed
		dryRun         bool      // the other orchestration is a dry run
		retried        bool
	}{
		"ordered before and claimed after it":  {first: true, claimed: hour(1), other: hour(2)},
		"ordered after and claimed after it":   {claimed: hour(1), other: hour(2)},
		"ordered after and claimed before it":  {claimed: hour(2), other: hour(1), retried: true},
		"ordered before and claimed before it": {first: true, claimed: hour(2), other: hour(1), retried: true},
		"scheduled":                            {claimed: hour(1), other: never, retried: true},
		"a dry run":                            {claimed: hour(1), other: hour(2), dryRun: true, retried: true},
		"claimed since the start of one that was cancelled before its claim":  {claimed: never, other: hour(1)},
		"claimed before the start of one that was cancelled before its claim": {claimed: never, other: hour(-1), retried: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			var s *Orchestrations
			var orders [2]*orchestration.Orchestration
			for i := range orders {
				s, orders[i] = b.activeOrchestration(1)
			}
			o, other := orders[0], orders[1]
			if c.first {
				o, other = other, o
			}
			for id, at := range map[string]time.Time{o.ID: c.claimed, other.ID: c.other} {
				if at.IsZero() {
					continue
				}
				_, err := b.db.Exec(`
UPDATE orchestrator.orchestration_members SET due_at = least(due_at, $2) WHERE orchestration_id = $1::uuid`, id, at)
				require.NoError(t, err)
				if n, err := s.Claim(t.Context(), id, at); err != nil || n != 1 {
					t.Fatalf("claimed %d, %v", n, err)
				}
			}
			ended := orchestration.Failed
			if c.claimed.IsZero() {
				ended = orchestration.Canceled
			}
			_, err := b.db.Exec(`
WITH ended AS (UPDATE orchestrator.orchestration_members SET state = $2 WHERE orchestration_id = $1::uuid)
UPDATE orchestrator.orchestrations SET state = $2, started_at = $3 WHERE id = $1::uuid`, o.ID, string(ended), epoch)
			require.NoError(t, err)
			_, err = b.db.Exec(`
UPDATE orchestrator.orchestrations SET parameters = parameters || jsonb_build_object('dryRun', $2::boolean) WHERE id = $1::uuid`, other.ID, c.dryRun)
			require.NoError(t, err)
			r, err := s.Retry(t.Context(), o.ID, nil, false, hour(3))
			require.NoError(t, err)
			if retried := len(r.New) == 1; retried != c.retried || len(r.New)+len(r.Old) != 1 {
				t.Errorf("%d are retried, old are %v, want retried %t", len(r.New), r.Old, c.retried)
			}
		})
	}
}

// The share of failures that pauses an orchestration is one of its members.
func TestRetry_CancelledBeforeItsStart_HasItsMembers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, o := b.activeOrchestration(3)
	_, err := b.db.Exec(`UPDATE orchestrator.orchestration_members SET state = 'canceled'`)
	require.NoError(t, err)
	_, err = b.db.Exec(`UPDATE orchestrator.orchestrations SET state = 'canceled', started_at = NULL, members = 0`)
	require.NoError(t, err)
	_, err = s.Retry(t.Context(), o.ID, nil, false, epoch)
	require.NoError(t, err)
	got, err := s.Get(t.Context(), o.ID)
	require.NoError(t, err)
	if got.State != orchestration.Retrying || got.Members != 3 {
		t.Errorf("the orchestration is %s with %d members, want retrying with 3", got.State, got.Members)
	}
}
