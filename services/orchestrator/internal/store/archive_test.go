package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// ended stores an operation that failed at a time, with every column set.
func (b *bundle) ended(n int, at time.Time) *Row {
	b.t.Helper()
	r := b.row(n)
	r.Operation.Context.UserID = "jane@example.com"
	r.TraceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	c := b.apply(r, engine.Start{Details: []byte(`{"alpha": {"id": "a-1"}}`)}, at)
	b.insert(c)
	for _, e := range []engine.Event{
		engine.Result{
			Outcome: event.OutcomeSucceeded, Cursor: c.Row.Cursor, StartedAt: at, FinishedAt: at.Add(time.Microsecond), Worker: event.Worker{Name: "alpha", Version: "1.2.3"},
		},
		engine.Result{
			Outcome: event.OutcomeFailed, Cursor: c.Row.Cursor + 1, StartedAt: at, FinishedAt: at, Message: "it is broken",
			Error: &event.Error{Component: "alpha", Reason: "broken", Message: "it is broken"},
		},
	} {
		c = b.apply(c.Row, e, at)
		if written, err := b.Write(b.t.Context(), []*Change{c}); err != nil || len(written) != 1 {
			b.t.Fatalf("%d rows written, error %v", len(written), err)
		}
		c.Row = b.load(c.Row.Operation.ID)
	}
	if c.Row.Status != event.Failed {
		b.t.Fatalf("the operation is %s", c.Row.Status)
	}
	return c.Row
}

func (b *bundle) read(id string) (*Row, []engine.Entry) {
	b.t.Helper()
	rows, err := b.Read(b.t.Context(), []string{id})
	require.NoError(b.t, err)
	lines, err := b.History(b.t.Context(), id)
	require.NoError(b.t, err)
	if len(rows) == 0 {
		return nil, lines
	}
	return rows[0], lines
}

func (b *bundle) archive(before time.Time, want int64) {
	b.t.Helper()
	if n, err := b.Archive(b.t.Context(), before, 10); n != want || err != nil {
		b.t.Fatalf("%d archived, want %d, error %v", n, want, err)
	}
}

func TestArchive_Operation_ReadsAsBeforeWithoutUser(t *testing.T) {
	t.Parallel()
	b := setup(t)
	old := b.ended(1, epoch)
	before, lines := b.read(old.Operation.ID)
	if len(lines) < 3 || before.Archived {
		t.Fatalf("%d lines, archived %t", len(lines), before.Archived)
	}
	b.archive(epoch.Add(time.Second), 1)

	if found, err := b.Load(t.Context(), []string{old.Operation.ID}); err != nil || len(found) > 0 {
		t.Errorf("the archived operation is still in the table: %v, %v", found, err)
	}
	for _, table := range []string{"requests", "history"} {
		if left := b.ids(`SELECT operation_id::text FROM orchestrator.` + table); len(left) > 0 {
			t.Errorf("%s still has %v", table, left)
		}
	}
	after, archivedLines := b.read(old.Operation.ID)
	want := *before
	want.Archived, want.Operation.Context.UserID = true, ""
	if diff := cmp.Diff(&want, after); diff != "" {
		t.Errorf("operation (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(lines, archivedLines); diff != "" {
		t.Errorf("history (-before +after):\n%s", diff)
	}
}

func TestArchive_OperationStillNeeded_IsKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	busy := b.started(1)
	recent := b.ended(2, epoch.Add(time.Hour))
	member, over := b.ended(3, epoch), b.ended(4, epoch)
	for i, o := range []struct{ operation, state string }{{member.Operation.ID, "in progress"}, {over.Operation.ID, "succeeded"}} {
		if _, err := b.db.Exec(`
WITH o AS (
    INSERT INTO orchestrator.orchestrations (id, type, parameters, created_at, state, description, updated_at)
    VALUES (gen_random_uuid(), 'upgradeKyma', '{}', now(), $2, '', now()) RETURNING id)
INSERT INTO orchestrator.orchestration_members (operation_id, orchestration_id, instance_id, runtime_id, global_account_id, subaccount_id, plan_id,
    plan_name, shoot_name, state, description, due_at, updated_at)
SELECT $1::uuid, o.id, 'i-' || $3::int, '', '', '', '', '', '', 'failed', '', now(), now() FROM o`, o.operation, o.state, i); err != nil {
			t.Fatal(err)
		}
	}
	b.archive(epoch.Add(time.Minute), 1)
	for name, row := range map[string]*Row{"in progress": busy, "ended lately": recent, "of an orchestration in progress": member} {
		if got, _ := b.read(row.Operation.ID); got == nil || got.Archived {
			t.Errorf("the operation that is %s was archived or deleted", name)
		}
	}
	if got, _ := b.read(over.Operation.ID); got == nil || !got.Archived {
		t.Error("the operation of the ended orchestration is not archived")
	}
}

