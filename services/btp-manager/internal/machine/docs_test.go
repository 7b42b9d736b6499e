package machine_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
	"github.com/kyma-project/keb/services/btp-manager/internal/machine"
)

var update = flag.Bool("update", false, "write docs/btp-manager-states.md")

const page = "../../../../docs/btp-manager-states.md"

func TestStatesPage_Generated_IsUpToDate(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("# States of a BtpOperator\n\nGenerated from the code by `make generate`; changes made here are lost.\n\n")
	b.WriteString("`status.state` sums up the one condition, of the type `Ready`. Its reason says why, its message says what in words.\n\n")
	b.WriteString("| State | Reason | Condition | Meaning |\n|---|---|---|---|\n")
	for _, m := range v1alpha1.Reasons() {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", m.State, m.Reason, m.Status, m.Means)
	}
	b.WriteString("\n## Transitions\n\nA row with a reason goes before a row for the whole state. After the removal the BtpOperator is gone.\n\n")
	b.WriteString("| From | Event | To |\n|---|---|---|\n")
	for _, row := range machine.Table() {
		to := "stays"
		if m, ok := row.To.Meaning(); ok {
			to = machine.At{State: m.State, Reason: m.Reason}.String()
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", row.From, row.Event, to)
	}
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(b.String()), 0o644))
		return
	}
	got, err := os.ReadFile(page)
	require.NoError(t, err)
	if diff := cmp.Diff(b.String(), string(got)); diff != "" {
		t.Errorf("docs/btp-manager-states.md is not that of the code, run `make generate` (-want +got):\n%s", diff)
	}
}
