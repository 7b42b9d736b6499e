package cli_test

import (
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const operations = `200 {"data":[
 {"id":"op-2","type":"deprovision","state":"in progress","instanceId":"inst-2","plan":"aws","stage":"edp_deregistration","step":"EDP_Deregistration",
  "waitingFor":"step EDP_Deregistration, failing since 10:00:00","createdAt":"2020-01-01T00:00:00Z"},
 {"id":"op-1","type":"provision","state":"failed","instanceId":"inst-1","plan":"azure","stage":"create_runtime","step":"Check_Runtime",
  "error":{"component":"provisioner","reason":"err_timeout","message":"gave\nup"},"createdAt":"2020-01-01T00:00:00Z"}],
 "count":2,"totalCount":7}`

// age replaces ages, which depend on the current time.
var age = regexp.MustCompile(`\d+h\d\dm`)

func TestOperations_List_IsATable(t *testing.T) {
	t.Parallel()
	api, addr := newAPI(t, map[string][]string{"GET /operations": {operations}})
	got := run(t, "", "operations", "--operator-addr", addr, "--state", "in-progress", "--type", "provision", "--plan", "azure",
		"--instance", "inst-1", "--filter", "NOT plan = aws", "--page", "2", "--page-size", "2")
	got.out = strings.Join(strings.Fields(age.ReplaceAllString(got.out, "AGE")), " ")
	want := `OPERATION TYPE STATE PLAN INSTANCE AGE WHERE ` +
		`op-2 deprovision in progress aws inst-2 AGE edp_deregistration/EDP_Deregistration waits for: step EDP_Deregistration, failing since 10:00:00 ` +
		`op-1 provision failed azure inst-1 AGE create_runtime/Check_Runtime provisioner: err_timeout: gave up ` +
		`2 of 7 operations; see --page`
	expect(t, got, 0, want, "")
	asked := []string{"GET /operations?filter=NOT+plan+%3D+aws&instance=inst-1&page=2&page_size=2&plan=azure&state=in+progress&type=provision"}
	if diff := cmp.Diff(asked, api.asked); diff != "" {
		t.Errorf("requests differ (-want +got):\n%s", diff)
	}
}

func TestOperations_EmptyList_SaysSo(t *testing.T) {
	t.Parallel()
	_, addr := newAPI(t, map[string][]string{"GET /operations": {`200 {"data":[],"count":0,"totalCount":0}`}})
	expect(t, run(t, "", "operations", "--operator-addr", addr), 0, "no operations\n", "")
}

func TestOperations_NotEnded_ShowsErrorAndMarks(t *testing.T) {
	t.Parallel()
	_, addr := newAPI(t, map[string][]string{"GET /operations": {`200 {"data":[
 {"id":"op-3","type":"upgradeKyma","state":"in progress","instanceId":"i","plan":"aws","stage":"upgrade_kyma","step":"Apply_Kyma","dryRun":true,
  "waitingFor":"step Apply_Kyma, failing since 2026-11-21T08:00:00Z","cancelRequested":"no longer needed",
  "error":{"component":"lifecycle-manager","reason":"err_http","message":"` + strings.Repeat("long ", 900) + `the cause"},"createdAt":"2020-01-01T00:00:00Z"}],
 "count":1,"totalCount":1}`}})
	got := run(t, "", "operations", "--operator-addr", addr)
	line := strings.Split(got.out, "\n")[1]
	for _, want := range []string{"upgradeKyma (dry run)", "will be cancelled when its step answers; waits for: step Apply_Kyma"} {
		if !strings.Contains(line, want) {
			t.Errorf("%q is missing in %s", want, line)
		}
	}
	if !strings.HasSuffix(line, "the cause") || len(line) > 400 {
		t.Errorf("the line has %d characters: %s", len(line), line)
	}
}

func TestLists_PageAfterTheLast_IsAnError(t *testing.T) {
	t.Parallel()
	_, addr := newAPI(t, map[string][]string{
		"GET /operations": {`200 {"data":[],"count":0,"totalCount":7}`}, "GET /orchestrations": {`200 {"data":[],"count":0,"totalCount":0}`},
	})
	expect(t, run(t, "", "operations", "--page", "99", "--page-size", "2", "--operator-addr", addr), 1, "",
		"keb: page 99 does not exist: the last page is 4, with 2 entries per page\n")
	expect(t, run(t, "", "orchestrations", "--page", "2", "--operator-addr", addr), 1, "", "keb: page 2 does not exist: there are no orchestrations\n")
}

func TestOperations_JSON_IsUnchanged(t *testing.T) {
	t.Parallel()
	_, addr := newAPI(t, map[string][]string{
		"GET /operations":   {`200 {"data":[{"id":"op-1","new":1.50}],"count":1,"totalCount":1}`},
		"GET /operations/x": {`200 {"id":"x","new":true}`},
	})
	for command, want := range map[string]string{
		"operations":  `{"data":[{"id":"op-1","new":1.50}],"count":1,"totalCount":1}`,
		"operation x": `{"id":"x","new":true}`,
	} {
		got := run(t, "", append(strings.Fields(command), "--operator-addr", addr, "-o", "json")...)
		var compact strings.Builder
		for _, c := range got.out {
			if c != ' ' && c != '\n' {
				compact.WriteRune(c)
			}
		}
		if got.code != 0 || compact.String() != want {
			t.Errorf("%s: code %d, %s; want %s", command, got.code, got.out, want)
		}
	}
}

const cancelled = `{"id":"op-1","type":"deprovision","purpose":"expiry","state":"cancelled","instanceId":"inst-1","plan":"trial","runtimeName":"demo","shootName":"c-1",
 "createdAt":"2026-03-04T10:00:00Z","startedAt":"2026-03-04T10:00:00Z","finishedAt":"2026-03-04T10:00:07Z","stages":[],"history":[],"notCompleted":[],
 "cause":{"stage":"remove","step":"Remove","attempts":3,"since":"2026-03-04T10:00:01Z","error":{"component":"ext","reason":"broken","message":"it broke"}},
 "processHash":"abc","processCurrent":true,"traceId":"4bf9","links":[{"name":"Logs","url":"https://logs.test/"}],
 "parameters":{"name":"demo"},"details":{"edp":{"id":"x"}}}`

func TestOperation_CauseAndDetails_AreShown(t *testing.T) {
	t.Parallel()
	_, addr := newAPI(t, map[string][]string{"GET /operations/op-1": {"200 " + cancelled}})
	expect(t, run(t, "", "operation", "op-1", "--details", "--operator-addr", addr), 0, `expiry op-1  demo (c-1)  plan trial  instance inst-1
cancelled after 7.0s
it was failing at remove/Remove since 2026-03-04T10:00:01Z (3 tries): ext: broken: it broke

process version:  abc (current)
trace:            4bf9
Logs:             https://logs.test/
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
`, "")
}

const finished = `{"id":"op-1","type":"provision","state":"succeeded","instanceId":"inst-1","plan":"azure",
 "createdAt":"2026-03-04T10:00:00Z","startedAt":"2026-03-04T10:00:00Z","finishedAt":"2026-03-04T10:00:07Z",
 "stages":[{"name":"start","state":"finished","attempt":1,"steps":[{"name":"Starting","worker":"orchestrator","state":"succeeded","attempts":1,"durationMs":2}]}],
 "historyCount":2,"history":[{"cursor":1,"tries":1,"stage":"start","step":"Starting","outcome":"succeeded","stageAttempt":1,"stepAttempt":1,"message":"all  well"},
  {"cursor":90,"tries":30,"first":{"cursor":2,"stageAttempt":1,"stepAttempt":1,"startedAt":"2026-11-21T08:00:00Z"},"similar":true,"stage":"start","step":"Wait",
   "outcome":"retry","stageAttempt":30,"stepAttempt":30,"message":"not yet"}]}`

func TestOperation_Show_ListsStagesStepsHistory(t *testing.T) {
	t.Parallel()
	_, addr := newAPI(t, map[string][]string{
		"GET /operations/op-1": {"200 " + finished, "200 " + finished, "200 " + strings.Replace(finished, `"historyCount":2`, `"historyCount":4`, 1)},
		"GET /operations/op-1/history": {
			`200 {"data":[{"cursor":1,"tries":1,"outcome":"operation started"}],"nextAfter":1}`, `200 {"data":[{"cursor":2,"tries":1,"outcome":"operation failed"}]}`,
			`200 {"data":[{"cursor":1,"tries":1,"outcome":"operation started"}],"nextAfter":1}`, `200 {"data":[{"cursor":2,"tries":1,"outcome":"operation failed"}]}`,
		},
	})
	const text = "provision op-1  plan azure  instance inst-1\nsucceeded after 7.0s\n✓ start\n    ✓ Starting  orchestrator  succeeded, 2ms\n"
	expect(t, run(t, "", "operation", "op-1", "--operator-addr", addr), 0, text, "")
	expect(t, run(t, "", "operation", "op-1", "--history", "--operator-addr", addr), 0,
		text+"\nhistory:\n  1     start/Starting  1.1    succeeded                                    all well\n"+
			"  90    start/Wait      30.30  retry (30 tries since 2026-11-21T08:00:00Z)  last of several: not yet\n", "")
	// The answer has only the newest lines; the others are on pages.
	expect(t, run(t, "", "operation", "op-1", "--history", "--operator-addr", addr), 0,
		text+"\nhistory:\n  1        operation started\n  2        operation failed\n", "")
	got := run(t, "", "operation", "op-1", "--history", "-o", "json", "--operator-addr", addr)
	var answer struct {
		ID      string
		History []struct{ Outcome string }
	}
	if err := json.Unmarshal([]byte(got.out), &answer); err != nil || answer.ID != "op-1" || len(answer.History) != 2 || answer.History[0].Outcome != "operation started" {
		t.Errorf("as JSON: %v: %+v", err, got)
	}
}

func TestOperation_Unknown_Fails(t *testing.T) {
	t.Parallel()
	_, addr := newAPI(t, map[string][]string{"GET /operations/x": {`404 {"error":"not found"}`}})
	for _, command := range [][]string{{"operation", "x"}, {"watch", "x", "--await", "0s"}} {
		expect(t, run(t, "", append(command, "--operator-addr", addr)...), 1, "",
			"keb: there is no operation x; keb operations lists them\n")
	}
}

func TestOperations_APIError_IsPrinted(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		`500 {"error":"the database is away"}`:         "the operator API answers 500: the database is away",
		`500 {"error":{"code":1},"message":"broken"}`:  "the operator API answers 500: broken",
		`400 {"description":"page_size: at most 500"}`: "the operator API answers 400: page_size: at most 500",
		`500 `:                      "the operator API answers 500 Internal Server Error",
		`500 <html>oops</html>`:     "the operator API answers 500: <html>oops</html>",
		`200 {"data":"not a list"}`: "does not answer like the operator API",
	} {
		_, addr := newAPI(t, map[string][]string{"GET /operations": {answer}})
		got := run(t, "", "operations", "--operator-addr", addr)
		if got.code != 1 || !strings.Contains(got.err, want) || strings.Count(got.err, "\n") != 1 {
			t.Errorf("%s: code %d, error %q", answer, got.code, got.err)
		}
	}
}

