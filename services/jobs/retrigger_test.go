package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/jobs"
)

// incomplete returns n instances whose deprovisioning skipped some steps.
func incomplete(n int) []*instance {
	var all []*instance
	for i := range n {
		all = append(all, &instance{ID: fmt.Sprintf("i-%03d", i), State: "deprovisionincomplete"})
	}
	return all
}

func TestRetrigger_OnlyIncomplete_AreRetriggered(t *testing.T) {
	t.Parallel()
	s := newStandin(t, append(incomplete(3), &instance{ID: "well", State: "succeeded"}, &instance{ID: "leaving", State: "deprovisioning"})...)
	got := run(t, jobs.DeprovisionRetrigger, s.config())
	want := jobs.Report{Job: "deprovision-retrigger", Found: 3, Started: 3, Failed: []jobs.Failure{}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	asked := []string{
		"POST /runtimes/i-000/deprovision-retrigger", "POST /runtimes/i-001/deprovision-retrigger", "POST /runtimes/i-002/deprovision-retrigger",
	}
	if diff := cmp.Diff(asked, s.requests()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestRetrigger_DryRun_ChangesNothing(t *testing.T) {
	t.Parallel()
	all := incomplete(3)
	all[2].Running = "op-of-another-client"
	s := newStandin(t, all...)
	cfg := s.config()
	cfg.DryRun, cfg.Wait = true, true
	got := run(t, jobs.DeprovisionRetrigger, cfg)
	want := jobs.Report{Job: "deprovision-retrigger", DryRun: true, Found: 3, Started: 2, Skipped: 1, Failed: []jobs.Failure{}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	for _, asked := range s.requests() {
		if !strings.HasSuffix(asked, "?dry_run=true") {
			t.Errorf("a dry run requests %s", asked)
		}
	}
	if len(s.polls) > 0 {
		t.Errorf("a dry run polls %v", s.polls)
	}
}

func TestRetrigger_ShrinkingList_SkipsNoInstance(t *testing.T) {
	t.Parallel()
	const n = 250
	s := newStandin(t, incomplete(n)...)
	parts := 0
	s.listed = func() { // after each part, one of its instances leaves the list
		if parts++; parts*100 < n {
			s.instances[(parts-1)*100+50].State = "deprovisioned"
		}
	}
	got := run(t, jobs.DeprovisionRetrigger, s.config())
	if len(got.Failed) > 0 || got.Found != n {
		t.Errorf("found %d, failed %v; want %d, because the others were read before", got.Found, got.Failed, n)
	}
	asked := map[string]bool{}
	for _, request := range s.requests() {
		if asked[request] {
			t.Errorf("%s twice", request)
		}
		asked[request] = true
	}
	if len(asked) != n {
		t.Errorf("%d of %d instances were retriggered", len(asked), n)
	}
}

func TestRetrigger_OneFailure_ContinuesWithRest(t *testing.T) {
	t.Parallel()
	all := incomplete(6)
	all[0].Answer = []int{400}
	all[1].Answer = []int{409}
	all[2].Answer = []int{404}
	all[3].Answer = []int{503, 502} // then it succeeds
	all[4].Answer = []int{500, 500, 500, 500}
	s := newStandin(t, all...)
	got := run(t, jobs.DeprovisionRetrigger, s.config())
	want := jobs.Report{Job: "deprovision-retrigger", Found: 6, Started: 2, Skipped: 2, Failed: []jobs.Failure{
		{Instance: "i-000", Reason: "broker: POST /runtimes/{instance_id}/deprovision-retrigger: status 400: instance i-000 says no"},
		{Instance: "i-004", Reason: "broker: POST /runtimes/{instance_id}/deprovision-retrigger: status 500: instance i-004 says no"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	if err := got.Err(); err == nil || err.Error() != "deprovision-retrigger: 2 of 6 instances failed" {
		t.Errorf("error of the report: %v", err)
	}
}

func TestRetrigger_Parallel_IsLimited(t *testing.T) {
	t.Parallel()
	s := newStandin(t, incomplete(12)...)
	s.hold = make(chan struct{})
	cfg := s.config()
	cfg.Parallel = 4
	done := make(chan jobs.Report, 1)
	go func() {
		report, _ := jobs.Run(t.Context(), jobs.DeprovisionRetrigger, cfg, jobs.Deps{})
		done <- report
	}()
	testkit.Eventually(t, waitLimit, "4 parallel requests", func() (ok bool) { s.change(func() { ok = s.busy == 4 }); return ok })
	close(s.hold)
	if report := <-done; report.Started != 12 || s.top != 4 {
		t.Errorf("started %d, at most %d at once; want 12 and 4", report.Started, s.top)
	}
}

func TestRetrigger_Wait_WaitsForOperations(t *testing.T) {
	t.Parallel()
	all := incomplete(3)
	all[1].Ends = "failed"
	all[2].Left = "deprovisionincomplete"
	s := newStandin(t, all...)
	cfg := s.config()
	cfg.Wait = true
	got := run(t, jobs.DeprovisionRetrigger, cfg)
	want := jobs.Report{Job: "deprovision-retrigger", Found: 3, Started: 3, Completed: 1, Failed: []jobs.Failure{
		{Instance: "i-001", Reason: "operation op-i-001 failed: the quota is used up"},
		{Instance: "i-002", Reason: "the deprovisioning did not complete some of its steps again"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

func TestRetrigger_WaitTimeout_ReportsOperation(t *testing.T) {
	t.Parallel()
	all := incomplete(1)
	all[0].Ends = "never"
	s := newStandin(t, all...)
	cfg := s.config()
	cfg.Wait, cfg.WaitTimeout = true, 300*time.Millisecond
	got := run(t, jobs.DeprovisionRetrigger, cfg)
	want := jobs.Report{Job: "deprovision-retrigger", Found: 1, Started: 1, Failed: []jobs.Failure{
		{Instance: "i-000", Reason: "operation op-i-000 did not end within 300ms and continues"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

func TestRetrigger_BrokerAsksForRarePolls_PollsEvery5s(t *testing.T) {
	t.Parallel()
	all := incomplete(1)
	all[0].Ends = "never"
	s := newStandin(t, all...)
	s.retryAfter = "10"
	cfg := s.config()
	cfg.Wait, cfg.WaitTimeout = true, 17*time.Second
	synctest.Test(t, func(t *testing.T) {
		report, err := jobs.Run(t.Context(), jobs.DeprovisionRetrigger, cfg, jobs.Deps{Broker: s})
		if err != nil || len(report.Failed) != 1 {
			t.Errorf("error %v, report %+v", err, report)
		}
	})
	if n := s.polls["i-000"]; n != 4 {
		t.Errorf("%d polls in 17 s, want one every 5 s", n)
	}
}

func TestRetrigger_Stopped_ReportsError(t *testing.T) {
	t.Parallel()
	s := newStandin(t, incomplete(10)...)
	s.hold = make(chan struct{})
	cfg := s.config()
	cfg.Parallel = 2
	ctx, stop := context.WithCancel(t.Context())
	type result struct {
		report jobs.Report
		err    error
	}
	done := make(chan result, 1)
	go func() {
		report, err := jobs.Run(ctx, jobs.DeprovisionRetrigger, cfg, jobs.Deps{})
		done <- result{report, err}
	}()
	testkit.Eventually(t, waitLimit, "2 requests", func() (ok bool) { s.change(func() { ok = s.busy == 2 }); return ok })
	stop()
	got := <-done
	if !errors.Is(got.err, context.Canceled) || !strings.Contains(got.report.Error, "stopped after 2 of 10 instances") {
		t.Errorf("stopped with %v, report %+v", got.err, got.report)
	}
}
