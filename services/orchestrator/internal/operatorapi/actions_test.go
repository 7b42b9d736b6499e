package operatorapi

import (
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

// The console's page of actions offers each action as a filter, and no other.
func TestActions_FilterOfConsole_HasAllNames(t *testing.T) {
	a := &API{mux: http.NewServeMux(), actions: map[string]string{}}
	a.routes(a.mux)
	recorded := slices.Compact(slices.Sorted(maps.Values(a.actions)))

	page, err := os.ReadFile("../console/static/views/actions.js")
	require.NoError(t, err)
	_, list, _ := strings.Cut(string(page), "const names = [")
	list, _, _ = strings.Cut(list, "]")
	var offered []string
	for _, name := range regexp.MustCompile(`'(\w+)'`).FindAllStringSubmatch(list, -1) {
		offered = append(offered, name[1])
	}
	slices.Sort(offered)
	if diff := cmp.Diff(recorded, offered); diff != "" {
		t.Errorf("recorded actions (-) and the choices of the page (+):\n%s", diff)
	}
}
