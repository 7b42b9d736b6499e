package operatorapi

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

// A filter that the console does not know would be an unknown filter in a link to the operations of a batch.
func TestFilterParameters_AreThoseOfConsole(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("../console/static/views/operations.js")
	require.NoError(t, err)
	list := regexp.MustCompile(`const filters = \[(.*)\];`).FindSubmatch(source)
	require.NotNil(t, list)
	var got []string
	for _, name := range regexp.MustCompile(`'(\w+)'`).FindAllSubmatch(list[1], -1) {
		got = append(got, string(name[1]))
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(filterParameters)), slices.Sorted(slices.Values(got))); diff != "" {
		t.Errorf("the filters of the console (-want +got)\n%s", diff)
	}
}
