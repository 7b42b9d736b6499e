package cli_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUpgrade_Flags_BuildOrder(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"defaults": {
			[]string{"kyma", "-t", "all"},
			`POST /upgrade/kyma {"targets":{"include":[{"target":"all"}]},"strategy":{"type":"parallel","schedule":"immediate",` +
				`"parallel":{"workers":1}}}`,
		},
		"all of kyma": {
			[]string{
				"kyma", "-t", "account=^ga{1,2}$, plan=azure", "--target", "subaccount=sa-[1,2],region=^eu", "-e", "runtime-id=r,shoot=c,instance-id=i",
				"--parallel-workers", "7", "--strategy", "parallel", "--schedule", "2026-11-21T22:00:00Z", "--maintenancewindow", "--notification",
				"--dry-run", "--version", "2.20.1",
			},
			`POST /upgrade/kyma {"targets":{"include":[{"globalAccount":"^ga{1,2}$","planName":"azure"},{"subAccount":"sa-[1,2]","region":"^eu"}],` +
				`"exclude":[{"runtimeID":"r","shoot":"c","instanceID":"i"}]},"strategy":{"type":"parallel","schedule":"2026-11-21T22:00:00Z",` +
				`"maintenanceWindow":true,"parallel":{"workers":7}},"dryRun":true,"notification":true,"kyma":{"version":"2.20.1"}}`,
		},
		"all of cluster": {
			[]string{"cluster", "-t", "all", "--kubernetes-version", "1.31.4", "--machine-image", "gardenlinux", "--machine-image-version", "1592.4.0"},
			`POST /upgrade/cluster {"targets":{"include":[{"target":"all"}]},"strategy":{"type":"parallel","schedule":"immediate",` +
				`"parallel":{"workers":1}},` +
				`"kubernetes":{"kubernetesVersion":"1.31.4","machineImage":"gardenlinux","machineImageVersion":"1592.4.0"}}`,
		},
		"canary": {
			[]string{"kyma", "-t", "kyma=2.19,kubernetes=1.30,failed", "--canary", "3", "--canary-then", "success", "--max-failures", "10%"},
			`POST /upgrade/kyma {"targets":{"include":[{"kymaVersion":"2.19","kubernetesVersion":"1.30","failed":true}]},` +
				`"strategy":{"type":"parallel","schedule":"immediate","parallel":{"workers":1},"canary":{"size":3,"then":"success"},"maxFailures":"10%"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api, addr := newAPI(t, map[string][]string{"POST /upgrade/" + tc.args[0]: {`202 {"orchestrationID":"o-1"}`}})
			expect(t, run(t, "", append([]string{"upgrade", "--operator-addr", addr}, tc.args...)...), 0,
				"orchestration o-1 accepted; follow it: keb orchestrations o-1\n", "")
			if diff := cmp.Diff([]string{tc.want}, api.asked); diff != "" {
				t.Errorf("requests differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUpgrade_APIRejects_PrintsError(t *testing.T) {
	t.Parallel()
	_, addr := newAPI(t, map[string][]string{"POST /upgrade/kyma": {`400 {"error":"strategy.schedule: \"soon\": must be"}`}})
	expect(t, run(t, "", "upgrade", "kyma", "-t", "all", "--schedule", "soon", "--operator-addr", addr), 1, "",
		"keb: upgrade kyma: the operator API answers 400: strategy.schedule: \"soon\": must be\n")
}

// clock replaces times.
var clock = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

func TestUpgrade_Wait_FollowsOrchestration(t *testing.T) {
	t.Parallel()
	const path = "GET /orchestrations/o-1"
	answers := []string{
		`200 {"orchestrationID":"o-1","state":"pending","description":"queued for processing"}`,
		`200 {"orchestrationID":"o-1","state":"in progress","operationStats":{"succeeded":1,"pending":2,"in progress":1}}`,
	}
	for end, c := range map[string]struct {
		code int
		errs string
	}{"succeeded": {0, ""}, "failed": {1, "keb: orchestration o-1 failed: 3 succeeded, 1 failed\n"}} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			last := `200 {"orchestrationID":"o-1","state":"` + end + `","description":"3 succeeded, 1 failed","operationStats":{"succeeded":3,"failed":1}}`
			_, addr := newAPI(t, map[string][]string{
				"POST /upgrade/cluster": {`202 {"orchestrationID":"o-1"}`}, path: append(answers[:2:2], last),
			})
			got := run(t, "", "upgrade", "cluster", "-t", "all", "--wait", "--operator-addr", addr)
			got.out = clock.ReplaceAllString(got.out, "TIME")
			expect(t, got, c.code, "orchestration o-1 accepted\nTIME pending: queued for processing\n"+
				"TIME 1/4 in progress: 2 pending, 1 in progress, 1 succeeded\nTIME 4/4 "+end+": 3 succeeded, 1 failed\n", c.errs)
		})
	}
}

func TestUpgrade_APIUnavailable_KeepsWaiting(t *testing.T) {
	t.Parallel()
	const path, order = "GET /orchestrations/o-1", "POST /upgrade/kyma"
	accepted := []string{`202 {"orchestrationID":"o-1"}`}
	succeeded := `200 {"orchestrationID":"o-1","state":"succeeded","description":"done","operationStats":{"succeeded":1}}`
	_, addr := newAPI(t, map[string][]string{order: accepted, path: {`503 {"error":"starting"}`, "429 ", succeeded}})
	got := run(t, "", "upgrade", "kyma", "-t", "all", "--wait", "-o", "json", "--operator-addr", addr)
	if want := "keb: orchestration o-1: the operator API answers 503: starting; still trying\n"; got.code != 0 || strings.Count(got.err, "trying") != 1 || !strings.Contains(got.err, want) {
		t.Errorf("%+v, want once %q", got, want)
	}
	_, addr = newAPI(t, map[string][]string{order: accepted, path: {`403 {"error":"jane has no role"}`, succeeded}})
	if got := run(t, "", "upgrade", "kyma", "-t", "all", "--wait", "--operator-addr", addr); got.code != 1 || !strings.Contains(got.err, "jane has no role") {
		t.Errorf("%+v", got)
	}
}

func TestOrchestrations_List_IsATable(t *testing.T) {
	t.Parallel()
	api, addr := newAPI(t, map[string][]string{"GET /orchestrations": {`200 {"data":[
 {"orchestrationID":"o-2","type":"upgradeCluster","state":"paused","pause":{"reason":"approval","since":"2020-01-01T00:00:00Z"},
 "description":"waiting for approval of the canary: 3 succeeded; 3 of 7 operations have ended","createdAt":"2020-01-01T00:00:00Z",
 "progress":{"total":7,"ended":3,"failed":1,"inProgress":2}}],
 "count":1,"totalCount":3}`, `200 {"data":[],"count":0,"totalCount":0}`}})
	got := run(t, "", "orchestrations", "-s", "in-progress", "--page", "2", "--page-size", "1", "-o", "table", "--operator-addr", addr)
	got.out = strings.Join(strings.Fields(age.ReplaceAllString(got.out, "AGE")), " ")
	expect(t, got, 0, "ORCHESTRATION TYPE STATE ENDED FAILED RUNNING LEFT AGE DESCRIPTION o-2 upgradeCluster waiting for approval 3/7 1 2 AGE "+
		"waiting for approval of the canary: 3 succeeded; 3 of 7 operations have ended 1 of 3 orchestrations; see --page", "")
	expect(t, run(t, "", "orchestrations", "--operator-addr", addr), 0, "no orchestrations\n", "")
	if want := "GET /orchestrations?page=2&page_size=1&state=in+progress"; api.asked[0] != want {
		t.Errorf("request %q, want %q", api.asked[0], want)
	}
}

func TestOrchestrations_OneWithOperations_IsShown(t *testing.T) {
	t.Parallel()
	member := `{"operationID":"op-1","state":"failed","description":"ext\nis broken","instanceID":"i-1","runtimeID":"r-1","shootName":"c-1",
 "servicePlanName":"azure","dryRun":true,"retriedAs":"op-2","kymaConfig":{"version":"2.20.1"}}`
	api, addr := newAPI(t, map[string][]string{
		"GET /orchestrations/o-1": {`200 {"orchestrationID":"o-1","type":"upgradeKyma","state":"failed","description":"1 failed","operationStats":{"failed":1,"skipped":2},"createdAt":"2026-11-21T08:00:00Z",
 "updatedAt":"2026-11-21T09:00:00Z","failures":[{"error":"ext is broken","count":1,"sample":"ext is broken","operationID":"op-1"}],
 "parameters":{"dryRun":true,"kyma":{"version":"2.21.0"},"strategy":{"type":"parallel","schedule":"immediate","parallel":{"workers":10},"canary":{"size":3,"then":"approval"},"maxFailures":"5%"},
  "targets":{"include":[{"planName":"azure","region":"^west"},{"target":"all"}],"exclude":[{"globalAccount":"^vip-"}]}}}`},
		"GET /orchestrations/o-1/operations":      {`200 {"data":[` + member + `],"count":1,"totalCount":1}`, `200 {"data":[]}`},
		"GET /orchestrations/o-1/operations/op-1": {"200 " + member},
	})
	fields := func(args ...string) string {
		got := run(t, "", append(args, "--operator-addr", addr)...)
		if got.code != 0 || got.err != "" {
			t.Errorf("%v: code %d, %s", args, got.code, got.err)
		}
		return strings.Join(strings.Fields(got.out), " ")
	}
	want := "orchestration o-1 type upgradeKyma state failed description 1 failed dry run yes: nothing is changed in the runtimes version 2.21.0 targets region=^west,plan=azure; all " +
		"excluded account=^vip- strategy parallel, 10 in parallel, immediate, canary of 3, then approval, pause after more than 5% failures " +
		"created 2026-11-21T08:00:00Z updated 2026-11-21T09:00:00Z operations 1 failed, 2 skipped failures 1 × ext is broken (for example operation op-1)"
	if got := fields("orchestrations", "o-1"); got != want {
		t.Errorf("orchestration: %s", got)
	}
	want = "OPERATION STATE PLAN INSTANCE SHOOT WINDOW DESCRIPTION op-1 failed (dry run) azure i-1 c-1 ext is broken"
	if got := fields("orchestrations", "o-1", "ops", "-s", "failed"); got != want {
		t.Errorf("operations: %s", got)
	}
	if got := fields("orchestrations", "o-1", "operations"); got != "no operations" {
		t.Errorf("operations: %s", got)
	}
	want = "operation op-1 state failed description ext is broken instance i-1 runtime r-1 shoot c-1 plan azure retried as op-2 dry run yes version 2.20.1"
	if got := fields("orchestrations", "o-1", "operations", "--operation", "op-1"); got != want {
		t.Errorf("operation: %s", got)
	}
	if want := "GET /orchestrations/o-1/operations?page=1&page_size=50&state=failed"; api.asked[1] != want {
		t.Errorf("request %q, want %q", api.asked[1], want)
	}
}

func TestOrchestrations_CancelAndRetry_CallAPI(t *testing.T) {
	t.Parallel()
	api, addr := newAPI(t, map[string][]string{
		"PUT /orchestrations/o-1/cancel": {`200 {"orchestrationID":"o-1"}`},
		"PUT /orchestrations/o-1/pause": {
			`200 {"orchestrationID":"o-1","state":"paused","description":"paused by jane; 3 of 7 operations have ended","pause":{"reason":"operator"}}`,
		},
		"PUT /orchestrations/o-1/approve": {`409 {"error":"not possible: the orchestration does not wait for approval: it is in progress"}`},
		"POST /orchestrations/o-1/retry": {
			`202 {"orchestrationID":"o-1","retryShoots":["c-1","c-2"],"oldOperations":["op-3"],"invalidOperations":["x"],"msg":"retry operations are queued for processing"}`,
			`202 {"orchestrationID":"o-1","retryShoots":[],"oldOperations":[],"invalidOperations":[],"msg":"there is no failed operation to retry"}`,
		},
	})
	expect(t, run(t, "", "orchestrations", "o-1", "cancel", "--operator-addr", addr), 0,
		"orchestration o-1: pending operations are cancelled, operations in progress continue; see keb orchestrations o-1\n", "")
	expect(t, run(t, "", "orchestrations", "o-1", "retry", "--operation", "op-3", "--operation", "x", "--now", "--operator-addr", addr), 1,
		"orchestration o-1: retry operations are queued for processing\nretried shoots: c-1, c-2\n"+
			"not retried, replaced by a newer upgrade: op-3\nnot retried, no failed operation of this orchestration: x\n",
		"keb: 2 of the 2 named operations were not retried\n")
	expect(t, run(t, "", "orchestrations", "o-1", "retry", "--operator-addr", addr), 0,
		"orchestration o-1: there is no failed operation to retry\n", "")
	expect(t, run(t, "", "orchestrations", "o-1", "pause", "--operator-addr", addr), 0,
		"orchestration o-1 is paused: paused by jane; 3 of 7 operations have ended\n", "")
	expect(t, run(t, "", "orchestrations", "o-1", "approve", "--operator-addr", addr), 1, "", "keb: approve orchestration o-1: the operator API "+
		"answers 409: not possible: the orchestration does not wait for approval: it is in progress\n")
	want := []string{
		"PUT /orchestrations/o-1/cancel", "POST /orchestrations/o-1/retry immediate=true&operation-id=op-3&operation-id=x", "POST /orchestrations/o-1/retry",
		"PUT /orchestrations/o-1/pause", "PUT /orchestrations/o-1/approve",
	}
	if diff := cmp.Diff(want, api.asked); diff != "" {
		t.Errorf("requests differ (-want +got):\n%s", diff)
	}
}

func TestOrchestrations_Unknown_Fails(t *testing.T) {
	t.Parallel()
	_, addr := newAPI(t, map[string][]string{
		"GET /orchestrations/x": {`404 {}`}, "GET /orchestrations/x/operations": {`404 {}`}, "PUT /orchestrations/x/cancel": {`404 {}`},
		"POST /orchestrations/x/retry": {`404 {}`}, "GET /orchestrations/x/operations/y": {`404 {}`},
	})
	for _, command := range []string{"x", "x operations", "x cancel", "x retry"} {
		expect(t, run(t, "", append([]string{"orchestrations", "--operator-addr", addr}, strings.Fields(command)...)...), 1, "",
			"keb: there is no orchestration x; keb orchestrations lists them\n")
	}
	expect(t, run(t, "", "orchestrations", "x", "operations", "--operation", "y", "--operator-addr", addr), 1, "",
		"keb: orchestration x has no operation y; keb orchestrations x operations lists them\n")
}
