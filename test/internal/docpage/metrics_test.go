package docpage

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMetrics_Tables_YieldMetrics(t *testing.T) {
	t.Parallel()
	got, err := parseMetrics("# Metrics\n\n`keb_in_text` is none.\n\n## Broker\n\n| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n" +
		"| `keb_a_total`, `keb_b_total` | counter | `plan`, `state` | requests; refusals |\n\n## Bus\n\n| `keb_c` | gauge | | now |\n")
	want := []Metric{
		{Name: "keb_a_total", Type: "counter", Meaning: "requests; refusals", Labels: []string{"plan", "state"}},
		{Name: "keb_b_total", Type: "counter", Meaning: "requests; refusals", Labels: []string{"plan", "state"}},
		{Name: "keb_c", Type: "gauge", Meaning: "now", Labels: []string{}},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v, diff (-want +got)\n%s", err, diff)
	}
}

func TestMetrics_InvalidLine_IsAnError(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"| `keb_a` | gauge | now |":                              "3 cells",
		"| `keb_a`, `keb_a` | gauge | | now |":                   "keb_a is duplicated",
		"| `keb_a` | gauge | | now |\n| `keb_a` | gauge | | x |": "keb_a is duplicated",
	} {
		if _, err := parseMetrics(line + "\n"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}
