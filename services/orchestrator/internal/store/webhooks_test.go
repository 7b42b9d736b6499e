package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/services/orchestrator/internal/webhook"
)

// The result of a round may have read the webhook before it was enabled.
func TestWebhooks_ActiveSince_ChangesOnlyWithUpdate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := NewWebhooks(b.db, b.db)
	w := webhook.Webhook{
		ID: "0193a3c5-0000-7000-8000-00000000000c", Name: "w", Format: webhook.Slack, State: webhook.Active, CreatedAt: epoch, ActiveSince: epoch, DueAt: epoch,
	}
	expect := func(want time.Time) {
		t.Helper()
		got, err := s.Webhook(t.Context(), w.ID)
		require.NoError(t, err)
		if !got.ActiveSince.Equal(want) {
			t.Errorf("active since %s, want %s", got.ActiveSince, want)
		}
	}
	require.NoError(t, s.Add(t.Context(), &w))
	expect(epoch)
	before := w
	w.ActiveSince = epoch.Add(time.Hour)
	require.NoError(t, s.Update(t.Context(), &w))
	expect(w.ActiveSince)
	require.NoError(t, s.Record(t.Context(), &before, nil))
	expect(w.ActiveSince)
}
