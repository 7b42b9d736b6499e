package osbtest_test

import (
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/osb/osbtest"
)

func TestRun_CorrectBroker_Passes(t *testing.T) {
	t.Parallel()
	h := newHarness(newFake(""))
	cfg := h.config(serve(t, h))
	cfg.RequireAll = true
	osbtest.Run(t, cfg)
}

func TestRun_RegionAndOrgSpace_Passes(t *testing.T) {
	t.Parallel()
	h := newHarness(newFake(""), osb.WithRequireOrgSpace(true))
	cfg := h.config(serve(t, h) + "/oauth/cf-eu10/")
	cfg.RequireOrgSpace, cfg.RequireAll, cfg.Rounds = true, true, 1
	osbtest.Run(t, cfg)
}

func TestCheck_MissingNeeds_AreReported(t *testing.T) {
	t.Parallel()
	h := newHarness(newFake(""))
	cfg := h.config(serve(t, h))
	cfg.Hooks, cfg.Fixtures.PlanB = osbtest.Hooks{}, ""
	cfg.Only = []string{"P06", "P07"}
	got := map[string]osbtest.Outcome{}
	var why []string
	for _, r := range osbtest.Check(t.Context(), cfg) {
		got[r.Case.ID] = r.Outcome
		why = append(why, r.Messages...)
	}
	if diff := cmp.Diff(map[string]osbtest.Outcome{"P06": osbtest.Passed, "P07": osbtest.NotRun}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"needs hook Hold", "needs fixture PlanB"}, why); diff != "" {
		t.Error(diff)
	}
	cfg.RequireAll = true
	for _, r := range osbtest.Check(t.Context(), cfg) {
		if r.Case.ID == "P07" && r.Outcome != osbtest.Failed {
			t.Errorf("with RequireAll a case that cannot run is %s", r.Outcome)
		}
	}
}

func TestCases_IDs_AreUniqueAndValid(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, c := range osbtest.Cases() {
		if !regexp.MustCompile(`^[GCPLFDOUB]\d\d$`).MatchString(c.ID) || c.Name == "" || seen[c.ID] {
			t.Errorf("case %q %q", c.ID, c.Name)
		}
		seen[c.ID] = true
	}
}
