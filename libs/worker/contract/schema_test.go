package contract_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The schemas are copies, because a Go package can embed no file from outside of its folder.
func TestTheSchemasAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	copies, err := filepath.Glob("schemas/*.json")
	if err != nil || len(copies) != 5 {
		t.Fatalf("%d schemas, %v", len(copies), err)
	}
	for _, name := range copies {
		have, err := os.ReadFile(name)
		require.NoError(t, err)
		want, err := os.ReadFile(filepath.Join("../../../api/events", filepath.Base(name)))
		require.NoError(t, err)
		if !bytes.Equal(have, want) {
			t.Errorf("%s differs from api/events: copy it", name)
		}
	}
}
