package console

import (
	"errors"
	"net/http"
	"testing"
	"testing/fstest"
	"time"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
)

// conditions has a step that fails, one that hangs, and one that polls.
var conditions = fstest.MapFS{"provision.yaml": {Data: []byte(`
operation: provision
timeout: 1h
stages:
  - name: create
    steps:
      - {name: Prepare, worker: alpha, when: 'plan.name == "gcp"', retry: {every: 1s, timeout: 10m}}
      - {name: Register, worker: beta, when: 'plan.name == "azure"', retry: {every: 1s, timeout: 10m}, execution: 2s, onTimeout: skip}
      - {name: Finish, worker: alpha, retry: {every: 1s, timeout: 10m, scope: step}, wait: {every: 1s, timeout: 20m}}
`)}}

func TestConsole_Conditions_AreDistinguished(t *testing.T) {
	s := thorough(t)
	s.Orchestrator.Processes = conditions
	release := make(chan struct{})
	s.script.set("Prepare", func(op worker.Operation) (worker.Operation, time.Duration, error) {
		return retry("the project has no quota")(op)
	})
	s.script.set("Register", func(op worker.Operation) (worker.Operation, time.Duration, error) {
		<-release
		return op, 0, nil
	})
	s.script.set("Finish", func(op worker.Operation) (worker.Operation, time.Duration, error) {
		return worker.Wait(op, time.Second, "the cluster is being created")
	})
	s.start()
	t.Cleanup(func() { close(release) })
	fails, hangs, polls := provision("gcp"), provision("azure"), provision("aws")
	s.request(fails, hangs, polls)
	s.awaitWaiting(fails, "", "failing")
	s.awaitWaiting(hangs, "", "no_answer")
	s.awaitWaiting(polls, "", "polling")

	p := openTab(t, s)
	p.open("/console/")
	p.shows(".group.edge-wait", "Failing", "Prepare", "1 operation", "the project has no quota")
	p.shows(".group.edge-bad", "No answer", "Worker beta is alive and does not answer", "Register", "has not answered within 2s")
	p.shows("details.more", "No action needed: 1 polling")
	p.until("healthy polling is not a problem", `document.querySelectorAll('.group').length === 2`)
	p.open("/console/operations")
	p.shows("tbody", "failing", "no answer", "polling", "the cluster is being created")
	p.open("/console/operations/" + polls.ID)
	p.shows(".callout.edge-run", "Waiting: polling for", "the cluster is being created", "The operation fails if it has not succeeded by", "left).")
	p.open("/console/operations/" + hangs.ID)
	p.shows(".callout.edge-bad", "Waiting: no answer of worker beta for", "has not answered within 2s", "The step is skipped if it has not succeeded by")
	p.shows("tr.here", "Register", "no answer")
	p.open("/console/operations/" + fails.ID)
	p.shows(".callout.edge-wait", "Waiting: failing for", "the project has no quota")
	p.open("/console/processes/provision")
	p.shows(".node", "Register beta", "1 no answer")
	p.open("/console/workers")
	p.shows("tbody", "alpha", "beta")
}

func TestConsole_RetryLoop_IsShownAsOneLine(t *testing.T) {
	s := thorough(t)
	s.script.set("Finish", func(op worker.Operation) (worker.Operation, time.Duration, error) {
		return worker.Retry(op, 50*time.Millisecond, errors.New("the cluster does not answer"))
	})
	s.script.set("Register", func() behaviour {
		tries := 0
		return func(op worker.Operation) (worker.Operation, time.Duration, error) {
			if tries++; tries > 40 {
				return op, 0, nil
			}
			return worker.Retry(op, 50*time.Millisecond, errors.New("the registry is closed"))
		}
	}())
	s.start()
	op := provision("azure")
	s.request(op)
	testkit.Eventually(t, patience, "the loop has 60 tries", func() bool {
		var o struct {
			Step   string
			Budget struct{ Attempts int }
		}
		s.ask(http.MethodGet, "/operations/"+op.ID, "", "", &o)
		return o.Step == "Finish" && o.Budget.Attempts > 60
	})
	p := openTab(t, s)
	p.open("/console/operations/" + op.ID)
	p.shows(".callout.edge-wait", "Waiting: failing for", "the cluster does not answer", "Tried ", "the end of its retry timeout")
	p.shows("section[aria-labelledby=history]", "failing 40 tries", "1 to 40", "the registry is closed", "succeeded 41 tries")
	p.until("each loop is one line", `document.querySelectorAll('section[aria-labelledby=history] tbody tr').length < 10`)
	p.until("a folded line is one bar for the last try and a thin one from the first one on",
		`[...document.querySelectorAll('.step-row .bar.thin')].some((b) => /40 tries from/.test(b.title))`)
	p.until("tries of all lines are counted", `[...document.querySelectorAll('.step-row')].some((r) => /Register[^]*\b41\b/.test(r.innerText))`)
}
