package cli_test

import (
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHold_CreateListRelease(t *testing.T) {
	t.Setenv("USER", "jane")
	const id = "019aa7a0-5e0a-7c1c-9d43-0c5f0a4d3b11"
	hold := `{"id":"` + id + `","scope":{"plan":"azure","worker":"edp"},"orders":"reject","reason":"outage","createdBy":"jane","createdAt":"2026-11-21T08:00:00Z","operations":3}`
	api, addr := newAPI(t, map[string][]string{
		"POST /holds":         {"200 " + hold},
		"GET /holds":          {`200 {"data":[` + hold + `],"count":1,"totalCount":1}`, `200 {"data":[],"count":0,"totalCount":0}`},
		"DELETE /holds/" + id: {"204 ", `404 {"error":"there is no hold"}`},
	})
	expect(t, run(t, "", "hold", "create", "--plan", "azure", "--worker", "edp", "--reason", "outage", "--orders", "reject",
		"--until", "2026-11-21T10:00:00Z",
		"--operator-addr", addr), 0, "hold "+id+": plan azure, worker edp\n", "")
	got := run(t, "", "hold", "list", "--operator-addr", addr)
	if !regexp.MustCompile(`(?m)^HOLD +SCOPE +ORDERS +OPERATIONS .*\n` + id + `  plan azure, worker edp  reject  3 .*jane  released  outage *\n$`).MatchString(got.out) {
		t.Errorf("list prints\n%s", got.out)
	}
	expect(t, run(t, "", "hold", "list", "--operator-addr", addr), 0, "there are no holds\n", "")
	expect(t, run(t, "", "hold", "release", id, "--operator-addr", addr), 0, "hold "+id+" released\n", "")
	expect(t, run(t, "", "hold", "release", id, "--operator-addr", addr), 1, "", "keb: there is no hold "+id+"; keb hold list shows them\n")
	want := `POST /holds {"scope":{"plan":"azure","worker":"edp"},"reason":"outage","orders":"reject","until":"2026-11-21T10:00:00Z","by":"jane"}`
	if diff := cmp.Diff(want, api.asked[0]); diff != "" {
		t.Errorf("request differs (-want +got):\n%s", diff)
	}
}
