package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/services/orchestrator/internal/overlay"
)

func TestOverlayVersions_List_HasNoContents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	v := overlay.Version{Number: 1, Action: overlay.Apply, Name: "b", By: "eve", At: epoch, Overlays: []overlay.Overlay{
		{Name: "a", Content: "A", Digest: "1", Version: 1, AppliedBy: "eve", AppliedAt: epoch}, {Name: "b", Content: "B", Digest: "2", Version: 1, AppliedBy: "eve", AppliedAt: epoch},
	}}
	require.NoError(t, b.AddOverlays(t.Context(), &v))
	none := overlay.Version{Number: 2, Action: overlay.Remove, Name: "b", By: "eve", At: epoch}
	require.NoError(t, b.AddOverlays(t.Context(), &none))
	got, total, err := b.OverlayVersions(t.Context(), 10, 0)
	require.NoError(t, err)
	require.Equal(t, 2, total)
	require.Empty(t, got[0].Overlays)
	require.Len(t, got[1].Overlays, 2)
	for i, o := range got[1].Overlays {
		want := v.Overlays[i]
		want.Content = ""
		require.Equal(t, want, o)
	}
}
