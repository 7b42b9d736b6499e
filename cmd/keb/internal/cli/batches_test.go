package cli_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	batchID     = "019aa7a0-5e0a-7c1c-9d43-0c5f0a4d3b11"
	sampled     = `{"operation":{"id":"o-1","type":"update","state":"failed","instanceId":"i-1","plan":"azure","stage":"change","step":"EDP_Registration","error":{"component":"edp","reason":"down","message":"EDP is down"},"createdAt":"2026-11-21T08:00:00Z"},"steps":[{"stage":"change","step":"EDP_Registration","plan":"again"}]}`
	someOfMany  = `200 {"count":12,"sample":[` + sampled + `,{"operation":{"id":"o-2","type":"update","state":"succeeded","instanceId":"i-2","plan":"azure"},"problem":"the operation is succeeded"}]}`
	batchFields = `{"id":"` + batchID + `","action":"retry","filter":"state=failed","reason":"EDP works","createdBy":"jane","createdAt":"2026-11-21T08:00:00Z","rate":50,"total":12,`
	runningOne  = batchFields + `"state":"running","waiting":5,"done":6,"failed":0,"skipped":1}`
	finishedOne = batchFields + `"state":"finished","waiting":0,"done":11,"failed":0,"skipped":1}`
)

func TestOperationsDo_Retry_FollowsTheBatch(t *testing.T) {
	t.Setenv("USER", "jane")
	api, addr := newAPI(t, map[string][]string{
		"POST /batches":           {someOfMany, "202 " + runningOne},
		"GET /batches/" + batchID: {"200 " + finishedOne},
	})
	got := run(t, "", "operations", "--state", "failed", "--do", "retry", "--from", "change/EDP_Registration", "--rate", "20/s", "--reason", "EDP works", "--yes",
		"--operator-addr", addr)
	for _, want := range []string{
		"12 operations match\n", "o-1        update  failed     azure  i-1       change/EDP_Registration", "retry is not possible: the operation is succeeded",
		"and 10 more\n", "1 of these 2 would be skipped\n", "of these 2 run again: change/EDP_Registration (1)\n",
		"12/12", "finished: 11 done, 0 failed, 1 skipped, 0 waiting\n", "1 operations were skipped; keb batch " + batchID + " --state skipped lists them\n",
	} {
		if got.code != 0 || !strings.Contains(got.out+got.err, want) {
			t.Errorf("exit code %d, %q is missing:\n%s%s", got.code, want, got.out, got.err)
		}
	}
	want := []string{
		`POST /batches {"action":"retry","filter":"state=failed","stage":"change","step":"EDP_Registration","reason":"EDP works","rate":20,"dryRun":true,"by":"jane"}`,
		`POST /batches {"action":"retry","filter":"state=failed","stage":"change","step":"EDP_Registration","reason":"EDP works","rate":20,"expected":12,"by":"jane"}`,
	}
	if diff := cmp.Diff(want, api.asked[:2]); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestOperationsDo_WithoutTerminal_NeedsYes(t *testing.T) {
	t.Parallel()
	api, addr := newAPI(t, map[string][]string{"POST /batches": {someOfMany}})
	got := run(t, "12\n", "operations", "--step", "EDP_Registration", "--do", "skip", "--reason", "r", "--operator-addr", addr)
	if got.code != 2 || got.out != "" || !strings.HasPrefix(got.err, "12 operations match\n") ||
		!strings.Contains(got.err, "nothing was done; add --yes to skip these operations") || len(api.asked) != 1 {
		t.Errorf("exit code %d, %d requests:\n%s", got.code, len(api.asked), got.err)
	}
}

func TestOperationsDo_HoldAndResume_UseHolds(t *testing.T) {
	t.Setenv("USER", "jane")
	hold := `{"id":"` + batchID + `","scope":{"worker":"edp"},"orders":"wait","reason":"outage","createdBy":"jane","createdAt":"2026-11-21T08:00:00Z","operations":3}`
	api, addr := newAPI(t, map[string][]string{
		"POST /batches":            {`200 {"count":3,"sample":[],"scope":{"worker":"edp"}}`, `200 {"count":3,"sample":[],"scope":{"worker":"edp"},"holds":[` + hold + `]}`},
		"POST /holds":              {"200 " + hold},
		"DELETE /holds/" + batchID: {"204 "},
	})
	expect(t, run(t, "", "operations", "--worker", "edp", "--do", "hold", "--reason", "outage", "-y", "--operator-addr", addr), 0,
		"3 operations match; scope of the hold: worker edp\nhold "+batchID+": worker edp\n", "")
	expect(t, run(t, "", "operations", "--worker", "edp", "--do", "resume", "-y", "--operator-addr", addr), 0,
		"3 operations match; scope of the hold: worker edp\n  hold "+batchID+" by jane: outage\nhold "+batchID+" released\n", "")
	if want := `POST /holds {"scope":{"worker":"edp"},"reason":"outage","by":"jane"}`; api.asked[1] != want {
		t.Errorf("request %s, want %s", api.asked[1], want)
	}
}

func TestBatch_Watch_WaitsWhilePaused(t *testing.T) {
	t.Parallel()
	const path = "GET /batches/" + batchID
	paused, ended := strings.Replace(runningOne, "running", "paused", 1), strings.Replace(runningOne, "running", "cancelled", 1)
	_, addr := newAPI(t, map[string][]string{path: {"200 " + paused, "502 ", "200 " + paused, "200 " + finishedOne}})
	got := run(t, "", "batch", batchID, "--watch", "--operator-addr", addr)
	if want := "keb: the batch is paused; keb batch resume " + batchID + " continues it"; got.code != 0 || strings.Count(got.err, want) != 1 ||
		strings.Count(got.err, "502 Bad Gateway; still trying") != 1 || !strings.Contains(got.out, "finished: 11 done") {
		t.Errorf("%+v", got)
	}
	_, addr = newAPI(t, map[string][]string{path: {"200 " + ended}})
	got = run(t, "", "batch", batchID, "--watch", "--operator-addr", addr)
	if want := "keb: batch " + batchID + " is cancelled: 6 done, 0 failed, 1 skipped, 5 waiting\n"; got.code != 1 || got.err != want {
		t.Errorf("%+v, want %q", got, want)
	}
}

func TestBatch_ListShowChange(t *testing.T) {
	t.Parallel()
	_, addr := newAPI(t, map[string][]string{
		"GET /batches":            {`200 {"data":[` + runningOne + `],"count":1,"totalCount":1}`, `200 {"data":[],"count":0,"totalCount":0}`},
		"GET /batches/" + batchID: {"200 " + runningOne, `404 {"error":"no"}`},
		"GET /batches/" + batchID + "/operations": {
			`200 {"data":[{"operationId":"o-2","instanceId":"i-2","state":"skipped","error":"not possible:\n it is pending"}],"count":1,"totalCount":1}`,
		},
		"POST /batches/" + batchID + "/pause": {"200 " + runningOne, `404 {"error":"no"}`},
	})
	has := func(got result, want ...string) {
		t.Helper()
		for _, w := range want {
			if got.code != 0 || !strings.Contains(got.out, w) {
				t.Errorf("exit code %d, %q is missing:\n%s%s", got.code, w, got.out, got.err)
			}
		}
	}
	has(run(t, "", "batches", "--operator-addr", addr), batchID+"  retry   running  6     0       1        12")
	expect(t, run(t, "", "batches", "--operator-addr", addr), 0, "no batches\n", "")
	has(run(t, "", "batch", batchID, "--state", "skipped", "--operator-addr", addr),
		"rate       50/s\nstate      running: 6 done, 0 failed, 1 skipped, 5 waiting\n", "o-2        i-2       skipped      not possible: it is pending\n")
	expect(t, run(t, "", "batch", batchID, "--operator-addr", addr), 1, "", "keb: there is no batch "+batchID+"; keb batches lists them\n")
	has(run(t, "", "batch", "pause", batchID, "--operator-addr", addr), "batch "+batchID+" is running")
	expect(t, run(t, "", "batch", "pause", batchID, "--operator-addr", addr), 1, "", "keb: there is no batch "+batchID+"; keb batches lists them\n")
}
