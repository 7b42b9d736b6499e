package cli_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

func TestProcess_ChangeRunningSystem(t *testing.T) {
	t.Setenv("USER", "jane")
	file := filepath.Join(t.TempDir(), "hello.yaml")
	require.NoError(t, os.WriteFile(file, []byte("operation: update\n"), 0o600))
	const versions = `{"data":[{"version":2,"action":"rollback","restored":0,"by":"john","time":"2026-11-21T09:00:00Z","overlays":[]},` +
		`{"version":1,"action":"apply","name":"hello","by":"jane","time":"2026-11-21T08:00:00Z","overlays":[{"name":"hello","digest":"ab","version":1,"appliedBy":"jane","appliedAt":"2026-11-21T08:00:00Z"}]}],"count":2,"totalCount":2}`
	api, addr := newAPI(t, map[string][]string{
		"PUT /overlays/hello": {
			`200 {"version":0,"changed":true,"diff":"+  Hello\n","warnings":[]}`, `200 {"version":1,"changed":true,"diff":"+  Hello\n","warnings":["provision: odd"]}`,
			`400 {"error":"applied/hello.yaml:1: the key \"changes\" is missing"}`,
		},
		"DELETE /overlays/hello": {`200 {"version":2,"changed":true,"diff":"","warnings":[]}`, `404 {"error":"overlay \"hello\": not found"}`},
		"POST /overlays/rollback": {
			`200 {"version":2,"changed":false,"diff":"","warnings":[]}`, `404 {"error":"version 7 of the overlays: not found"}`,
		},
		"GET /overlays": {
			`200 {"version":2,"inUse":1,"problem":"a.yaml:1: wrong","problemSince":"2026-11-21T09:00:00Z","files":[{"name":"a.yaml","digest":"0123456789abcdef"}],"applied":[]}`,
			`200 {"version":0,"inUse":0,"files":[],"applied":[]}`,
		},
		"GET /overlays/versions": {"200 " + versions, `200 {"data":[],"count":0,"totalCount":0}`},
	})
	process := func(args ...string) result {
		return run(t, "operation: update\n", append([]string{"process", "--operator-addr", addr}, args...)...)
	}
	expect(t, process("apply", file, "--dry-run"), 0, "+  Hello\nnot applied (--dry-run)\n", "")
	expect(t, process("apply", "-", "--name", "hello"), 0, "+  Hello\napplied as version 1\n", "warning: provision: odd\n")
	expect(t, process("apply", file), 1, "",
		"keb: apply overlay hello: the operator API answers 400: applied/hello.yaml:1: the key \"changes\" is missing\n")
	expect(t, process("apply", "-"), 2, "", "keb: apply - needs --name\n")
	expect(t, process("remove", "hello"), 0, "applied as version 2\n", "")
	expect(t, process("remove", "hello"), 1, "", "keb: there is no applied overlay hello; keb process versions shows them\n")
	expect(t, process("rollback", "2"), 0, "no change; version 2 applies\n", "")
	expect(t, process("rollback", "7"), 1, "", "keb: there is no version 7; keb process versions shows them\n")
	expect(t, process("rollback", "x"), 2, "", "keb: version \"x\": must be a number of keb process versions, or 0\n")
	want := []string{
		`PUT /overlays/hello {"content":"operation: update\n","dryRun":true,"by":"jane"}`, `PUT /overlays/hello {"content":"operation: update\n","by":"jane"}`,
		`PUT /overlays/hello {"content":"operation: update\n","by":"jane"}`, `DELETE /overlays/hello {"by":"jane"}`, `DELETE /overlays/hello {"by":"jane"}`,
		`POST /overlays/rollback {"version":2,"by":"jane"}`, `POST /overlays/rollback {"version":7,"by":"jane"}`,
	}
	if diff := cmp.Diff(want, api.asked); diff != "" {
		t.Errorf("requests differ (-want +got):\n%s", diff)
	}
	expect(t, process("versions"), 0, ""+
		"REJECTED since 2026-11-21T09:00:00Z, the last valid overlays apply: a.yaml:1: wrong\n"+
		"file a.yaml, digest 0123456789ab\n"+
		"VERSION  CHANGE         TIME                  BY    OVERLAYS\n"+
		"2        rollback to 0  2026-11-21T09:00:00Z  john  -\n"+
		"1*       apply hello    2026-11-21T08:00:00Z  jane  hello\n", "")
	expect(t, process("versions"), 0, "no overlay was applied yet\n", "")
}
