package cli_test

import "testing"

const oneTry = `{"operationId":"op-1","cursor":12,"tries":3,"first":{"cursor":4,"stageAttempt":1,"stepAttempt":1,"startedAt":"2026-11-21T08:00:00Z"},
 "stage":"create","step":"Register","worker":"edp","stageAttempt":1,"stepAttempt":3,
 "sent":{"parameters":{"name":"demo"},"credentials":["service-manager"],"details":{"edp":{"id":"x"}},"unknown":["edp.big"],"detailsRecorded":true,
  "event":"event dns, id 1, of ops","executionMs":60000,"retryTimeoutMs":600000},
 "answer":{"outcome":"retry","workerVersion":"1.2","error":{"component":"edp","reason":"err_http_status_code","message":"503"},"retryAfterMs":10000,
  "saved":{"id":"y","old":null},"startedAt":"2026-11-21T08:01:00Z","finishedAt":"2026-11-21T08:01:02Z"}}`

func TestOperation_Try_ShowsInputAndResult(t *testing.T) {
	t.Parallel()
	_, addr := newAPI(t, map[string][]string{
		"GET /operations/op-1/tries/12": {"200 " + oneTry},
		"GET /operations/op-1/tries/running": {
			`200 {"operationId":"op-1","tries":1,"stage":"create","step":"Register","worker":"edp","stageAttempt":1,"stepAttempt":1,"sent":{"credentials":[],"detailsRecorded":false,"executionMs":1000}}`,
		},
		"GET /operations/op-1/tries/13": {`404 {"error":"operation op-1 has no try of a step with the cursor 13"}`},
	})
	expect(t, run(t, "", "operation", "op-1", "--try", "12", "--operator-addr", addr), 0, `step:     create/Register
worker:   edp
attempt:  1 of the stage, 3 of the step; 3 tries since 2026-11-21T08:00:00Z

SENT
limits:                execution 1m00s, retries 10m00s
credentials to claim:  service-manager
event:                 event dns, id 1, of ops
parameters:
  {
    "name": "demo"
  }
saved data of the workers:
  {
    "edp": {
      "id": "x"
    }
  }
not recorded, because too large: edp.big

ANSWERED
outcome:         retry
error:           edp: err_http_status_code: 503
next try after:  10.0s
worker version:  1.2
executed:        2026-11-21T08:01:00Z, for 2.0s
saved:
  {
    "id": "y",
    "old": null
  }
`, "")
	expect(t, run(t, "", "operation", "op-1", "--try", "running", "--operator-addr", addr), 0, `step:     create/Register
worker:   edp
attempt:  1 of the stage, 1 of the step

SENT
limits:  execution 1.0s
the saved data was not recorded: the operation started with an earlier release

running: no answer yet
`, "")
	expect(t, run(t, "", "operation", "op-1", "--try", "13", "--operator-addr", addr), 1, "",
		"keb: operation op-1, try 13: not found; keb operation op-1 --history lists the tries\n")
	expect(t, run(t, "", "operation", "op-1", "--try", "first", "--operator-addr", addr), 2, "",
		"keb: --try \"first\": must be the number of a line of --history, or running\n")
}

func TestOperation_RetryFromStep_SendsStageAndStep(t *testing.T) {
	t.Parallel()
	api, addr := newAPI(t, map[string][]string{"POST /operations/op-1/retry": {
		`200 {"steps":[{"stage":"create","step":"Register","plan":"again"}],"losesMemory":true,"sent":{"credentials":[],"details":{"edp":{"id":"x"}},"detailsRecorded":true,"executionMs":60000}}`,
	}})
	expect(t, run(t, "", "operation", "op-1", "retry", "--from", "create/Register", "--preview", "--operator-addr", addr), 0, `create  Register  runs again

If a step needs what the steps before Register put into the stage memory, the stage create starts at its first step: the memory is deleted.

SENT to the first of these steps
limits:  execution 1m00s
saved data of the workers:
  {
    "edp": {
      "id": "x"
    }
  }
`, "")
	if got, want := api.asked[0], `POST /operations/op-1/retry {"step":"Register","stage":"create","dryRun":true}`; got != want {
		t.Errorf("the request is %s, want %s", got, want)
	}
}
