package cli_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFactsReplay_ManyFacts_AsksUntilThereAreNoMore(t *testing.T) {
	t.Parallel()
	api, addr := newAPI(t, map[string][]string{
		"POST /facts/replay": {`200 {"published":700,"next":"019aa7a0-5e0a-7c1c-9d43-0c5f0a4d3b11"}`, `200 {"published":31}`},
	})
	expect(t, run(t, "", "facts", "replay", "--since", "2026-11-21T08:00:00Z", "--operator-addr", addr), 0,
		"731 facts published again\n", "700 facts published again so far\n")
	want := []string{
		`POST /facts/replay {"since":"2026-11-21T08:00:00Z"}`,
		`POST /facts/replay {"since":"2026-11-21T08:00:00Z","next":"019aa7a0-5e0a-7c1c-9d43-0c5f0a4d3b11"}`,
	}
	if diff := cmp.Diff(want, api.asked); diff != "" {
		t.Errorf("requests differ (-want +got):\n%s", diff)
	}
}
