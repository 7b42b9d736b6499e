package cli_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

func TestLimits_ApplyAndShow(t *testing.T) {
	t.Setenv("USER", "jane")
	file := filepath.Join(t.TempDir(), "limits.yaml")
	require.NoError(t, os.WriteFile(file, []byte("limits: []\n"), 0o600))
	const shown = `{"version":2,"document":"limits: [...]\n","appliedBy":"jane","appliedAt":"2026-11-21T08:00:00Z","limits":[` +
		`{"name":"ias","scope":{"worker":["ias"],"type":["provision","update"]},"commands":10,"rate":"5/s","use":[{"inUse":10,"waiting":37}]},` +
		`{"name":"tenant","scope":{},"each":"globalAccount","operations":100,"operationUse":[{"value":"ga-1","inUse":100,"waiting":12}]},{"name":"all","scope":{},"operations":500,"operationUse":[{"inUse":140,"waiting":0}]},{"name":"both","scope":{},"each":"plan","commands":3,"use":[{"value":"azure","inUse":3,"waiting":2},{"value":"aws","inUse":1,"waiting":0}]}],"weights":{"ga-1":3}}`
	api, addr := newAPI(t, map[string][]string{
		"PUT /limits": {
			`200 {"version":1,"changes":["ias: added: at most 10 commands in flight"]}`, `200 {"version":2,"changes":["ias: removed"]}`,
			`200 {"version":2,"changes":[]}`, `400 {"error":"document: line 1: limits: must be a list"}`,
		},
		"GET /limits": {"200 " + shown, "200 " + shown, `200 {"version":0,"document":"","limits":[]}`},
	})
	apply := func(args ...string) result {
		return run(t, "limits: []", append([]string{"limits", "apply", "--operator-addr", addr}, args...)...)
	}
	expect(t, apply(file, "--dry-run"), 0, "ias: added: at most 10 commands in flight\nnot applied (--dry-run)\n", "")
	expect(t, apply("-"), 0, "ias: removed\napplied as version 2\n", "")
	expect(t, apply(file), 0, "no change\n", "")
	expect(t, apply(file), 1, "", "keb: apply limits: the operator API answers 400: document: line 1: limits: must be a list\n")
	want := []string{
		`PUT /limits {"document":"limits: []\n","dryRun":true,"by":"jane"}`, `PUT /limits {"document":"limits: []","by":"jane"}`,
		`PUT /limits {"document":"limits: []\n","by":"jane"}`, `PUT /limits {"document":"limits: []\n","by":"jane"}`,
	}
	if diff := cmp.Diff(want, api.asked); diff != "" {
		t.Errorf("requests differ (-want +got):\n%s", diff)
	}

	got := run(t, "", "limits", "--operator-addr", addr)
	expect(t, got, 0, ""+
		"LIMIT   SCOPE                                 EACH           RATE  COMMANDS  OPERATIONS  WAITING\n"+
		"ias     type provision or update, worker ias  -              5/s   10/10     -           37\n"+
		"tenant  everything                            globalAccount  -     -         100         12\n"+
		"                                              ga-1                           100         12\n"+
		"all     everything                            -              -     -         140/500     -\n"+
		"both    everything                            plan           -     3         -           2\n"+
		"                                              azure                3                     2\n"+
		"                                              aws                  1                     -\n"+
		"weight of ga-1: 3\nversion 2, applied by jane at 2026-11-21T08:00:00Z\n", "")
	expect(t, run(t, "", "limits", "document", "--operator-addr", addr), 0, "limits: [...]\n", "")
	expect(t, run(t, "", "limits", "--operator-addr", addr), 0, "there are no limits\n", "")
}
