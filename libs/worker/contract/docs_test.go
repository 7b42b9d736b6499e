package contract

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

func TestChecks_Docs_AreAnchorsOfThePage(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../../docs/wire-contract.md")
	require.NoError(t, err)
	page := string(raw)
	var rows []string
	for _, m := range regexp.MustCompile("(?m)^\\| \\[`([a-z-]+)`\\]\\(#check-([a-z-]+)\\) \\|").FindAllStringSubmatch(page, -1) {
		if m[1] != m[2] {
			t.Errorf("the row of %s links to %s", m[1], m[2])
		}
		rows = append(rows, m[1])
	}
	if diff := cmp.Diff(Names(), rows); diff != "" {
		t.Errorf("the table of checks differs (-checks +page):\n%s", diff)
	}
	for _, c := range checks() {
		_, anchor, _ := strings.Cut(c.docs(), "#")
		if n := strings.Count(page, `<a id="`+anchor+`"></a>`); n != 1 {
			t.Errorf("the page has %d anchors %s, want one", n, anchor)
		}
	}
	if n := strings.Count(page, `<a id="check-`); n != len(checks()) {
		t.Errorf("the page has %d anchors of checks, want %d", n, len(checks()))
	}
}
