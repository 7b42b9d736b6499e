package bus

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An orchestrator that was frozen fails its publications when it continues. Another one has its work by then, so it publishes nothing more.
func TestRefusals_NoLaterPublication_Expire(t *testing.T) {
	t.Parallel()
	var r refusals
	now := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	r.note("KEB_FACTS", context.DeadlineExceeded, now)
	require.ErrorContains(t, r.first(now.Add(refusalTTL)), "KEB_FACTS")
	r.note("KEB_FACTS", context.DeadlineExceeded, now.Add(refusalTTL))
	require.ErrorContains(t, r.first(now.Add(2*refusalTTL)), "KEB_FACTS")
	require.NoError(t, r.first(now.Add(2*refusalTTL+1)))
	r.note("KEB_FACTS", context.DeadlineExceeded, now)
	r.note("KEB_FACTS", nil, now)
	require.NoError(t, r.first(now))
}