func TestDropOrchestrations_OldAndEnded_AreDeletedWithMembers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	live := b.ended(1, epoch).Operation.ID
	for _, o := range []struct {
		name, state string
		updated     time.Time
		operation   any
	}{
		{"old", "failed", epoch, nil},
		{"older", "succeeded", epoch.Add(-time.Hour), nil},
		{"unfinished", "in progress", epoch, nil},
		{"recent", "succeeded", epoch.Add(time.Hour), nil},
		{"with an operation that is not archived", "canceled", epoch, live},
	} {
		_, err := b.db.Exec(`
WITH o AS (
    INSERT INTO orchestrator.orchestrations (id, type, parameters, created_at, state, description, updated_at)
    VALUES (gen_random_uuid(), 'upgradeKyma', '{}', $3, $2, $1, $3) RETURNING id)
INSERT INTO orchestrator.orchestration_members (operation_id, orchestration_id, instance_id, runtime_id, global_account_id, subaccount_id, plan_id,
    plan_name, shoot_name, state, description, due_at, updated_at)
SELECT COALESCE($4::uuid, gen_random_uuid()), o.id, 'i-1', '', '', '', '', '', '', 'failed', $1, $3, $3 FROM o`, o.name, o.state, o.updated, o.operation)
		require.NoError(t, err)
	}
	left := []string{"old", "recent", "unfinished", "with an operation that is not archived"}
	for range 3 {
		if n, err := b.DropOrchestrations(t.Context(), epoch.Add(time.Minute), 1); err != nil || n > 1 {
			t.Fatalf("%d deleted, error %v", n, err)
		}
		for _, table := range []string{"orchestrations", "orchestration_members"} {
			if diff := cmp.Diff(left, b.ids(`SELECT description FROM orchestrator.`+table+` ORDER BY description`)); diff != "" {
				t.Errorf("left in %s (-want +got):\n%s", table, diff)
			}
		}
		left = []string{"recent", "unfinished", "with an operation that is not archived"}
	}
}

func TestArchive_TwoOrchestrators_OneArchivesOldestFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	second, first := b.ended(1, epoch.Add(time.Second)), b.ended(2, epoch)
	if n, err := b.Archive(t.Context(), epoch.Add(time.Hour), 1); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if got, _ := b.read(first.Operation.ID); !got.Archived {
		t.Error("the older operation was not archived first")
	}
	err := b.InTx(t.Context(), func(tx *Tx) error { // another orchestrator
		if _, err := tx.tx.Exec(`SELECT pg_advisory_xact_lock($1)`, archiveLock); err != nil {
			return err
		}
		b.archive(epoch.Add(time.Hour), 0)
		return nil
	})
	require.NoError(t, err)
	b.archive(epoch.Add(time.Hour), 1)
	if n, err := b.DropArchived(t.Context(), epoch.Add(time.Second), 10); n != 1 || err != nil {
		t.Fatalf("%d removed, error %v", n, err)
	}
	if got, lines := b.read(first.Operation.ID); got != nil || len(lines) > 0 {
		t.Error("the removed operation can still be read")
	}
	if got, _ := b.read(second.Operation.ID); got == nil {
		t.Error("the newer operation was removed as well")
	}
}