func TestWatch_FinalState_SetsExitCode(t *testing.T) {
	t.Parallel()
	failed := strings.Replace(finished, `"state":"succeeded","instanceId"`, `"state":"failed","error":{"component":"avs","message":"no"},"instanceId"`, 1)
	_, addr := newAPI(t, map[string][]string{"GET /operations/op-1": {"200 " + finished}, "GET /operations/op-2": {"200 " + failed}})
	if got := run(t, "", "watch", "op-1", "--operator-addr", addr); got.code != 0 || got.err != "" ||
		!strings.HasSuffix(got.out, "succeeded after 7.0s\n") {
		t.Errorf("succeeded: %+v", got)
	}
	if got := run(t, "", "watch", "op-2", "--operator-addr", addr); got.code != 1 || got.err != "keb: operation op-1 failed: avs: no\n" {
		t.Errorf("failed: %+v", got)
	}
	got := run(t, "", "watch", "op-1", "--operator-addr", addr, "-o", "json")
	if got.code != 0 || !json.Valid([]byte(got.out)) || strings.Count(got.out, "\n") != 1 {
		t.Errorf("json: %+v", got)
	}
}

const body = `{"instance_id":"inst-1","service_id":"s","plan_id":"p","parameters":{"name":"n"}}`

const instancePath = "/oauth/cf-eu10/v2/service_instances/inst-1"

