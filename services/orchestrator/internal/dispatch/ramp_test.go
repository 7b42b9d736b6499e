package dispatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
)

// afterRamp completes the removal of a ramp of alpha that all operations but the first follow.
func (b *bundle) afterRamp(o *orchestrator, before time.Time, others, held string) (sent, left int) {
	b.t.Helper()
	sent, left, err := o.AfterRamp(b.t.Context(), "alpha", before,
		func(op *event.Operation, _ time.Time) bool { return op.ID != others },
		func(commandID string, _ time.Time) bool {
			return held != "" && commandID == event.CommandID(held, b.row(held).Cursor)
		})
	require.NoError(b.t, err)
	return sent, left
}

// If the locked command did not count, the caller would take the removal for complete, and the command would wait for its limit.
func TestAfterRamp_LockedOrHeldCommand_IsLeft(t *testing.T) {
	b, o, ids := inFlight(t, 7)
	tx, err := b.db.BeginTxx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.Exec(`SELECT FROM orchestrator.operations WHERE id = $1 FOR UPDATE`, ids[4])
	require.NoError(t, err)
	if sent, left := b.afterRamp(o, b.clock.Now(), ids[0], ids[2]); sent != 4 || left != 2 {
		t.Errorf("%d commands sent, %d left; want 4 and 2: the held one and the locked one", sent, left)
	}
	require.NoError(t, tx.Rollback())
	b.inStream(event.StreamCommands, 4)
	if sent, left := b.afterRamp(o, b.clock.Now(), ids[0], ids[2]); sent != 1 || left != 1 {
		t.Errorf("%d commands sent, %d left; want the one that was locked, and the held one", sent, left)
	}
	if sent, left := b.afterRamp(b.orchestrator(), b.clock.Now(), ids[0], ""); sent != 1 || left != 0 {
		t.Errorf("%d commands sent, %d left; want the one that was held", sent, left)
	}
	for i, id := range ids {
		if want := min(1+i, 2); b.row(id).Dispatch != want {
			t.Errorf("operation %d: dispatch %d, want %d", i, b.row(id).Dispatch, want)
		}
	}
}

func TestAfterRamp_NoWorker_IsLeft(t *testing.T) {
	b, o, _ := inFlight(t, 2)
	o.deps.Workers = workers(false)
	if sent, left := b.afterRamp(o, b.clock.Now(), "", ""); sent != 0 || left != 2 {
		t.Errorf("%d commands sent, %d left; want all left", sent, left)
	}
}

func TestAfterRamp_SentAgain_TellsTheLastTime(t *testing.T) {
	b, o, _ := inFlight(t, 1)
	b.clock.Advance(time.Minute)
	n, err := o.Due(t.Context(), true)
	require.NoError(t, err)
	again := b.clock.Now()
	b.clock.Advance(time.Second)
	var told time.Time
	_, left, err := o.AfterRamp(t.Context(), "alpha", b.clock.Now(), func(*event.Operation, time.Time) bool { return true },
		func(_ string, sentAt time.Time) bool {
			told = sentAt
			return true
		})
	require.NoError(t, err)
	if n != 1 || left != 1 || !told.Equal(again) {
		t.Errorf("%d commands sent again, %d left, the last one sent at %s; want one, sent at %s", n, left, told, again)
	}
}

func TestAfterRamp_OperationEndsMeanwhile_IsLeftAlone(t *testing.T) {
	b, o, ids := inFlight(t, 1)
	sent, _, err := o.AfterRamp(t.Context(), "alpha", b.clock.Now(), func(*event.Operation, time.Time) bool { return true },
		func(string, time.Time) bool {
			b.finish(o, ids[0])
			return false
		})
	require.NoError(t, err)
	if sent != 0 {
		t.Errorf("%d commands sent", sent)
	}
}

// The limit does not show the time of sending on its own, as the deadline of the operation has cut it off.
func TestAfterRamp_ShortlyBeforeDeadline_SendsOnce(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	id := b.request(o, "i-1")[0]
	b.clock.Advance(b.row(id).Deadline.Sub(epoch) - 40*time.Second)
	b.answer(id, b.row(id).Cursor, nil)
	b.deliver(o, 1)
	first := b.row(id)
	if !first.ExecuteBefore.Equal(first.Deadline) {
		t.Fatalf("the limit is %s, want the deadline", first.ExecuteBefore)
	}
	if sent, left := b.afterRamp(o, b.clock.Now(), "", ""); sent != 0 || left != 0 {
		t.Errorf("%d commands sent, %d left although it was sent after the ramp", sent, left)
	}
	b.clock.Advance(time.Second)
	before := b.clock.Now()
	b.clock.Advance(time.Second)
	for i, one := range []*orchestrator{o, b.orchestrator()} {
		if sent, left := b.afterRamp(one, before, "", ""); sent != 1-i || left != 0 {
			t.Errorf("call %d: %d commands sent, %d left", i, sent, left)
		}
	}
	if row := b.row(id); row.Dispatch != first.Dispatch+1 || !row.ExecuteBefore.Equal(first.Deadline) {
		t.Errorf("dispatch %d until %s, want the next one until the deadline", row.Dispatch, row.ExecuteBefore)
	}
}
