package cli_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/cmd/keb/internal/cli"
	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/testkit"
)

const twoRuntimes = `{"data":[
 {"instanceID":"i-1","runtimeID":"r-1","globalAccountID":"ga","subAccountID":"sa-1","region":"westeurope","shootName":"c-1","servicePlanName":"azure",
  "kymaVersion":"2.20.1","status":{"createdAt":"2020-01-01T00:00:00Z","state":"succeeded",
   "provisioning":{"operationID":"op-1","type":"provision","state":"succeeded","description":"done","createdAt":"2020-01-01T00:00:00Z"},
   "update":{"data":[{"operationID":"op-2","type":"update","state":"failed","dryRun":true,"description":"no\nway","createdAt":"2020-01-02T00:00:00Z"}]}}},
 {"instanceID":"i-2","runtimeID":"r-2","globalAccountID":"ga","subAccountID":"sa-2","region":"eu-central-1","shootName":"c-2","servicePlanName":"trial",
  "status":{"createdAt":"2020-01-01T00:00:00Z","expiredAt":"2020-02-01T00:00:00Z","state":"suspended"}}
],"count":2,"totalCount":2}`

// Ages and spaces of a table are not compared.
func cells(text string) string {
	var lines []string
	for line := range strings.Lines(age.ReplaceAllString(text, "AGE")) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "\n")
}

