package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGroups_UsageErrors_OneLineAndExitTwo(t *testing.T) {
	t.Parallel()
	bad := filepath.Join(t.TempDir(), "cases.yaml")
	require.NoError(t, os.WriteFile(bad, []byte("cases: [{name: a}]"), 0o600))
	for line, want := range map[string]string{
		"nats":                            "needs a command: config",
		"nats foo":                        `no command "foo"; allowed: config`,
		"secrets":                         "needs a command: init, show",
		"process":                         "needs a command: apply, check, rehearse, remove, rollback, versions",
		"upgrade":                         "needs a command: cluster, kyma",
		"upgrade everything":              `no command "everything"`,
		"worker":                          "needs a command: check",
		"forward":                         "forward needs PORT=HOST:PORT",
		"healthcheck":                     "healthcheck needs a URL",
		"worker check":                    "needs --worker NAME",
		"worker check --worker a":         "needs the command that starts the worker after --, or --attach",
		"worker check --worker A -- true": "--worker: worker name",
		"worker check --worker a --attach -- true":               "leave out",
		"worker check --worker a --case " + bad + " -- true":     "cases[0]",
		"worker check --worker a --case " + bad + ".not -- true": "--case: open",
		"worker check --worker a -- /no/such/program":            "no such program",
		"worker check --worker a --check nothing -- true":        `check "nothing"`,
		"worker check --worker a --step A.B -- true":             `step "A.B"`,
	} {
		r := run(t, "", strings.Fields(line)...)
		if r.code != 2 || !strings.Contains(r.err, want) || strings.Count(r.err, "\n") != 1 || r.out != "" {
			t.Errorf("keb %s: exit code %d, %q, want 2 and %q in one line; printed %q", line, r.code, r.err, want, r.out)
		}
	}
}

func TestWorkerCheck_List_PrintsChecks(t *testing.T) {
	t.Parallel()
	r := run(t, "", "worker", "check", "--list")
	if r.code != 0 || !strings.Contains(r.out, "result-first") || strings.Count(r.out, "\n") < 30 {
		t.Errorf("exit code %d, %q, %q", r.code, r.out, r.err)
	}
}
