package console

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/fstest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
)

// outage has steps that are tried again all the time.
var outage = fstest.MapFS{"provision.yaml": {Data: []byte(`
operation: provision
timeout: 1h
stages:
  - name: create
    steps:
      - {name: Prepare, worker: alpha}
      - {name: Register, worker: beta, retry: {every: 50ms, timeout: 10m}}
  - name: finish
    steps:
      - {name: Finish, worker: alpha}
`)}}

// groupsOf is an expression for the groups of the overview: how many operations, and what they fail with.
func groupsOf(section string) string {
	return fmt.Sprintf(`[...document.querySelectorAll('section[aria-labelledby=%s] .group')].map((g) => g.querySelector('.group-count').innerText + ': ' + g.querySelector('.message').innerText).join(' | ')`, section)
}

func TestConsole_Outage_IsGroupedByError(t *testing.T) {
	s := thorough(t)
	s.Orchestrator.Processes = outage
	s.Orchestrator.AskWorkersEvery = 2 * time.Second // a short pause of the process must not make a worker appear missing
	s.script.set("Register", func(op worker.Operation) (worker.Operation, time.Duration, error) {
		if op.Plan.Name == "azure" {
			return worker.Retry(op, 50*time.Millisecond, &worker.Error{Component: "edp", Reason: "err_http", Message: "POST /namespaces/" + op.InstanceID + ": status 503"})
		}
		return worker.Retry(op, 50*time.Millisecond, &worker.Error{Component: "edp", Reason: "err_quota", Message: "no quota for " + op.ID + " at " + time.Now().Format(time.RFC3339Nano)})
	})
	s.script.set("Finish", func(op worker.Operation) (worker.Operation, time.Duration, error) {
		return op, 0, errors.New("the cluster " + op.Runtime.ShootName + " is gone")
	})
	stop := s.orchestrator()
	s.worker("alpha")
	s.worker("beta")
	var ops []event.Operation
	for i := range 10 {
		ops = append(ops, provision([]string{"azure", "azure", "aws"}[i%3]))
	}
	s.request(ops...)
	for _, op := range ops {
		s.awaitWaiting(op, "", "failing")
	}
	const want = "7 operations: POST /namespaces/…: status 503 | 3 operations: no quota for … at …"
	p := openTab(t, s)
	p.open("/console/")
	p.until("two groups", groupsOf("now")+` === "`+want+`"`)
	counted := map[time.Time]bool{}
	for look := 0; look < 20 || len(counted) < 3; look++ {
		var e operator.Errors
		s.ask(http.MethodGet, "/errors", "", "", &e)
		counted[e.CountedAt] = true
		if len(e.Now.Groups) != 2 || e.Now.Groups[0].Count != 7 || e.Now.Groups[1].Count != 3 {
			t.Fatalf("look %d: %+v", look, e.Now)
		}
		p.shortcut("r")
		if got := eval[string](p, groupsOf("now")); got != want {
			t.Fatalf("look %d: the page shows %s", look, got)
		}
	}
	p.click("section[aria-labelledby=now] .group-count", "7 operations")
	p.until("the list has as many rows as the group", `location.pathname === '/console/operations' && document.querySelectorAll('#main tbody tr').length === 7`)
	p.shows("#main", "7 operations", "Operations with a similar error")

	s.script.set("Register", nil)
	for _, op := range ops {
		s.await(op, "", "failed")
	}
	p.open("/console/")
	p.until("one group has failed", groupsOf("failed")+` === "10 operations: the cluster … is gone"`)
	p.shows("section[aria-labelledby=now]", "Nothing fails.")
	p.until("the chart shows the failed tries in red", `document.querySelectorAll('.charts .fill-bad').length > 2`)
	p.click(".figure", eval[string](p, `document.querySelector('.figure.text-bad').innerText.trim()`))
	p.until("the figure opens as many rows as it says", `document.querySelectorAll('#main tbody tr').length === 10`)

	// The overview links to an unreadable message, which is redriven and dropped.
	_, err := s.Bus.JetStream().PublishMsg(t.Context(), &nats.Msg{
		Subject: event.DeadSubject(event.StreamResults), Data: []byte(`{"password": "CANARY", "step": "Register"}`),
		Header: nats.Header{
			bus.HeaderDeadSubject: {event.ResultSubject("beta", "Register")}, bus.HeaderDeadConsumer: {"orchestrator"}, bus.HeaderDeadReason: {"not a readable CloudEvent"},
		},
	})
	require.NoError(t, err)
	p.open("/console/")
	p.click("#main a", "1 message could not be handled")
	p.shows("tbody tr", "orchestrator", "keb.result.beta.Register", "not a readable CloudEvent")
	p.click("tbody a", "1")
	p.shows("#main", "Dead letter 1", "It counts only if the operation still awaits it.", `"step": "Register"`, `"password": "[redacted]"`)
	p.click("button", "Redrive…")
	p.click("dialog button", "Redrive")
	p.shows(".notice", "The message is published again.")
	p.shows("tbody tr", "2") // it is still not readable
	p.click("tbody a", "2")
	p.click("button", "Drop…")
	p.click("dialog button", "Drop")
	p.shows("#main", "There are no dead letters.")

	// Without the API, the last numbers are marked.
	p.open("/console/")
	p.shows("#main", "All 2 workers are alive")
	p.forgive("ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE", "ERR_INCOMPLETE", "503")
	stop()
	p.shows("#main", "Not current: these numbers are", "All 2 workers were alive")
}
