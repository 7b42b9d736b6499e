package cli_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const incompleteRuntimes = `200 {"data": [{"instanceID": "i-1", "status": {"state": "deprovisionincomplete"}},
	{"instanceID": "i-2", "status": {"state": "deprovisionincomplete"}}], "totalCount": 2}`

func TestJob_Run_PrintsReport(t *testing.T) {
	t.Parallel()
	a, addr := newAPI(t, map[string][]string{
		"GET /runtimes": {incompleteRuntimes},
		"POST /runtimes/i-1/deprovision-retrigger": {`202 {"operation": "op-1"}`},
		"POST /runtimes/i-2/deprovision-retrigger": {`404 {"error": "there is no such instance"}`},
	})
	got := run(t, "", "job", "deprovision-retrigger", "--parallel", "1", "--osb-addr", addr)
	want := result{out: "deprovision-retrigger: found 2, started 1, skipped 1, failed 0\n"}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	asked := []string{
		"GET /runtimes?op_detail=last&page_size=100&state=deprovisionincomplete",
		"POST /runtimes/i-1/deprovision-retrigger", "POST /runtimes/i-2/deprovision-retrigger",
	}
	if diff := cmp.Diff(asked, a.asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

func TestJob_InstanceFails_ExitsOne(t *testing.T) {
	t.Parallel()
	_, addr := newAPI(t, map[string][]string{
		"GET /runtimes": {incompleteRuntimes},
		"POST /runtimes/i-1/deprovision-retrigger": {`200 {}`},
		"POST /runtimes/i-2/deprovision-retrigger": {`400 {"error": "not this one"}`},
	})
	got := run(t, "", "job", "deprovision-retrigger", "--dry-run", "--osb-addr", addr, "-o", "json")
	if got.code != 1 || got.err != "keb: deprovision-retrigger: 1 of 2 instances failed\n" {
		t.Errorf("%+v", got)
	}
	for _, want := range []string{`"dryRun": true`, `"started": 1`, `"instance": "i-2"`, `not this one`} {
		if !strings.Contains(got.out, want) {
			t.Errorf("the report does not contain %q:\n%s", want, got.out)
		}
	}
}

func TestJob_Cleanup_QueriesSimulatedInventory(t *testing.T) {
	t.Parallel()
	_, landscape := newAPI(t, map[string][]string{
		"POST /cis/oauth/token":             {`200 {"access_token": "t", "token_type": "bearer"}`},
		"GET /cis/events/v1/events/central": {`200 {"totalPages": 1, "events": [{"entityId": "gone", "eventType": "Subaccount_Deletion"}]}`},
	})
	_, addr := newAPI(t, map[string][]string{
		"GET /runtimes":                        {`200 {"data": [{"instanceID": "i", "subAccountID": "gone", "serviceClassID": "s", "servicePlanID": "p"}], "totalCount": 1}`},
		"DELETE /oauth/v2/service_instances/i": {`202 {"operation": "op"}`},
	})
	got := run(t, "", "job", "subaccount-cleanup", "--osb-addr", addr, "--landscape-addr", landscape)
	if want := (result{out: "subaccount-cleanup: found 1, started 1, skipped 0, failed 0\n"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestJob_UsageErrors_NameAllowedValues(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no name":      {[]string{"job"}, 2, "the name of a job is missing: use one of deprovision-retrigger, trial-expiry, subaccount-cleanup"},
		"unknown name": {[]string{"job", "tidy"}, 2, `there is no job "tidy"; use one of deprovision-retrigger`},
		"unknown flag": {[]string{"job", "trial-expiry", "--wet"}, 2, "unknown flag: --wet"},
		"argument":     {[]string{"job", "trial-expiry", "now"}, 2, `unexpected argument "now"`},
		"duration":     {[]string{"job", "trial-expiry", "--trial-age", "14d"}, 2, "want a duration such as 30m or 336h"},
		"plan":         {[]string{"job", "trial-expiry", "--plans", "azure"}, 2, `plan "azure" does not expire`},
		"parallel":     {[]string{"job", "trial-expiry", "--parallel", "0"}, 2, "--parallel (KEB_JOB_PARALLEL): 0 is not allowed, use 1 to 100"},
		"address":      {[]string{"job", "trial-expiry", "--osb-addr", "ftp://x"}, 2, "OSB API:"},
		"unreachable":  {[]string{"job", "trial-expiry", "--osb-addr", "127.0.0.1:1"}, 1, "connection refused; is keb up running?"},
		"no time":      {[]string{"up", "--retrigger-every", "-5m"}, 1, "--retrigger-every (KEB_RETRIGGER_EVERY): -5m0s is negative; 0 means never"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := run(t, "", tt.args...)
			if got.code != tt.code || !strings.Contains(got.err, tt.want) || strings.Count(got.err, "\n") != 1 {
				t.Errorf("exit code %d, want %d; error %q, want one line with %q", got.code, tt.code, got.err, tt.want)
			}
		})
	}
}
