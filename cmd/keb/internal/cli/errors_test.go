package cli_test

import (
	"strings"
	"testing"
)

func TestErrors_Groups_AreTables(t *testing.T) {
	t.Parallel()
	_, addr := newAPI(t, map[string][]string{"GET /errors": {
		`200 {"time":"2026-11-21T22:05:00Z","countedAt":"2026-11-21T22:01:00Z","now":{"operations":44,"others":{"errors":3,"operations":3},"groups":[
 {"reason":"failing","key":"3f2a9c0d1b4e5f60","error":{"component":"edp","reason":"err_http","message":"status 503"},"count":41,
  "first":"2026-11-21T22:00:00Z","last":"2026-11-21T22:00:59Z","steps":[{"worker":"edp","step":"EDP_Registration","count":40},{"worker":"edp","step":"X","count":1}]}]},
 "calm":[{"reason":"polling","step":"Check_Runtime","count":12,"long":true}],"failed":{"operations":0,"groups":[]},"failedSince":"2026-11-20T22:00:00Z"}`,
		`200 {"time":"2026-11-21T22:05:00Z","countedAt":"2026-11-21T22:05:00Z","now":{"groups":[]},"calm":[],"failed":{"groups":[]}}`,
	}})
	got := run(t, "", "errors", "--operator-addr", addr)
	text := strings.Join(strings.Fields(got.out), " ")
	want := "not up to date: counted 4m00s ago now: 44 operations OPERATIONS REASON FIRST LAST KEY STEP ERROR " +
		"41 failing 2026-11-21T22:00:00Z 2026-11-21T22:00:59Z 3f2a9c0d1b4e5f60 EDP_Registration and 1 more edp: err_http: status 503 " +
		"and 3 operations with 3 other errors no action needed: 12 polling at Check_Runtime (for more than half of its time) " +
		"no operation has failed in the last 24 hours"
	if got.code != 0 || text != want {
		t.Errorf("got %d\n%s\nwant\n%s", got.code, text, want)
	}
	expect(t, run(t, "", "errors", "--operator-addr", addr), 0,
		"no operation fails or stands still\n\nno operation has failed in the last 24 hours\n", "")
}

func TestDeadLetters_Commands_CallTheAPI(t *testing.T) {
	t.Parallel()
	const letter = `"id":17,"time":"2026-11-21T22:00:00Z","stream":"KEB_RESULTS","subject":"keb.result.edp.X","consumer":"orchestrator","reason":"not a readable\nCloudEvent","size":3`
	api, addr := newAPI(t, map[string][]string{
		"GET /dead-letters":             {`200 {"data":[{` + letter + `}],"count":1,"totalCount":60,"nextBefore":17}`},
		"GET /dead-letters/17":          {`200 {` + letter + `,"redrive":"The result counts once.","headers":{"a":"b"},"payload":"{\n  \"x\": 1\n}\u001b[2J"}`},
		"GET /dead-letters/18":          {`404 {"error":"there is no dead letter"}`},
		"POST /dead-letters/17/redrive": {`204 `},
		"DELETE /dead-letters/17":       {`204 `},
	})
	do := func(command string) result {
		return run(t, "", append(strings.Fields("dead-letters "+command), "--operator-addr", addr)...)
	}
	got := do("list --before 20 --page-size 2")
	if text := strings.Join(strings.Fields(got.out), " "); got.code != 0 || text != "ID TIME CONSUMER SUBJECT OPERATION BYTES REASON "+
		"17 2026-11-21T22:00:00Z orchestrator keb.result.edp.X - 3 not a readable CloudEvent 60 dead letters in total; see --before 17" {
		t.Errorf("%+v", got)
	}
	if got := do("show 17"); got.code != 0 || strings.Contains(got.out, "\x1b") || !strings.HasSuffix(got.out, "headers\n  a: b\npayload\n  {\n    \"x\": 1\n  }[2J\n") ||
		!strings.Contains(got.out, "redrive      The result counts once.\n") {
		t.Errorf("%+v", got)
	}
	if got := do(""); got.code != 0 || !strings.Contains(got.out, "not a readable CloudEvent") {
		t.Errorf("without a command: %+v", got)
	}
	expect(t, do("show 18"), 1, "", "keb: there is no dead letter 18; keb dead-letters list shows them\n")
	expect(t, do("redrive 17"), 0, "dead letter 17 redriven\n", "")
	expect(t, do("drop 17"), 0, "dead letter 17 dropped\n", "")
	if got := do("drop"); got.code != 2 || !strings.Contains(got.err, "the ID of a dead letter is missing") {
		t.Errorf("%+v", got)
	}
	if api.asked[0] != "GET /dead-letters?before=20&page_size=2" {
		t.Errorf("asked %v", api.asked)
	}
}
