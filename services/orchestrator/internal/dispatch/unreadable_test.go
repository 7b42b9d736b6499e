package dispatch

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

// breakDefinition gives an operation a definition that does not exist, as after a downgrade.
func (b *bundle) breakDefinition(id string) {
	b.t.Helper()
	b.exec(`UPDATE orchestrator.requests SET definition = 'gone' WHERE operation_id = $1`, id)
}

func TestResults_UnreadableRow_FailsOnlyItsMessage(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	ids := b.request(o, "i-1", "i-2", "i-3")
	b.breakDefinition(ids[1])
	o = b.orchestrator() // without a cache
	for _, id := range ids {
		b.answer(id, b.row(id).AwaitedCursor(), nil)
	}
	b.deliver(o, 3)
	for i, want := range []int{1, 0, 1} {
		if got := b.row(ids[i]).Step; got != want {
			t.Errorf("operation %d is at step %d, want %d", i, got, want)
		}
	}
	b.inStream(event.StreamResults, 0)
	b.inStream(event.StreamDead, 1)
	testkit.Eventually(t, patience, "the dead letter is seen", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.dead) == 1 && strings.Contains(b.dead[0], "gone")
	})
}

// A full disk is a transient error.
func TestResults_DatabaseDiskFull_AreRedelivered(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	ids := b.request(o, "i-1", "i-2")
	b.exec(`
CREATE FUNCTION orchestrator.full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no space left on device' USING ERRCODE = '53100'; END $$;
CREATE TRIGGER full_disk BEFORE INSERT ON orchestrator.history EXECUTE FUNCTION orchestrator.full()`)
	for _, id := range ids {
		b.answer(id, b.row(id).AwaitedCursor(), nil)
	}
	b.deliver(o, len(ids))
	b.inStream(event.StreamDead, 0)
	b.inStream(event.StreamResults, uint64(len(ids)))
	b.exec(`DROP TRIGGER full_disk ON orchestrator.history`)
	b.deliver(o, len(ids))
	for _, id := range ids {
		if got := b.row(id).Step; got != 1 {
			t.Errorf("operation %s is at step %d, want 1", id, got)
		}
	}
	b.inStream(event.StreamResults, 0)
}

func TestDue_UnreadableRow_OthersAreHandled(t *testing.T) {
	b := setup(t)
	ids := b.request(b.orchestrator(), "i-1", "i-2", "i-3", "i-4")
	// The unreadable rows are found first.
	for i, id := range ids[:2] {
		b.breakDefinition(id)
		b.exec(`UPDATE orchestrator.operations SET execute_before = $1 WHERE id = $2`, epoch.Add(time.Duration(i)*time.Second), id)
	}
	o := b.orchestrator()
	o.dueBatch = 2 // the unreadable rows fill the first batch
	b.clock.Advance(time.Minute)
	_, err := o.Due(t.Context(), true)
	require.NoError(t, err)
	for i, want := range []int{1, 1, 2, 2} {
		if got := b.row(ids[i]).Dispatch; got != want {
			t.Errorf("operation %d was sent %d times, want %d", i, got, want)
		}
	}
	// The same for operations that wait for a time.
	b.exec(`UPDATE orchestrator.operations SET execute_before = NULL, due_at = $1`, epoch)
	_, err = o.Due(t.Context(), true)
	require.NoError(t, err)
	for i, want := range []bool{true, true, false, false} {
		if got := b.row(ids[i]).Waiting(); got != want {
			t.Errorf("operation %d waits: %t, want %t", i, got, want)
		}
	}
}
