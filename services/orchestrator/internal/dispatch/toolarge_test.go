package dispatch

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/hold"
)

// numbers is 60 KB of JSON; jsonb expands it to 3.1 MB.
var numbers = json.RawMessage(`{"numbers":[` + strings.TrimSuffix(strings.Repeat("1e308,", 10_000), ",") + `]}`)

// storedBefore returns an operation in flight whose next command is too large for the bus, as stored by a release without size checks.
func (b *bundle) storedBefore(o *orchestrator, instance, column string) string {
	b.t.Helper()
	id := b.request(o, instance)[0]
	switch column {
	case "order":
		b.exec(`UPDATE orchestrator.requests SET body = jsonb_set(body, '{parameters}', $2::jsonb) WHERE operation_id = $1`, id, string(numbers))
	case "saved data":
		b.exec(`UPDATE orchestrator.operations SET details = jsonb_build_object('alpha', jsonb_build_object('id', 7, 'junk', $2::jsonb)) WHERE id = $1`,
			id, string(numbers))
	}
	return id
}

// failedForSize checks that an operation has failed because of its size.
func (b *bundle) failedForSize(id string) {
	b.t.Helper()
	row := b.row(id)
	if row.Status != event.Failed || row.Error == nil || row.Error.Component != "keb" || row.Error.Reason != "err_keb_too_large" {
		b.t.Fatalf("the operation is %s with error %+v, want failed because of its size", row.Status, row.Error)
	}
	for _, want := range []string{"step One", "bytes", "the order has", "the saved data"} {
		if !strings.Contains(row.Error.Message, want) {
			b.t.Errorf("message %q does not contain %q", row.Error.Message, want)
		}
	}
}

func TestCommand_TooLargeInStoredRow_FailsOnlyItsOperation(t *testing.T) {
	for _, column := range []string{"order", "saved data"} {
		t.Run(column, func(t *testing.T) {
			b := setup(t)
			o := b.orchestrator()
			bad := b.storedBefore(o, "bad", column)
			others := b.request(o, "waits", "unanswered")
			b.waitForRetry(o, others[0])
			b.exec(`UPDATE orchestrator.operations SET execute_before = $2 WHERE id = $1`, bad, epoch)
			b.exec(`UPDATE orchestrator.operations SET execute_before = $2 WHERE id = $1`, others[1], epoch.Add(time.Second))
			b.clock.Advance(time.Minute)
			o = b.orchestrator() // without a cache
			for range 3 {
				if err := o.Drain(t.Context()); err != nil {
					t.Errorf("drain: %v", err)
				}
				if _, err := o.Due(t.Context(), true); err != nil {
					t.Errorf("due operations: %v", err)
				}
			}
			b.failedForSize(bad)
			b.published(others[0], b.row(others[0]).Cursor, 1)
			if got := b.row(others[1]).Dispatch; got != 2 {
				t.Errorf("the unanswered command was sent %d times, want 2", got)
			}
			if column == "saved data" {
				if got, want := string(b.row(bad).Details), `{"alpha": {"id": 7}}`; got != want {
					t.Errorf("saved data is %.100s, want %s", got, want)
				}
			}
			removal := b.requestAll(o, event.Operation{Type: event.Deprovision, InstanceID: "bad", Parameters: numbers})[0]
			b.published(removal, b.row(removal).Cursor, 1)
			b.finishDeprovisioning(removal)
		})
	}
}

// finishDeprovisioning answers the only step of a deprovisioning with success, with a new orchestrator that reads it from the database.
func (b *bundle) finishDeprovisioning(id string) {
	b.t.Helper()
	o := b.orchestrator()
	_, err := o.AfterStart(b.t.Context(), time.Time{}, noneHeld)
	require.NoError(b.t, err)
	b.published(id, b.row(id).Cursor, 2)
	b.answer(id, b.row(id).AwaitedCursor(), func(r *event.StepSucceeded) { r.Stage = "remove" })
	b.deliver(o, 1)
	if got := b.row(id).Status; got != event.Succeeded {
		b.t.Errorf("the deprovisioning is %s", got)
	}
}