func TestRuntimes_List_IsATable(t *testing.T) {
	t.Parallel()
	api, addr := newAPI(t, map[string][]string{"GET /runtimes": {"200 " + twoRuntimes}})
	got := run(t, "", "rt", "-p", "azure,trial", "-S", "succeeded", "-S", "suspended", "-g", "ga", "--expired", "--osb-addr", addr)
	want := "INSTANCE SHOOT PLAN REGION ACCOUNT SUBACCOUNT STATE KYMA AGE\n" +
		"i-1 c-1 azure westeurope ga sa-1 succeeded 2.20.1 AGE\n" +
		"i-2 c-2 trial eu-central-1 ga sa-2 suspended, expired AGE"
	if got.code != 0 || got.err != "" {
		t.Fatalf("%+v", got)
	}
	if diff := cmp.Diff(want, cells(got.out)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	asked := []string{"GET /runtimes?account=ga&expired=true&op_detail=last&page_size=100&plan=azure&plan=trial&state=succeeded&state=suspended"}
	if diff := cmp.Diff(asked, api.asked); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestRuntimes_OpsAndEvents_AreListed(t *testing.T) {
	t.Parallel()
	_, broker := newAPI(t, map[string][]string{"GET /runtimes": {"200 " + twoRuntimes}})
	api, operator := newAPI(t, map[string][]string{"GET /events": {`200 [
 {"ID":"e2","Level":"error","InstanceID":"i-1","OperationID":"op-2","Message":"start/x failed: no","CreatedAt":"2020-01-02T00:00:00Z"},
 {"ID":"e1","Level":"info","InstanceID":"i-1","OperationID":"op-1","Message":"start/x succeeded","CreatedAt":"2020-01-01T00:00:00Z"}]`}})
	got := run(t, "", "runtimes", "--ops", "--events=error", "--osb-addr", broker, "--operator-addr", operator)
	if got.code != 0 || got.err != "" {
		t.Fatalf("%+v", got)
	}
	lines := strings.Split(cells(got.out), "\n")
	if len(lines) != 6 || lines[2] != "op-1 provision succeeded: done" || lines[3] != "op-2 update (dry run) failed: no way" ||
		!strings.HasSuffix(lines[4], "error op-2 start/x failed: no") {
		t.Errorf("got\n%s", got.out)
	}
	if diff := cmp.Diff([]string{"GET /events?instance_ids=i-1%2Ci-2"}, api.asked); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}

	got = run(t, "", "runtimes", "--events", "-o", "json", "--osb-addr", broker, "--operator-addr", operator)
	var answer struct {
		Data []struct {
			InstanceID string
			Events     []struct{ OperationID string }
		}
		Count int
	}
	if err := json.Unmarshal([]byte(got.out), &answer); err != nil {
		t.Fatalf("%v: %s%s", err, got.out, got.err)
	}
	if answer.Count != 2 || len(answer.Data[0].Events) != 2 || answer.Data[0].Events[0].OperationID != "op-1" {
		t.Errorf("got %+v, want the events of each runtime, oldest first", answer)
	}
}

func TestRuntimes_ManyEvents_AreRequestedInParts(t *testing.T) {
	t.Parallel()
	full := `{"Level":"info","InstanceID":"i-2","CreatedAt":"2020-01-02T00:00:00Z"}` + strings.Repeat(`,{"Level":"info","InstanceID":"i-2"}`, operator.MaxEvents-1)
	_, brokerAddr := newAPI(t, map[string][]string{"GET /runtimes": {"200 " + twoRuntimes}})
	api, addr := newAPI(t, map[string][]string{"GET /events": {
		"200 [" + full + "]", `200 [{"Level":"error","InstanceID":"i-1","OperationID":"op-2","Message":"an old error"}]`, "200 [" + full + "]",
	}})
	got := run(t, "", "runtimes", "--events=error", "--osb-addr", brokerAddr, "--operator-addr", addr)
	if want := "keb: only the newest 5000 events of instance i-2 are shown\n"; got.code != 0 || got.err != want || !strings.Contains(got.out, "an old error") {
		t.Errorf("code %d, %q, want %q\n%s", got.code, got.err, want, got.out)
	}
	if diff := cmp.Diff([]string{"GET /events?instance_ids=i-1%2Ci-2", "GET /events?instance_ids=i-1", "GET /events?instance_ids=i-2"}, api.asked); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestRuntimes_CustomColumns_ArePrinted(t *testing.T) {
	t.Parallel()
	api, addr := newAPI(t, map[string][]string{"GET /runtimes": {"200 " + twoRuntimes}})
	got := run(t, "", "runtimes", "--cluster-config", "-o", "custom=SHOOT:shootName,STATE:{.status.state},VERSION:.kymaVersion", "--osb-addr", addr)
	expect(t, got, 0, "SHOOT  STATE      VERSION\nc-1    succeeded  2.20.1\nc-2    suspended  -\n", "")
	if !strings.Contains(api.asked[0], "cluster_config=true") {
		t.Errorf("asked %s", api.asked[0])
	}
}

func TestRuntimes_SeveralPages_AreFetched(t *testing.T) {
	t.Parallel()
	page := func(from, to int) string {
		var items []string
		for i := from; i < to; i++ {
			items = append(items, fmt.Sprintf(`{"instanceID":"i-%d","status":{"createdAt":"2026-11-21T22:00:00.000%03dZ"}}`, i, i))
		}
		return fmt.Sprintf(`200 {"data":[%s],"count":%d,"totalCount":230}`, strings.Join(items, ","), to-from)
	}
	// The last page repeats a runtime.
	api, addr := newAPI(t, map[string][]string{"GET /runtimes": {page(0, 100), page(100, 200), page(199, 230)}})
	got := run(t, "", "runtimes", "-o", "custom=ID:instanceID", "--osb-addr", addr)
	if lines := strings.Split(strings.TrimSpace(got.out), "\n"); len(lines) != 231 || lines[230] != "i-229" {
		t.Errorf("%d lines, error %q", len(lines), got.err)
	}
	asked := []string{
		"GET /runtimes?op_detail=last&page_size=100",
		"GET /runtimes?after=2026-11-21T22%3A00%3A00.000099Z%2Ci-99&op_detail=last&page_size=100",
		"GET /runtimes?after=2026-11-21T22%3A00%3A00.000199Z%2Ci-199&op_detail=last&page_size=100",
	}
	if diff := cmp.Diff(asked, api.asked); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestRuntimes_BrokerIgnoresPosition_EndsWithError(t *testing.T) {
	t.Parallel()
	page := `200 {"data":[` + strings.TrimSuffix(strings.Repeat(`{"instanceID":"i","status":{"createdAt":"2026-11-21T22:00:00Z"}},`, 100), ",") + `],"totalCount":300}`
	_, addr := newAPI(t, map[string][]string{"GET /runtimes": {page}})
	expect(t, run(t, "", "runtimes", "--osb-addr", addr), 1, "", "keb: list runtimes: the broker repeats a part of the list\n")
}

func TestToken_Rejected_ExplainsWhy(t *testing.T) {
	t.Parallel()
	_, addr := newAPI(t, map[string][]string{
		"GET /runtimes":                {"401 "},
		"GET /operations":              {"401 "},
		"POST /operations/op-1/cancel": {`403 {"error":"jane is a viewer; cancel needs the role operator"}`},
	})
	expect(t, run(t, "", "runtimes", "--osb-addr", addr), 1, "",
		"keb: list runtimes: the broker rejected the credentials; set KEB_TOKEN, or KEB_OSB_USER and KEB_OSB_PASSWORD\n")
	expect(t, run(t, "", "operations", "--operator-addr", addr), 1, "",
		"keb: list operations: the operator API requires an access token; set KEB_TOKEN or --token-file\n")
	expect(t, run(t, "", "operation", "op-1", "cancel", "--operator-addr", addr), 1, "",
		"keb: cancel operation op-1: the operator API rejected the request: jane is a viewer; cancel needs the role operator\n")
}

func TestOperation_RetryFromStage_IsPreviewedAndSent(t *testing.T) {
	t.Parallel()
	api, addr := newAPI(t, map[string][]string{
		"POST /operations/op-1/retry": {
			`200 {"steps":[{"stage":"create","step":"A","plan":"again"},{"stage":"create","step":"B","plan":"skipped","reason":"condition is false: x"},
				{"stage":"finish","step":"C","plan":"first"},{"stage":"finish","step":"D","plan":"unknown","reason":"no such key: alpha"}]}`, "204 ",
		},
		"GET /operations/op-1": {`200 {"id":"op-1","state":"pending"}`},
	})
	got := run(t, "", "operation", "op-1", "retry", "--from", "create", "--preview", "--operator-addr", addr)
	want := "create A runs again\ncreate B skipped: condition is false: x\nfinish C runs for the first time\nfinish D condition not known yet: no such key: alpha"
	if diff := cmp.Diff(want, cells(got.out)); diff != "" || got.code != 0 {
		t.Errorf("%+v (-want +got):\n%s", got, diff)
	}
	expect(t, run(t, "", "operation", "op-1", "retry", "--from", "create", "--operator-addr", addr), 0,
		"operation op-1: retry accepted, state: pending\n", "")
	if !strings.Contains(api.asked[0], `"stage":"create","dryRun":true`) || !strings.Contains(api.asked[1], `"stage":"create"}`) {
		t.Errorf("asked %q", api.asked)
	}
}

func TestOperation_Actions_CallAPI(t *testing.T) {
	t.Parallel()
	api, addr := newAPI(t, map[string][]string{
		"POST /operations/op-1/skip":   {"204 "},
		"POST /operations/op-1/cancel": {`204 `},
		"POST /operations/op-1/retry":  {`409 {"error":"only a failed operation can be retried"}`},
		"GET /operations/op-1": {
			`200 {"id":"op-1","state":"in progress"}`, `200 {"id":"op-1","state":"in progress","cancelRequested":"cancelled by jane"}`,
		},
	})
	expect(t, run(t, "", "operation", "op-1", "skip", "--step", "EDP_Registration", "--operator-addr", addr), 0,
		"operation op-1: skip accepted, state: in progress\n", "")
	expect(t, run(t, "", "operation", "op-1", "cancel", "--operator-addr", addr), 0,
		"operation op-1: cancel accepted, state: in progress, will be cancelled when its current step answers\n", "")
	expect(t, run(t, "", "operation", "op-1", "retry", "--operator-addr", addr), 1, "",
		"keb: retry operation op-1: the operator API answers 409: only a failed operation can be retried\n")
	if !slices.ContainsFunc(api.asked, func(s string) bool { return strings.Contains(s, `"step":"EDP_Registration"`) }) {
		t.Errorf("asked %q", api.asked)
	}
}

func TestOperation_StateNotRead_ActionIsAccepted(t *testing.T) {
	t.Parallel()
	_, addr := newAPI(t, map[string][]string{"POST /operations/op-1/cancel": {"204 "}, "GET /operations/op-1": {`503 {"error":"starting"}`}})
	const told = "keb: the operation cannot be read: operation op-1: the operator API answers 503: starting\n"
	expect(t, run(t, "", "operation", "op-1", "cancel", "--operator-addr", addr), 0, "operation op-1: cancel accepted\n", told)
	expect(t, run(t, "", "operation", "op-1", "cancel", "-o", "json", "--operator-addr", addr), 0,
		"{\n  \"id\": \"op-1\",\n  \"result\": \"cancel accepted\"\n}\n", told)
}

const notFound = `{"data":[],"count":0,"totalCount":0}`

func TestKubeconfig_Runtime_IsDownloaded(t *testing.T) {
	t.Parallel()
	one := `200 {"data":[{"instanceID":"i-1"}],"count":1,"totalCount":1}`
	api, addr := newAPI(t, map[string][]string{
		"GET /runtimes":        {one, "200 " + notFound, "200 " + twoRuntimes},
		"GET /kubeconfig/i-1":  {"200 apiVersion: v1"},
		"GET /kubeconfig/gone": {"404 {}"},
	})
	expect(t, run(t, "", "kubeconfig", "-c", "c-1", "-g", "ga", "--osb-addr", addr), 0, "apiVersion: v1", "")
	if want := "GET /runtimes?account=ga&op_detail=last&page_size=100&shoot=c-1&state=provisioning&state=succeeded&state=updating&state=upgrading" +
		"&state=failed&state=error&state=deprovisioning&state=suspended"; api.asked[0] != want {
		t.Errorf("asked %s, want %s", api.asked[0], want)
	}
	expect(t, run(t, "", "kubeconfig", "-c", "c-1", "--osb-addr", addr), 1, "", "keb: no runtime matches; keb runtimes lists them\n")
	expect(t, run(t, "", "kubeconfig", "-s", "sa", "--osb-addr", addr), 1, "",
		"keb: 2 runtimes match; select one with --instance-id, --runtime-id or --shoot\n")
	expect(t, run(t, "", "kubeconfig", "gone", "--osb-addr", addr), 1, "",
		"keb: there is no kubeconfig of instance gone; it may have been deleted, or its provisioning has not ended\n")
	file := filepath.Join(t.TempDir(), "k.yaml")
	expect(t, run(t, "", "kubeconfig", "i-1", "--file", file, "--osb-addr", addr), 0, "kubeconfig of instance i-1 is in "+file+"\n", "")
	if content, err := os.ReadFile(file); err != nil || string(content) != "apiVersion: v1" {
		t.Errorf("%q, %v", content, err)
	}
}

func TestTaskrun_SeveralRuntimes_RunsCommand(t *testing.T) {
	t.Parallel()
	_, addr := newAPI(t, map[string][]string{
		"GET /runtimes": {"200 " + twoRuntimes}, "GET /kubeconfig/i-1": {"200 one"}, "GET /kubeconfig/i-2": {"200 two"},
		"GET /oauth/cf-eu10/v2/catalog": {`200 {"services":[{"plans":[{"name":"azure"},{"name":"aws"},{"name":"trial"}]}]}`},
	})
	got := run(t, "", "taskrun", "-t", "account=^ga$", "--osb-addr", addr, `echo "$RUNTIME_ID $(cat $KUBECONFIG)"; echo of $PLAN_NAME`)
	lines := strings.Split(strings.TrimSpace(got.out), "\n")
	slices.Sort(lines)
	want := []string{"c-1: of azure", "c-1: r-1 one", "c-2: of trial", "c-2: r-2 two", "the command succeeded for 2 runtimes"}
	if diff := cmp.Diff(want, lines); diff != "" || got.code != 0 {
		t.Errorf("%+v (-want +got):\n%s", got, diff)
	}

	got = run(t, "", "taskrun", "-t", "all", "-e", "plan=trial", "--osb-addr", addr, "-o", "json", "exit 3")
	var outcomes []struct{ ShootName, Error string }
	if err := json.Unmarshal([]byte(got.out), &outcomes); err != nil || len(outcomes) != 1 || outcomes[0].Error != "exit status 3" {
		t.Errorf("%v: %+v", err, got)
	}
	if got.code != 1 || !strings.HasSuffix(got.err, "keb: the command failed for 1 of 1 runtimes\n") {
		t.Errorf("%+v", got)
	}

	got = run(t, "", "taskrun", "-t", "shoot=c-1", "--osb-addr", addr, "false | cat") // a pipe fails with any of its commands
	if want := "c-1: FAILED: exit status 1\nkeb: the command failed for 1 of 1 runtimes\n"; got.code != 1 || got.out+got.err != want {
		t.Errorf("%+v, want %q", got, want)
	}

	expect(t, run(t, "", "taskrun", "-t", "shoot=c-9", "--osb-addr", addr, "true"), 1, "", "keb: no runtime matches; keb runtimes lists them\n")
	expect(t, run(t, "", "taskrun", "-t", "all", "-e", "plan=trail", "--osb-addr", addr, "true"), 2, "", "keb: unknown plan \"trail\"; known: azure, aws, trial\n")
	expect(t, run(t, "", "taskrun", "-t", "shoot=c-1", "-e", "plan=aws", "--osb-addr", addr, "true"), 0, "the command succeeded for 1 runtimes\n", "")
}

func TestTaskrun_VersionAndFailed_SelectRuntimes(t *testing.T) {
	t.Parallel()
	_, addr := newAPI(t, map[string][]string{
		"GET /runtimes": {"200 " + strings.Replace(twoRuntimes, `"suspended"`, `"error"`, 1)}, "GET /kubeconfig/i-1": {"200 one"}, "GET /kubeconfig/i-2": {"200 two"},
	})
	for target, want := range map[string]string{
		"all": "c-1 c-2", "kyma=2.20": "c-1", "kyma=2.2": "", "failed": "c-2", "plan=azure,failed": "",
	} {
		got := run(t, "", "taskrun", "-t", target, "--osb-addr", addr, "echo ran")
		var ran []string
		for line := range strings.Lines(got.out) {
			if shoot, ok := strings.CutSuffix(line, ": ran\n"); ok {
				ran = append(ran, shoot)
			}
		}
		slices.Sort(ran)
		if strings.Join(ran, " ") != want {
			t.Errorf("-t %s ran the command for %v, want %q", target, ran, want)
		}
	}
}

func TestTaskrun_Output_IsStreamedWithPrefix(t *testing.T) {
	t.Parallel()
	_, addr := newAPI(t, map[string][]string{"GET /runtimes": {"200 " + twoRuntimes}, "GET /kubeconfig/i-1": {"200 one"}})
	dir := t.TempDir()
	// The command waits until its first line was printed; the last line has no line break.
	command := fmt.Sprintf(`echo first; while [ ! -e %s/seen ]; do sleep 0.05; done; echo second >&2; printf '\nlast'`, dir)
	out := &marks{mark: "c-1: first\n", file: filepath.Join(dir, "seen")}
	code := cli.Main(t.Context(), []string{"taskrun", "-t", "plan=azure", "--timeout", "1m", "--osb-addr", addr, command},
		cli.IO{In: strings.NewReader(""), Out: out, Err: io.Discard})
	if want := "c-1: first\nc-1: second\nc-1: \nc-1: last\nthe command succeeded for 1 runtimes\n"; code != 0 || out.String() != want {
		t.Errorf("code %d, got %q, want %q", code, out.String(), want)
	}
}

// marks creates a file after the first write.
type marks struct {
	strings.Builder
	mark, file string
}

func (m *marks) Write(text []byte) (int, error) {
	n, _ := m.Builder.Write(text)
	if strings.Contains(m.String(), m.mark) {
		return n, os.WriteFile(m.file, nil, 0o600)
	}
	return n, nil
}

func TestTaskrun_Timeout_Fails(t *testing.T) {
	t.Parallel()
	_, addr := newAPI(t, map[string][]string{"GET /runtimes": {"200 " + twoRuntimes}, "GET /kubeconfig/i-1": {"200 one"}})
	got := run(t, "", "taskrun", "-t", "plan=azure", "--timeout", "50ms", "--osb-addr", addr, "sleep 60")
	if got.code != 1 || !strings.Contains(got.out, "c-1: FAILED: not finished within 50ms") {
		t.Errorf("%+v", got)
	}
}

func TestStuck_Groups_AreATable(t *testing.T) {
	t.Parallel()
	_, addr := newAPI(t, map[string][]string{"GET /stuck": {`200 {"data":[{"reason":"no_worker","type":"provision","worker":"avs","step":"AVS_Create_Internal_Eval_Step",
 "since":"2020-01-01T00:00:00Z","count":3,"operations":["op-1"]},
 {"reason":"failing","type":"provision","worker":"edp","step":"EDP_Registration","since":"2020-01-01T00:00:00Z","count":1,
  "error":{"component":"edp","reason":"unavailable","message":"503"},"operations":["op-2"]},
 {"reason":"instance_busy","type":"update","since":"2020-01-01T00:00:00Z","count":1,"operations":["op-3"],"blockedBy":["op-2"]}],"count":3,"totalCount":3}`, "200 " + notFound}})
	got := run(t, "", "stuck", "--operator-addr", addr)
	lines := strings.Split(got.out, "\n")
	if got.code != 0 || len(lines) != 5 || !strings.HasPrefix(lines[1], "no_worker      3           provision  AVS_Create_Internal_Eval_Step  avs ") ||
		!strings.Contains(lines[2], "edp: unavailable: 503") || !strings.HasSuffix(lines[3], "op-3   op-2") {
		t.Errorf("%+v", got)
	}
	expect(t, run(t, "", "stuck", "--operator-addr", addr), 0, "no operation is stuck\n", "")
}

func TestWorkers_List_IsATable(t *testing.T) {
	t.Parallel()
	_, addr := newAPI(t, map[string][]string{"GET /workers": {`200 {"data":[
 {"name":"avs","version":"","replicas":0,"alive":false,"pending":7,"operationsWaiting":9,"missingSteps":["A","B"]},
 {"name":"edp","version":"1.0","replicas":2,"alive":true,"stepsPerMinute":12.4,"retriesPerMinute":6,"versionReplicas":[{"version":"1.0","replicas":2},{"version":"1.1","replicas":1}],"missingSteps":[]}]}`}})
	got := run(t, "", "workers", "--operator-addr", addr)
	want := "WORKER ALIVE REPLICAS VERSION PENDING STEPS/MIN RETRIED/MIN FAILED/MIN WAITING MISSING STEPS\navs no 0 7 0 0 0 9 A, B\nedp yes 2 1.0 (2), 1.1 (1) 0 12 6 0 0"
	if diff := cmp.Diff(want, cells(got.out)); diff != "" || got.code != 0 {
		t.Errorf("%+v (-want +got):\n%s", got, diff)
	}
}

func TestOperations_Filters_BecomeQuery(t *testing.T) {
	t.Parallel()
	api, addr := newAPI(t, map[string][]string{"GET /operations": {"200 " + notFound}})
	expect(t, run(t, "", "operations", "-q", "0d7e", "--step", "EDP_Registration", "--worker", "edp", "--waiting", "failing,no_answer", "--state", "pending,in-progress",
		"--since", "2026-11-21T22:00:00+01:00", "--operator-addr", addr), 0, "no operations\n", "")
	want := []string{"GET /operations?page=1&page_size=50&q=0d7e&since=2026-11-21T21%3A00%3A00Z&state=pending%2Cin+progress&step=EDP_Registration&waiting=failing%2Cno_answer&worker=edp"}
	if diff := cmp.Diff(want, api.asked); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCompletion_IDsAndValues_AreOffered(t *testing.T) {
	t.Parallel()
	_, addr := newAPI(t, map[string][]string{
		"GET /operations": {`200 {"data":[{"id":"op-1","type":"provision","state":"failed","instanceId":"i-1","plan":"aws","shootName":"c-1"},
 {"id":"op-0","type":"provision","state":"failed","instanceId":"i-1","plan":"aws","shootName":"c-1"}]}`},
		"GET /workers":                  {`200 {"data":[{"name":"edp","steps":["EDP_Registration"],"missingSteps":["EDP_Deregistration"]},{"name":"avs","steps":["AVS_Tags"]}]}`},
		"GET /oauth/cf-eu10/v2/catalog": {`200 {"services":[{"plans":[{"name":"aws"},{"name":"azure"},{"name":"azure_lite"}]}]}`},
		"GET /orchestrations":           {`200 {"data":[{"orchestrationID":"o-1","type":"upgradeKyma","state":"in progress"}]}`},
	})
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"watch", ""}, "op-1\tprovision failed\n"},
		{[]string{"operation", "op-1", ""}, "cancel\nretry\nskip\n"},
		{[]string{"orchestrations", ""}, "o-1\tupgradeKyma in progress\n"},
		{[]string{"orchestrations", "o-1", ""}, "operations\npause\nresume\napprove\ncancel\nretry\n"},
		{[]string{"operations", "--state", ""}, "pending\nin progress\nsucceeded\nincomplete\nfailed\ncancelled\n"},
		{[]string{"operations", "--plan", "az"}, "azure\nazure_lite\n"},
		{[]string{"operations", "--filter", "err"}, "error\tkey of a group of errors, or none\nerror.component\tsystem that failed\n"},
		{[]string{"operations", "--filter", "state = "}, "state = pending\nstate = in_progress\nstate = succeeded\n"},
		{[]string{"operations", "--filter", "NOT (plan:(aws OR st"}, "NOT (plan:(aws OR stage\tstage where"},
		{[]string{"operations", "--filter", "state=failed AND plan=az"}, "state=failed AND plan=azure\nstate=failed AND plan=azure_lite\n"},
		{[]string{"runtimes", "--plan", "aws,az"}, "aws,azure\naws,azure_lite\n"},
		{[]string{"operations", "--step", "EDP"}, "EDP_Deregistration\nEDP_Registration\n"},
		{[]string{"operation", "op-1", "skip", "--step", "AVS"}, "AVS_Tags\n"},
		{[]string{"hold", "create", "--worker", ""}, "avs\nedp\n"},
		{[]string{"operations", "--instance", ""}, "i-1\taws c-1\n:"},
		{[]string{"kubeconfig", "--shoot", "c"}, "c-1\taws\n:"},
		{[]string{"deprovision", "i"}, "i-1\taws c-1\n:"},
		{[]string{"upgrade", "kyma", "-t", "region=^west,pl"}, "region=^west,plan=\n:"},
		{[]string{"upgrade", "kyma", "-t", "region=^west,plan=aw"}, "region=^west,plan=aws\n:"},
		{[]string{"upgrade", "kyma", "-t", "plan=aws,k"}, "plan=aws,kyma=\nplan=aws,kubernetes=\n:"},
		{[]string{"taskrun", "-t", "f"}, "failed\n:"},
		{[]string{"runtimes", "--events", ""}, ""},
	} {
		args := append([]string{"__complete", "--operator-addr", addr, "--osb-addr", addr}, c.args...)
		var got result
		// A slow answer yields no completions, so try again.
		testkit.Eventually(t, time.Minute, fmt.Sprintf("%v: %q is offered", c.args, c.want), func() bool {
			got = run(t, "", args...)
			return got.code != 0 || strings.HasPrefix(got.out, c.want)
		})
		if got.code != 0 {
			t.Errorf("%v: %+v", c.args, got)
		}
	}
	_, away := newAPI(t, nil)
	if got := run(t, "", "__complete", "--operator-addr", "127.0.0.1:1", "watch", ""); got.code != 0 || !strings.HasPrefix(got.out, ":") {
		t.Errorf("server %s unreachable: %+v", away, got)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if got := run(t, "", "completion", shell); got.code != 0 || len(got.out) < 1000 {
			t.Errorf("completion %s: code %d, %d bytes, error %q", shell, got.code, len(got.out), got.err)
		}
	}
}