func TestProvision_File_IsSent(t *testing.T) {
	t.Parallel()
	api, addr := newAPI(t, map[string][]string{"PUT " + instancePath: {`202 {"operation":"op-1","dashboard_url":"http://d"}`}})
	expect(t, run(t, body, "provision", "-f", "-", "--osb-addr", addr), 0,
		"provisioning of instance inst-1 accepted; follow it: keb watch op-1\n", "")
	asked := []string{"PUT " + instancePath + `?accepts_incomplete=true {"service_id":"s","plan_id":"p","parameters":{"name":"n"}}`}
	if diff := cmp.Diff(asked, api.asked); diff != "" {
		t.Errorf("requests differ (-want +got):\n%s", diff)
	}
}

func TestProvision_SameAgain_NothingToDo(t *testing.T) {
	t.Parallel()
	_, addr := newAPI(t, map[string][]string{"PUT " + instancePath: {`200 {}`}})
	expect(t, run(t, body, "provision", "-f", "-", "--wait", "--osb-addr", addr), 0,
		"provisioning of instance inst-1: nothing to do\n", "")
}

func TestProvision_Wait_FollowsOperation(t *testing.T) {
	t.Parallel()
	_, addr := newAPI(t, map[string][]string{
		"PUT " + instancePath:                     {`202 {"operation":"op-1"}`},
		"GET " + instancePath + "/last_operation": {`200 {"state":"succeeded","description":"done"}`},
	})
	got := run(t, body, "provision", "-f", "-", "--wait", "--osb-addr", addr, "-o", "json")
	want := `{
  "instanceId": "inst-1",
  "operationId": "op-1",
  "state": "succeeded",
  "description": "done"
}
`
	if got.code != 0 || got.out != want {
		t.Errorf("code %d, output %s", got.code, got.out)
	}
	if !strings.HasPrefix(got.err, "provisioning of instance inst-1 accepted, operation op-1\n") || !strings.Contains(got.err, " succeeded: done\n") {
		t.Errorf("progress %q", got.err)
	}
}