func TestCommand_TooLargeOnRedelivery_FailsItsOperation(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	id := b.request(o, "i-1")[0]
	first := b.row(id).Cursor
	b.answer(id, first, nil)
	b.deliver(o, 1)
	b.exec(`UPDATE orchestrator.requests SET body = jsonb_set(body, '{parameters}', $2::jsonb) WHERE operation_id = $1`, id, string(numbers))
	b.answer(id, first, nil)
	b.deliver(b.orchestrator(), 1)
	if row := b.row(id); row.Status != event.Failed || row.Error.Reason != "err_keb_too_large" {
		t.Errorf("the operation is %s with error %+v", row.Status, row.Error)
	}
	b.inStream(event.StreamResults, 0)
}

// A release that sends more, or may send less, finds decided commands that it cannot send.
func TestCommand_TooLargeWhenItContinues_FreesTheInstance(t *testing.T) {
	for what, wait := range map[string]func(b *bundle, o *orchestrator) (goOn func()){
		"released": func(b *bundle, o *orchestrator) func() {
			board := b.holds([]hold.Scope{{Step: "One"}}, o)
			return func() { board.set(); require.NoError(b.t, o.ReleaseHeld(b.t.Context())) }
		},
		"granted": func(b *bundle, o *orchestrator) func() {
			b.limits(twoAlpha, o)
			return func() { b.grant(o) }
		},
		"limit removed": func(b *bundle, o *orchestrator) func() {
			limits := b.limits(twoAlpha, o)
			return func() { limits.apply(b.t, "limits: []"); b.grant(o) }
		},
	} {
		t.Run(what, func(t *testing.T) {
			b := setup(t)
			o := b.orchestrator()
			goOn := wait(b, o)
			id := b.request(o, "i-1")[0]
			b.exec(`UPDATE orchestrator.requests SET body = jsonb_set(body, '{parameters}', $2::jsonb) WHERE operation_id = $1`, id, string(numbers))
			goOn()
			b.failedForSize(id)
			next := b.request(o, "i-1")[0]
			b.states(map[string]event.OperationState{next: event.InProgress})
		})
	}
}

func TestRequest_TooLargeOnceStored_CanBeDeprovisioned(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	ids := b.requestAll(o, event.Operation{Type: event.Provision, InstanceID: "i-1", Parameters: numbers},
		event.Operation{Type: event.Provision, InstanceID: "i-2"})
	b.failedForSize(ids[0])
	b.published(ids[1], b.row(ids[1]).Cursor, 1)
	b.published(ids[0], b.row(ids[0]).Cursor, 0)
	removal := b.requestAll(o, event.Operation{Type: event.Deprovision, InstanceID: "i-1", Parameters: numbers})[0]
	b.published(removal, b.row(removal).Cursor, 1)
	b.finishDeprovisioning(removal)
}

// event.StoredSize must never be less than what Postgres writes.
func TestStoredSize_MatchesPostgres(t *testing.T) {
	b := setup(t)
	random := rand.New(rand.NewPCG(1, 2))
	number := func() string {
		s := fmt.Sprint(random.IntN(100_000))
		if random.IntN(2) == 0 {
			s += "." + fmt.Sprint(random.IntN(1000))
		}
		if random.IntN(2) == 0 {
			s += fmt.Sprintf("e%d", random.IntN(60)-30)
		}
		return []string{"", "-"}[random.IntN(2)] + s
	}
	for range 500 {
		raw := fmt.Sprintf(`{"text": "a:1,\"<\u00e9\n 1e99","list":[%s , %s,true,null], "one":{"x":%s}}`, number(), number(), number())
		var size int
		require.NoError(t, b.db.Get(&size, `SELECT octet_length($1::text::jsonb::text)`, raw))
		if got := event.StoredSize([]byte(raw)); got < size || got > size+10 {
			t.Errorf("size of %s is %d, Postgres writes %d", raw, got, size)
		}
	}
}
