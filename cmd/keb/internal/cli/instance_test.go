package cli_test

import (
	"strings"
	"testing"
)

func TestInstance_Text_HasEverything(t *testing.T) {
	t.Parallel()
	api, addr := newAPI(t, map[string][]string{
		"GET /instances/i-1": {`200 {"instanceId":"i-1","detail":{"instanceId":"i-1","plan":{"id":"p","name":"trial"},"state":"suspended",
 "runtime":{"name":"shop","shootName":"c-1","region":"eastus","provider":"azure"},"globalAccountId":"ga","subaccountId":"sa","createdAt":"2026-11-21T08:00:00Z",
 "expiredAt":"2026-11-22T08:00:00Z","parameters":{"name":"shop"},"effectiveParameters":{"name":"shop","volumeSizeGb":50},
 "bindings":[{"bindingId":"b-1","createdAt":"2026-11-21T08:00:00Z","expiresAt":"2026-11-21T09:00:00Z","createdAccessAt":"2026-11-21T08:00:01Z"}]},
 "operations":[{"id":"op-2","type":"deprovision","state":"succeeded","instanceId":"i-1","plan":"trial","createdAt":"2026-11-21T08:00:00Z"}],"operationCount":7,
 "orchestrations":[{"orchestrationID":"o-1","operationID":"op-9","state":"canceled","canary":true,"dryRun":true,"description":"no longer needed"}],
 "events":[{"ID":"e","Level":"error","OperationID":"op-2","Message":"edp failed","CreatedAt":"2026-11-21T08:00:02Z"}],"problems":["the worker sleeps"]}`},
		"GET /instances/no-such":                {`404 {"error":"there is no instance"}`},
		"GET /instances/i-1/maintenance-window": {`200 {"shootName":"c-1","begin":"220000+0000","end":"020000+0000"}`},
	})
	got := run(t, "", "instance", "i-1", "--operator-addr", addr)
	text := strings.Join(strings.Fields(got.out), " ")
	for _, want := range []string{
		"shop: suspended, expired since 2026-11-22T08:00:00Z", "Maintenance window 220000+0000 to 020000+0000", `Effective parameters {"name":"shop","volumeSizeGb":50}`,
		"op-2 deprovision succeeded", "1 of 7 operations; keb operations --instance i-1 lists them", "b-1 expired 2026-11-21T08:00:00Z",
		"o-1 cancelled, canary (dry run) op-9 no longer needed", "2026-11-21T08:00:02Z error op-2 edp failed",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, got.out)
		}
	}
	if got.code != 0 || got.err != "keb: only a part is shown: the worker sleeps\n" || len(api.asked) != 2 {
		t.Errorf("code %d, asked %v, errors %q", got.code, api.asked, got.err)
	}
	expect(t, run(t, "", "instance", "no-such", "--operator-addr", addr), 1, "",
		"keb: there is no instance \"no-such\"; keb find finds one by its name, shoot or the beginning of an ID\n")
}

func TestFind_Text_ListsRuntimesAndOperations(t *testing.T) {
	t.Parallel()
	_, addr := newAPI(t, map[string][]string{"GET /find": {
		`200 {"instances":[{"instanceId":"i-1","matched":"name","runtimeName":"shop","shootName":"c-1","plan":"aws",
 "region":"eu","state":"succeeded","expiredAt":"2026-11-22T08:00:00Z","createdAt":"2020-01-01T00:00:00Z"}],"moreInstances":true,
 "operations":[{"id":"op-1","type":"update","state":"succeeded","instanceId":"i-1","plan":"aws","createdAt":"2020-01-01T00:00:00Z"}],"operationCount":3}`,
		`200 {"instances":[],"operations":[],"operationCount":0}`,
	}})
	got := run(t, "", "find", "shop", "--operator-addr", addr)
	text := strings.Join(strings.Fields(age.ReplaceAllString(got.out, "AGE")), " ")
	want := "INSTANCE NAME SHOOT PLAN REGION STATE MATCHES AGE i-1 shop c-1 aws eu succeeded, expired name AGE the first 1 runtimes; write more of the text " +
		"OPERATION TYPE STATE PLAN INSTANCE AGE WHERE op-1 update succeeded aws i-1 AGE 1 of 3 operations; keb operations -q shop lists them"
	if text != want || got.code != 0 {
		t.Errorf("code %d, got %s\nwant %s", got.code, text, want)
	}
	expect(t, run(t, "", "find", "nothing", "--operator-addr", addr), 0, "nothing matches\n", "")
}