func TestProvision_OperationFails_ExitsOne(t *testing.T) {
	t.Parallel()
	_, addr := newAPI(t, map[string][]string{
		"PUT " + instancePath:                     {`202 {"operation":"op-1"}`},
		"GET " + instancePath + "/last_operation": {`200 {"state":"failed","description":"no quota"}`},
	})
	got := run(t, body, "provision", "-f", "-", "--wait", "--osb-addr", addr)
	if got.code != 1 || got.err != "keb: provisioning of instance inst-1 failed: no quota\n" {
		t.Errorf("%+v", got)
	}
}

func TestProvision_AnswerLost_NamesInstance(t *testing.T) {
	t.Parallel()
	ordered := make(chan string, 10)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		ordered <- path.Base(r.URL.Path)
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(srv.Close)
	got := run(t, `{"service_id":"s","plan_id":"p"}`, "provision", "-f", "-", "--osb-addr", srv.URL)
	id := <-ordered
	if want := "repeat it with --id " + id + "\n"; got.code != 1 || len(id) != 36 || !strings.HasSuffix(got.err, want) {
		t.Errorf("%+v, want %q", got, want)
	}
}

func TestProvision_NotSent_ReportsFailure(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	for _, addr := range []string{unreachable, server.URL} {
		got := run(t, body, "provision", "-f", "-", "--osb-addr", addr)
		if got.code != 1 || strings.Contains(got.err, "not known") {
			t.Errorf("%s: %+v", addr, got)
		}
	}
}

