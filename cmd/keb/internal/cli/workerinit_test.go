package cli_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWorkerInit_NewProject_PrintsNextCommands(t *testing.T) {
	t.Chdir(t.TempDir())
	got := run(t, "", "worker", "init", "--lang", "go", "audit-log")
	lines := strings.Split(strings.TrimSpace(got.out), "\n")
	if got.code != 0 || len(lines) != 4 || !strings.Contains(lines[0], "Audit_Log_Create and Audit_Log_Delete") ||
		!strings.Contains(lines[3], "keb worker check --worker audit-log") {
		t.Errorf("code %d, %s%s", got.code, got.out, got.err)
	}
	_, err := os.Stat("audit-log/steps.go")
	require.NoError(t, err)
	var created struct{ Next []string }
	require.NoError(t, json.Unmarshal([]byte(run(t, "", "worker", "init", "--lang", "go", "-o", "json", "other").out), &created))
	if len(created.Next) != 3 {
		t.Errorf("next commands: %q", created.Next)
	}
	expect(t, run(t, "", "worker", "init", "--lang", "go", "audit-log"), 1, "",
		"keb: worker init: audit-log exists already; choose another name, or remove it\n")
}

func TestWorkerInit_WrongUsage_IsNamed(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, test := range []struct{ args, want string }{
		{"", "init needs NAME"},
		{"audit-log", `--lang "": must be one of go, node, python`},
		{"--lang go Audit", `name "Audit": use lower-case letters`},
		{"--lang python audit-log", "--keb is missing"},
		{"--lang go avs", `name "avs": a worker of KEB has this name`},
	} {
		got := run(t, "", append([]string{"worker", "init"}, strings.Fields(test.args)...)...)
		if got.code != 2 || !strings.Contains(got.err, test.want) {
			t.Errorf("%s: code %d, %s", test.args, got.code, got.err)
		}
	}
	left, err := os.ReadDir(".")
	require.NoError(t, err)
	if len(left) > 0 {
		t.Errorf("these are left: %v", left)
	}
}
