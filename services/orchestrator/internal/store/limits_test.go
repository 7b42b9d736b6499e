package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/services/orchestrator/internal/limit"
)

func TestLimits_Apply_ReplacesTheDocument(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i, want := range []limit.Document{
		{},
		{Version: 1, Text: "limits: []", AppliedBy: "jane", AppliedAt: epoch},
		{Version: 2, Text: "", AppliedBy: "joe", AppliedAt: epoch.Add(time.Second)},
	} {
		if i > 0 {
			version, err := b.ApplyLimits(t.Context(), want.Text, want.AppliedBy, want.AppliedAt)
			require.NoError(t, err)
			if version != want.Version {
				t.Errorf("version %d, want %d", version, want.Version)
			}
		}
		got, err := b.Limits(t.Context())
		require.NoError(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("document (-want +got):\n%s", diff)
		}
		status, err := b.SweepStatus(t.Context())
		require.NoError(t, err)
		if status.Limits != want.Version {
			t.Errorf("the sweep sees version %d, want %d", status.Limits, want.Version)
		}
	}
}