func TestProvision_Rejected_ExplainsWhy(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		`400 {"description":"parameters.machineType: not one of a, b"}`: "keb: the OSB API answers 400: parameters.machineType: not one of a, b\n",
		`401 {}`: "keb: the OSB API rejected user and password; set KEB_OSB_USER and KEB_OSB_PASSWORD\n",
	} {
		_, addr := newAPI(t, map[string][]string{"PUT " + instancePath: {answer}})
		expect(t, run(t, body, "provision", "-f", "-", "--osb-addr", addr), 1, "", want)
	}
}

func TestDeprovision_NoPlanGiven_FindsIt(t *testing.T) {
	t.Parallel()
	const catalog = `200 {"services":[{"id":"svc","plans":[{"id":"p-aws","name":"aws"},{"id":"p-azure","name":"azure"}]}]}`
	for name, tc := range map[string]struct {
		answers map[string][]string
		args    []string
	}{
		"from the instance": {map[string][]string{"GET " + instancePath: {`200 {"service_id":"svc","plan_id":"p-azure"}`}}, nil},
		"from the orchestrator, while it is being provisioned": {map[string][]string{
			"GET " + instancePath: {`404 {}`}, "GET /operations": {`200 {"data":[{"plan":"azure"}],"count":1,"totalCount":1}`},
			"GET /oauth/cf-eu10/v2/catalog": {catalog},
		}, nil},
		"from the flag": {map[string][]string{"GET /oauth/cf-eu10/v2/catalog": {catalog}}, []string{"--plan", "azure"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.answers["DELETE "+instancePath] = []string{`202 {"operation":"op-2"}`}
			api, addr := newAPI(t, tc.answers)
			args := append([]string{"deprovision", "inst-1", "--osb-addr", addr, "--operator-addr", addr}, tc.args...)
			expect(t, run(t, "", args...), 0, "deprovisioning of instance inst-1 accepted; follow it: keb watch op-2\n", "")
			want := "DELETE " + instancePath + "?accepts_incomplete=true&plan_id=p-azure&service_id=svc"
			if got := api.asked[len(api.asked)-1]; got != want {
				t.Errorf("asked %s, want %s", got, want)
			}
		})
	}
}

func TestDeprovision_UnknownInstance_Fails(t *testing.T) {
	t.Parallel()
	_, addr := newAPI(t, map[string][]string{"GET " + instancePath: {`404 {}`}, "GET /operations": {`200 {"data":[],"count":0,"totalCount":0}`}})
	expect(t, run(t, "", "deprovision", "inst-1", "--osb-addr", addr, "--operator-addr", addr), 1, "",
		"keb: there is no instance inst-1; keb operations shows the instances of all operations\n")
	_, addr = newAPI(t, map[string][]string{"GET " + instancePath: {`200 {"service_id":"svc","plan_id":"p"}`}, "DELETE " + instancePath: {`410 {}`}})
	expect(t, run(t, "", "deprovision", "inst-1", "--osb-addr", addr), 1, "",
		"keb: there is no instance inst-1; it may have been deleted already\n")
}

