package cli_test

import (
	"strings"
	"testing"
)

func TestTop_WithoutTerminal_PrintsOneSnapshot(t *testing.T) {
	t.Parallel()
	api, addr := newAPI(t, map[string][]string{
		"GET /overview":   {`200 {"time":"2026-11-21T22:01:00Z","operations":[{"type":"provision","state":"in progress","count":3}],"waiting":{"failing":2},"lastHour":{"started":9}}`},
		"GET /throughput": {`200 {"data":[{"time":"2026-11-21T22:00:00Z","types":{"provision":{"started":6}}}],"bucketSeconds":60}`},
		"GET /errors": {`200 {"time":"2026-11-21T22:01:00Z","now":{"groups":[{"reason":"failing","steps":[{"step":"AVS_Tags"}],"count":2,"first":"2026-11-21T22:00:00Z","error":{"component":"avs","message":"down"}}],"operations":2},
 "failed":{"groups":[{"reason":"failed","count":4,"last":"2026-11-21T21:01:00Z","steps":[],"error":{"component":"ias","message":"quota"}}],"operations":4}}`},
		"GET /workers": {`200 {"data":[{"name":"avs","alive":true,"replicas":1}]}`},
		"GET /holds":   {`200 {"data":[]}`},
		"GET /limits":  {`200 {"limits":[]}`},
	})
	got := run(t, "", "top", "--operator-addr", addr)
	if got.code != 0 || strings.Contains(got.out, "\x1b") || strings.Contains(got.out, "HELD") || len(api.asked) != 6 {
		t.Errorf("%+v, %d requests", got, len(api.asked))
	}
	text := strings.Join(strings.Fields(got.out), " ")
	for _, want := range []string{"provision 0 3 6.0 0 0", "2 failing 1m00s AVS_Tags avs: down", "4 1h00m - ias: quota", "avs 1 0 0 0 0"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, got.out)
		}
	}
	if got := run(t, "", "top", "-o", "json", "--operator-addr", addr); got.code != 0 || !strings.Contains(got.out, `"bucketSeconds": 60`) {
		t.Errorf("json: %+v", got)
	}
	expect(t, run(t, "", "top", "--every", "1ms"), 2, "", "keb: --every must be at least 100ms\n")
	if got := run(t, "", "top", "--operator-addr", "127.0.0.1:1"); got.code != 1 || strings.Count(got.err, "\n") != 1 {
		t.Errorf("away: %+v", got)
	}
}
