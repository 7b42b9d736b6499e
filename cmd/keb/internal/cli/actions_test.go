package cli_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestActions_JSON_PrintAnObject(t *testing.T) {
	t.Parallel()
	hold := `{"id":"h-1","scope":{"worker":"edp"},"reason":"outage","createdAt":"2026-11-21T08:00:00Z"}`
	_, addr := newAPI(t, map[string][]string{
		"DELETE /holds/h-1":            {"204 "},
		"GET /webhooks":                {`200 {"data":[{"id":"w-1","name":"chat"}],"count":1,"totalCount":1}`},
		"DELETE /webhooks/w-1":         {"204 "},
		"POST /dead-letters/7/redrive": {"204 "},
		"DELETE /dead-letters/7":       {"204 "},
		"POST /facts/replay":           {`200 {"published":31}`},
		"DELETE /workers/edp/ramps":    {"204 "},
		"POST /batches":                {`200 {"count":3,"sample":[],"scope":{"worker":"edp"},"holds":[` + hold + `]}`, `200 {"count":0,"sample":[]}`, `200 {"count":0,"sample":[]}`},
	})
	for _, c := range []struct{ command, want string }{
		{"hold release h-1", `{"id":"h-1","result":"released"}`},
		{"webhooks delete chat", `{"id":"w-1","result":"deleted"}`},
		{"dead-letters redrive 7", `{"data":[{"id":"7","result":"redriven"}]}`},
		{"dead-letters drop 7", `{"data":[{"id":"7","result":"dropped"}]}`},
		{"facts replay --since 2h", `{"published":31}`},
		{"worker ramp edp --off", `{"id":"edp","result":"no ramp"}`},
		{"operations --worker edp --do resume -y", `{"released":[{"id":"h-1"`},
		{"operations --worker edp --do resume -y", `{"released":[]}`},
		{"operations --worker edp --do cancel --reason r -y", `{"count":0,"sample":[]}`},
	} {
		got := run(t, "", append(strings.Fields(c.command), "-o", "json", "--operator-addr", addr)...)
		var compact bytes.Buffer
		if err := json.Compact(&compact, []byte(got.out)); err != nil || got.code != 0 || !strings.HasPrefix(compact.String(), c.want) {
			t.Errorf("%s: code %d, output %q, want %s\n%s", c.command, got.code, got.out, c.want, got.err)
		}
	}
}

func TestWebhooks_URLFromInput_IsSent(t *testing.T) {
	t.Setenv("USER", "jane")
	api, addr := newAPI(t, map[string][]string{"POST /webhooks": {`200 {"id":"w-1","name":"chat","origin":"https://hooks.example.org"}`}})
	got := run(t, "https://hooks.example.org/CANARY\n", "webhooks", "create", "chat", "-", "--format", "slack", "--operator-addr", addr)
	if got.code != 0 || len(api.asked) != 1 || !strings.Contains(api.asked[0], `"url":"https://hooks.example.org/CANARY"`) {
		t.Errorf("%+v, requests %v", got, api.asked)
	}
	if got := run(t, " \n", "webhooks", "create", "chat", "-", "--operator-addr", addr); got.err != "keb: the standard input has no URL\n" || got.code != 2 || len(api.asked) != 1 {
		t.Errorf("without a URL: %+v", got)
	}
}
