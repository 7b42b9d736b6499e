package jobs_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/services/jobs"
)

const day = 24 * time.Hour

func TestExpiry_OldTrials_Expire(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 6, 30, 12, 0, 0, 0, time.UTC)
	before := func(d time.Duration) time.Time { return now.Add(-d) }
	instances := func() []*instance {
		return []*instance{
			{ID: "old", Plan: "trial", State: "succeeded", Created: before(15 * day)},
			{ID: "old-suspended", Plan: "trial", State: "suspended", Created: before(15 * day)},
			{ID: "old-failed", Plan: "trial", State: "failed", Created: before(15 * day)},
			{ID: "old-leaving", Plan: "trial", State: "deprovisioning", Created: before(15 * day)},
			{ID: "old-gone", Plan: "trial", State: "deprovisioned", Created: before(15 * day)},
			{ID: "old-incomplete", Plan: "trial", State: "deprovisionincomplete", Created: before(15 * day)},
			{ID: "old-expired", Plan: "trial", State: "suspended", Created: before(40 * day), Expired: before(20 * day)},
			{ID: "old-left", Plan: "trial", State: "failed", Created: before(40 * day), Expired: before(20 * day)},
			{ID: "old-stuck", Plan: "trial", State: "failed", Created: before(15 * day), Leaving: true},
			{ID: "just-not", Plan: "trial", State: "succeeded", Created: before(14 * day)},
			{ID: "just", Plan: "trial", State: "succeeded", Created: before(14*day + time.Second)},
			{ID: "undated", Plan: "trial", State: "succeeded"},
			{ID: "bought", Plan: "azure", State: "succeeded", Created: before(400 * day)},
			{ID: "free", Plan: "free", State: "succeeded", Created: before(29 * day)},
			{ID: "free-old", Plan: "free", State: "succeeded", Created: before(31 * day)},
		}
	}
	tests := map[string]struct {
		change func(*jobs.Config)
		want   []string
	}{
		"trial by default": {func(*jobs.Config) {}, []string{"just", "old", "old-failed", "old-left", "old-suspended"}},
		"free as well": {
			func(c *jobs.Config) { c.ExpiryPlans = []string{"trial", "free"} }, []string{"free-old", "just", "old", "old-failed", "old-left", "old-suspended"},
		},
		"free only, after a week": {
			func(c *jobs.Config) { c.ExpiryPlans, c.FreeAge = []string{"free"}, 7*day }, []string{"free", "free-old"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStandin(t, instances()...)
			cfg := s.config()
			tt.change(&cfg)
			deps := jobs.Deps{Now: func() time.Time { return now }}

			cfg.DryRun = true
			dry, err := jobs.Run(t.Context(), jobs.TrialExpiry, cfg, deps)
			if err != nil || dry.Found != len(tt.want) || dry.Started != len(tt.want) || len(s.requests()) > 0 {
				t.Errorf("dry run: %+v, %v, requests %v", dry, err, s.requests())
			}
			cfg.DryRun = false
			got, err := jobs.Run(t.Context(), jobs.TrialExpiry, cfg, deps)
			if err != nil || got.Found != len(tt.want) || got.Started != len(tt.want) {
				t.Errorf("%+v, %v; want %d started", got, err, len(tt.want))
			}
			var want []string
			for _, id := range tt.want {
				want = append(want, "PUT /expire/service_instance/"+id)
			}
			if diff := cmp.Diff(want, s.requests()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if slices.Contains(s.agents, "accountcleanup-job") {
				t.Error("an expiry has the user agent of the clean-up of sub-accounts")
			}
		})
	}
}

func TestExpiry_Rejected_IsReported(t *testing.T) {
	t.Parallel()
	old := time.Now().Add(-100 * day)
	s := newStandin(
		t, &instance{ID: "a", Plan: "trial", State: "succeeded", Created: old, Answer: []int{400}},
		&instance{ID: "b", Plan: "trial", State: "succeeded", Created: old, Answer: []int{404}},
		&instance{ID: "c", Plan: "trial", State: "succeeded", Created: old, Left: "suspended"},
	)
	cfg := s.config()
	cfg.Wait = true
	want := jobs.Report{Job: "trial-expiry", Found: 3, Started: 1, Completed: 1, Skipped: 1, Failed: []jobs.Failure{
		{Instance: "a", Reason: "broker: PUT /expire/service_instance/{instance_id}: status 400: instance a says no"},
	}}
	if diff := cmp.Diff(want, run(t, jobs.TrialExpiry, cfg)); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}
