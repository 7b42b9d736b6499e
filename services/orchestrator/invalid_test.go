package orchestrator_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/seal"
)

func TestAPI_InvalidRequest_IsRejected(t *testing.T) {
	t.Parallel()
	f := newFakeBroker(t, 1)
	f.cfg.WebhookKeys = "k1:" + seal.NewKey()
	f.start()
	op := operation(event.Deprovision, "gone", "azure")
	f.run(op)
	f.failedUpdates(2)
	id := f.upgradeAll(1)
	f.awaitOrchestration(id, "succeeded")
	const form, none = "application/x-www-form-urlencoded", "00000000-0000-0000-0000-000000000000"
	check := func(method, path, body string, code int, want string, headers ...string) {
		t.Helper()
		got, text := f.do(method, path, body, headers...)
		if got != code || !strings.Contains(text, want) || strings.Contains(text, "canary") {
			t.Errorf("%s %s %.200s: %d %s; want %d with %q", method, path, body, got, text, code, want)
		}
	}
	get := func(path string, code int, want string) { t.Helper(); check(http.MethodGet, path, "", code, want) }
	post := func(path, body string, code int, want string) {
		t.Helper()
		check(http.MethodPost, path, body, code, want)
	}

	get("/operations?state=sleeping", 400, `state \"sleeping\": allowed are pending, in progress`)
	get("/operations?type=x", 400, `type \"x\"`)
	get("/operations?page_size=0", 400, "page_size")
	get("/operations?page=x", 400, "page")
	get("/operations?filter=plann+%3D+azure", 400, `filter: at character 1: unknown field \"plann\": allowed are attempts, `)
	get("/operations?error=x", 400, "error")
	get("/operations?error="+strings.Repeat("g", 16), 400, "error")
	get("/operations?hold=x", 400, "hold")
	get("/operations?finished_since=yesterday", 400, "finished_since")
	get("/operations?finished_until=1", 400, "finished_until")
	get("/operations/nonsense", 404, "no operation")
	get("/operations/"+none, 404, "no operation")
	get("/operations/"+op.ID+"/history?after=x", 400, "after")
	get("/operations/"+op.ID+"/history?page_size=0", 400, "page_size")
	post("/operations/"+op.ID+"/retry", "", 409, "only a failed one can be retried")
	post("/operations/"+op.ID+"/cancel", "", 409, "has ended as succeeded")
	post("/operations/"+op.ID+"/skip", "{}", 400, "step: must name")
	post("/operations/"+op.ID+"/skip", `{"stepp":"x"}`, 400, "unknown field")
	post("/operations/nonsense/cancel", "", 404, "no operation")
	post("/operations/"+none+"/cancel", "", 404, "no operation")
	for _, tail := range []string{"x", "}", "{}"} {
		post("/operations/"+op.ID+"/cancel", `{"by":"me"}`+tail, 400, "unexpected data after the JSON object")
	}

	post("/batches", `{"action":"retry","filter":"","reason":"r"}`, 400, "filter: must not be empty")
	post("/batches", `{"action":"retry","filter":"state=","reason":"r"}`, 400, "filter: must not be empty")
	post("/batches", `{"action":"retry","filter":"stat=failed","reason":"r"}`, 400, `filter: unknown parameter \"stat\"`)
	post("/batches", `{"action":"retry","filter":"state=failed&page=2","reason":"r"}`, 400, `unknown parameter \"page\"`)
	post("/batches", `{"action":"retry","filter":"state=broken","reason":"r"}`, 400, "allowed are")
	post("/batches", `{"action":"retry","filter":"%zz","reason":"r"}`, 400, "name=value")
	post("/batches", `{"action":"retry","filter":"state=failed"}`, 400, "reason")
	post("/batches", `{"action":"redo","filter":"state=failed","reason":"r"}`, 400, "action")
	post("/batches", `{"action":"skip","filter":"state=failed","reason":"r"}`, 400, "step")
	post("/batches", `{"action":"cancel","stage":"change","filter":"state=failed","reason":"r"}`, 400, "stage")
	post("/batches", `{"action":"retry","filter":"state=failed","reason":"r","rate":-1}`, 400, "rate")
	post("/batches", `{"action":"retry","filter":"state=failed","reason":"r","all":true}`, 400, "unknown field")
	post("/batches", `{"action":"retry","filter":"plan=none","reason":"r"}`, 409, "no operation matches")
	post("/batches", `{"action":"retry","filter":"state=failed","reason":"r","expected":1}`, 409, "2 operations match the filter now, and 1 did")
	post("/batches", `{"action":"hold","filter":"worker=alpha","reason":"r"}`, 400, "is only a preview")
	post("/batches", `{"action":"hold","filter":"state=failed","dryRun":true}`, 400, "a hold has no scope for state")
	post("/batches", `{"action":"hold","filter":"plan=azure,aws","dryRun":true}`, 400, "one plan")
	post("/batches", `{"action":"resume","filter":"worker=alpha","dryRun":true}`, 409, "no hold has the scope worker alpha")
	var batches operator.List[operator.Batch]
	if f.get("/batches", &batches); batches.TotalCount != 0 {
		t.Errorf("%d batches are stored", batches.TotalCount)
	}

	post("/upgrade/kyma", `{}`, 400, "targets.include: must name at least one")
	post("/upgrade/cluster", `{"targets": {"include": [{"region": "("}]}}`, 400, "targets.include[0].region")
	post("/upgrade/kyma", `{"targets": {"include": [{"target": "all"}]}, "strategy": {"schedule": "maintenanceWindow"}}`, 400, "strategy.schedule")
	post("/upgrade/kyma", strings.Repeat(" ", 1<<20+1), 413, "larger than")
	post("/upgrade/everything", `{}`, 404, "")
	post("/upgrade/kyma", `{"targets": {"include": [{"planName": "aws"}, {"planName": "azur"}]}}`, 400, `targets.include[1].planName: unknown plan \"azur\"; known: azure, aws, trial`)
	post("/upgrade/cluster", `{"targets": {"include": [{"target": "all"}], "exclude": [{"planName": "AWS"}]}}`, 400, "targets.exclude[0].planName")
	get("/orchestrations?state=sleeping", 400, `state \"sleeping\": allowed are pending, in progress`)
	get("/orchestrations?page=0", 400, "page")
	get("/orchestrations?page_size=1001", 400, "page_size")
	get("/orchestrations/nonsense", 404, "no orchestration")
	get("/orchestrations/"+none, 404, "no orchestration")
	get("/orchestrations/"+none+"/operations", 404, "no orchestration")
	get("/orchestrations/"+id+"/operations?state=canceling", 400, `state \"canceling\"`)
	get("/orchestrations/"+id+"/operations/"+none, 404, "has no operation")
	get("/orchestrations/"+id+"/operations/nonsense", 404, "has no operation")
	check(http.MethodPut, "/orchestrations/"+none+"/cancel", "", 404, "no orchestration")
	check(http.MethodPost, "/orchestrations/"+none+"/retry", "", 404, "no orchestration", "Content-Type", form)
	post("/orchestrations/"+id+"/retry", "{}", 415, form)
	check(http.MethodPost, "/orchestrations/"+id+"/retry", "", 415, form, "Content-Type", "")
	check(http.MethodPost, "/orchestrations/"+id+"/retry", "operation=1", 400, `unknown field \"operation\"`, "Content-Type", form)
	check(http.MethodPost, "/orchestrations/"+id+"/retry", "immediate=soon", 400, "immediate", "Content-Type", form)

	get("/events", 400, "operation_ids, instance_ids: got 0 ids")
	get("/events?runtime_ids=x", 400, `unknown parameter \"runtime_ids\"`)
	get("/events?instance_ids="+strings.Repeat("x,", 101), 400, "101 ids")
	post("/events/a..b", "", 400, "")
	post("/events/"+strings.Repeat("a", 201), "", 400, "")
	post("/events/a", "{", 400, "")
	post("/events/a", `"\u0000"`, 400, "")
	post("/events/a", `"`+strings.Repeat("x", 64<<10)+`"`, 413, "")
	post("/events/a", strings.Repeat("[", 9000)+strings.Repeat("]", 9000), 202, "")
	post("/events/a", "", 202, "")

	get("/stream?operation=x", 400, "")
	get("/stream?operation="+none, 404, "")
	check(http.MethodGet, "/stream", "", 400, "", "Last-Event-ID", "yesterday")
	check(http.MethodGet, "/stream", "", 400, "", "Last-Event-ID", "1.1:1:/x")
	get("/stream?detail=true", 400, "")
	get("/stream?detail=1&operation="+none, 400, "")
	get("/stream?detail=true&after=-1&operation="+none, 400, "")

	get("/dead-letters?before=x", 400, "before")
	get("/dead-letters?before=0", 400, "before")
	get("/dead-letters?page=2", 400, "page")
	get("/dead-letters?page_size=0", 400, "page_size")

	for order, want := range map[string]string{
		`{"name":"A","url":"https://example.org"}`:                                "name",
		`{"name":"a","url":"http://example.org"}`:                                 "https",
		`{"name":"a","url":"https://u:p@example.org"}`:                            "https URL",
		`{"name":"a","url":"https://localhost/x"}`:                                "loopback",
		`{"name":"a","url":"https://127.0.0.1/x"}`:                                "loopback",
		`{"name":"a","url":"https://169.254.169.254/latest"}`:                     "link-local",
		`{"name":"a","url":"https://[::ffff:169.254.169.254]/latest"}`:            "link-local",
		`{"name":"a","url":"https://[fd00:ec2::254]/latest"}`:                     "metadata",
		`{"name":"a","url":"https://example.org","format":"xml"}`:                 "format",
		`{"name":"a","url":"https://example.org","filter":{"kinds":["ended"]}}`:   "filter.kinds",
		`{"name":"a","url":"https://example.org","filter":{"types":["delete"]}}`:  "filter.types",
		`{"name":"a","url":"https://example.org","secret":"too-short-canary"}`:    "secret",
		`{"name":"a","url":"https://example.org","filter":{"states":["failed"]}}`: "body",
	} {
		post("/webhooks", order, 400, want)
	}
}
