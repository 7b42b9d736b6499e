package orchestration_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/orchestration"
)

const withNotification = `{"targets": {"include": [{"target": "all"}]}, "notification": true, "strategy": {"maintenanceWindow": true}}`

// The event is created before any operation starts, with the windows of all operations, and cancelled with the orchestration.
func TestNotification_ScheduledAndCancelled_CreatesThenCancels(t *testing.T) {
	t.Parallel()
	b := setup(t, 2)
	c, stop := b.controller(nil)
	o := b.order(withNotification)
	b.await(c, "the orchestration begins", func() bool { return b.get(o.ID).State == orchestration.InProgress })
	begin, end := epoch.Add(14*time.Hour), epoch.Add(15*time.Hour)
	created := event.NotifyRequest{OrchestrationID: o.ID, Type: event.UpgradeKyma, Instances: []event.NotifiedInstance{
		{InstanceID: "i-00000", Begin: begin, End: &end}, {InstanceID: "i-00001", Begin: begin, End: &end},
	}}
	if diff := cmp.Diff([]event.NotifyRequest{created}, b.notices()); diff != "" {
		t.Errorf("notifications (-want +got):\n%s", diff)
	}
	stop()
	require.NoError(t, b.store.Cancel(t.Context(), o.ID, b.clock.Now()))
	c, _ = b.controller(nil)
	b.await(c, "it ends", func() bool { return b.get(o.ID).State == orchestration.Canceled })
	cancelled := event.NotifyRequest{OrchestrationID: o.ID, Type: event.UpgradeKyma, Cancelled: true}
	if diff := cmp.Diff([]event.NotifyRequest{created, cancelled}, b.notices()); diff != "" {
		t.Errorf("notifications (-want +got):\n%s", diff)
	}
}

func TestNotification_SPCIsDown_OrchestrationWaitsFiveMinutes(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.set(func() { b.noNotice = errors.New("spc: status 503") })
	c, _ := b.controller(nil)
	o := b.order(`{"targets": {"include": [{"target": "all"}]}, "notification": true}`)
	b.await(c, "the description has the reason", func() bool {
		return strings.Contains(b.get(o.ID).Description, "the maintenance is not announced; the orchestration starts without an announcement at ")
	})
	if got := b.started(); len(got) > 0 {
		t.Errorf("started before the announcement: %v", got)
	}
	b.clock.Advance(5*time.Minute + time.Second)
	b.await(c, "it starts without", func() bool { return len(b.started()) == 1 })
	// The cancellation waits as long.
	require.NoError(t, b.store.Cancel(t.Context(), o.ID, b.clock.Now()))
	b.end("i-00000")
	b.await(c, "the description has the reason", func() bool {
		return strings.Contains(b.get(o.ID).Description, "it cannot end now: announce the cancellation: ask keb.ask.spc.notify: spc: status 503")
	})
	b.set(func() { b.noNotice = nil })
	b.await(c, "it ends", func() bool { return b.get(o.ID).State == orchestration.Canceled })
	if got := b.notices(); len(got) != 1 || !got[0].Cancelled {
		t.Errorf("notifications %+v, want the cancellation", got)
	}
}

// The start of the orchestration may be long ago: its schedule was in the past, its targets were looked up for long, or it was paused.
func TestNotification_StartWasLongAgo_WaitsFiveMinutes(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.set(func() { b.noNotice = errors.New("spc: status 503") })
	c, _ := b.controller(nil)
	o := b.order(`{"targets": {"include": [{"target": "all"}]}, "notification": true, "strategy": {"schedule": "2026-11-21T07:00:00Z"}}`)
	waits := func(until string) {
		t.Helper()
		b.await(c, "it waits until "+until, func() bool {
			return strings.Contains(b.get(o.ID).Description, "the maintenance is not announced; the orchestration starts without an announcement at "+until)
		})
	}
	waits("2026-11-21T08:05:00Z")
	b.clock.Advance(4 * time.Minute)
	b.await(c, "it is tried again", func() bool { return b.get(o.ID).DueAt.After(b.clock.Now()) })
	waits("2026-11-21T08:05:00Z")

	_, err := b.store.Pause(t.Context(), o.ID, "jane", b.clock.Now())
	require.NoError(t, err)
	b.clock.Advance(time.Hour)
	_, err = b.store.Resume(t.Context(), o.ID, "jane", b.clock.Now())
	require.NoError(t, err)
	waits("2026-11-21T09:09:00Z")
	if got := b.started(); len(got) > 0 {
		t.Errorf("started before the announcement: %v", got)
	}
	b.clock.Advance(5 * time.Minute)
	b.awaitStarted(c, "i-00000")
}

func TestCancel_OtherOrchestratorContinues_NotifiesOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	c, stop := b.controller(nil)
	o := b.order(`{"targets": {"include": [{"target": "all"}]}, "notification": true}`)
	b.awaitStarted(c, "i-00000")
	require.NoError(t, b.store.Cancel(t.Context(), o.ID, b.clock.Now()))
	b.await(c, "customers are notified of the cancellation", func() bool { return b.get(o.ID).CancelNotified })
	stop()
	c, _ = b.controller(nil)
	b.rounds(c)
	b.end("i-00000")
	b.awaitState(c, o.ID, orchestration.Canceled)
	if got := b.notices(); len(got) != 2 {
		t.Errorf("%d notifications, want the announcement and the cancellation: %+v", len(got), got)
	}
}

// The round that ends the last member has not seen the cancellation.
func TestNotification_CancelledBeforeTheEnd_CustomersAreNotified(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.concluding = func(id string) {
		if len(b.started()) == 1 && b.members(id)[0].State == orchestration.Succeeded {
			if err := b.store.Cancel(context.Background(), id, b.clock.Now()); err != nil {
				t.Error(err)
			}
		}
	}
	c, _ := b.controller(nil)
	o := b.order(`{"targets": {"include": [{"target": "all"}]}, "notification": true}`)
	b.await(c, "it starts", func() bool { return len(b.started()) == 1 })
	b.end("i-00000")
	b.await(c, "it ends", func() bool { return b.get(o.ID).State == orchestration.Canceled })
	if got := b.notices(); len(got) == 0 || !got[len(got)-1].Cancelled {
		t.Errorf("notifications %+v, want the cancellation at the end", got)
	}
}

func TestNotification_NotOrderedOrDryRun_NothingIsSent(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	c, _ := b.controller(nil)
	for _, body := range []string{
		`{"targets": {"include": [{"target": "all"}]}}`, `{"targets": {"include": [{"target": "all"}]}, "notification": true, "dryRun": true}`,
	} {
		o := b.order(body)
		b.await(c, "the orchestration begins", func() bool { return b.get(o.ID).State == orchestration.InProgress })
		require.NoError(t, b.store.Cancel(t.Context(), o.ID, b.clock.Now()))
	}
	if got := b.notices(); len(got) != 0 {
		t.Errorf("notifications %+v", got)
	}
}
