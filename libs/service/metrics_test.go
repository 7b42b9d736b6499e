package service

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRegistry_New_HasRuntimeMetrics(t *testing.T) {
	t.Parallel()
	families, err := Registry().Gather()
	require.NoError(t, err)
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
	}
	for _, want := range []string{"go_goroutines", "go_build_info"} {
		if !slices.Contains(names, want) {
			t.Errorf("no metric %s in %v", want, names)
		}
	}
}