func TestDeprovision_UnknownPlan_Fails(t *testing.T) {
	t.Parallel()
	_, addr := newAPI(t, map[string][]string{"GET /oauth/cf-eu10/v2/catalog": {`200 {"services":[{"id":"svc","plans":[{"id":"1","name":"aws"}]}]}`}})
	expect(t, run(t, "", "deprovision", "inst-1", "--plan", "azur", "--osb-addr", addr), 2, "",
		"keb: unknown plan \"azur\"; allowed: aws\n")
}

func TestProcessCheck_Overlays_AreValidated(t *testing.T) {
	t.Parallel()
	if got := run(t, "", "process", "check", "--overlays", ""); got.code != 0 || !strings.HasPrefix(got.out, "provision: 5 stages, 19 steps, hash ") {
		t.Errorf("%+v", got)
	}
	dir := filepath.Dir(write(t, ""))
	overlay := filepath.Join(dir, "x.yaml")
	writeTo(t, overlay, "operation: provision\nchanges:\n  - disable: Nothing_Like_It\n  - disable: AVS_Tag\n")
	got := run(t, "", "process", "check", "--overlays", dir)
	if got.code != 1 || !strings.HasPrefix(got.err, overlay+`:3: disable: unknown step "Nothing_Like_It"; known: Starting, `) ||
		!strings.HasSuffix(got.err, overlay+":4: disable: unknown step \"AVS_Tag\"; did you mean AVS_Tags?\nkeb: the process definitions are invalid\n") {
		t.Errorf("%+v", got)
	}
	expect(t, run(t, "", "process", "check", "--overlays", "absent"), 1, "",
		"keb: overlay folder absent does not exist; set an existing one with --overlays or KEB_OVERLAYS\n")
}

func TestUp_InvalidSettings_AreRejected(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"an address for others": {
			[]string{"--osb-addr", "0.0.0.0:8080"},
			`keb: --osb-addr (KEB_OSB_ADDR): "0.0.0.0:8080" is not a loopback address; keb up runs on one machine only, write for example 127.0.0.1:8080`,
		},
		"no port": {[]string{"--operator-addr", "127.0.0.1"}, `keb: --operator-addr (KEB_OPERATOR_ADDR): "127.0.0.1" is not host:port`},
		"one address for two": {
			[]string{"--operator-addr", "127.0.0.1:8080"},
			"keb: --operator-addr (KEB_OPERATOR_ADDR): 127.0.0.1:8080 is already the address of --osb-addr (KEB_OSB_ADDR)",
		},
		"no data folder":      {[]string{"--data-dir", ""}, "keb: --data-dir (KEB_DATA_DIR): must not be empty"},
		"an unknown overlays": {[]string{"--overlays", "absent"}, `keb: KEB_OVERLAYS: "absent" is not a readable folder`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect(t, run(t, "", append([]string{"up", "--data-dir", data}, tc.args...)...), 1, "", tc.want+"\n")
		})
	}
}

func TestUp_PortInUse_IsNamed(t *testing.T) {
	t.Parallel()
	_, taken := newAPI(t, nil)
	flags := []string{"--osb-addr", "--operator-addr", "--landscape-addr", "--nats-addr"}
	for _, flag := range flags {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			data := t.TempDir()
			args := []string{"up", "--data-dir", data}
			for _, other := range flags {
				addr := "127.0.0.1:0"
				if other == flag {
					addr = taken
				}
				args = append(args, other, addr)
			}
			got := run(t, "", args...)
			if got.code != 1 || !strings.Contains(got.err, taken) || !strings.Contains(got.err, "in use") || !strings.Contains(got.err, flag) || strings.Count(got.err, "\n") != 1 {
				t.Errorf("%+v", got)
			}
			if _, err := os.Stat(filepath.Join(data, "postgres")); err == nil {
				t.Error("a database was created before the problem was found")
			}
		})
	}
}
