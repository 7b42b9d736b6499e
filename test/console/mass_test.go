package console

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
)

// incident has a step whose worker hangs for one plan, and a step whose system fails for the others.
var incident = fstest.MapFS{"provision.yaml": {Data: []byte(`
operation: provision
timeout: 1h
stages:
  - name: create
    steps:
      - {name: Prepare, worker: alpha, when: 'plan.name == "gcp"', retry: {every: 1s, timeout: 10m}, execution: 2s}
      - {name: Register, worker: beta, retry: {every: 1s, timeout: 10m}}
`)}}

// rows returns the IDs of the operations in the list, over all pages.
func (p *tab) rows(total int) []string {
	p.t.Helper()
	const ids = `[...document.querySelectorAll('#main tbody th a')].map((a) => a.title)`
	p.shows("#main", fmt.Sprintf("%d operations", total))
	p.until("the first page is complete", fmt.Sprintf(`document.querySelectorAll('#main tbody tr').length === %d`, min(total, 50)))
	all := eval[[]string](p, ids)
	if total > 50 {
		p.click(".pager button", "Older")
		p.until("the second page is complete", fmt.Sprintf(`document.querySelectorAll('#main tbody tr').length === %d`, total-50))
		all = append(all, eval[[]string](p, ids)...)
		p.click(".pager button", "Newer")
		p.until("the first page is back", `document.querySelectorAll('#main tbody tr').length === 50`)
	}
	slices.Sort(all)
	return all
}

func sortedIDs(ops []event.Operation) []string {
	var all []string
	for _, op := range ops {
		all = append(all, op.ID)
	}
	slices.Sort(all)
	return all
}

// An operator finds a mass failure on the overview, retries a few operations, pauses, resumes, retries the rest, and cancels what hangs.
func TestConsole_MassIncident_IsResolved(t *testing.T) {
	s := thorough(t)
	s.Orchestrator.Processes = incident
	s.Orchestrator.AskWorkersEvery = 2 * time.Second // a short pause of the process must not make a worker appear missing
	release := make(chan struct{})
	s.script.set("Prepare", func(op worker.Operation) (worker.Operation, time.Duration, error) {
		<-release
		return op, 0, nil
	})
	s.script.set("Register", func(op worker.Operation) (worker.Operation, time.Duration, error) {
		if op.Plan.Name == "aws" {
			return worker.Retry(op, time.Minute, &worker.Error{Component: "edp", Reason: "err_quota", Message: "no quota for " + op.ID})
		}
		return op, 0, &worker.Error{Component: "edp", Reason: "err_http", Message: "POST /namespaces/" + op.InstanceID + ": status 503"}
	})
	s.start()
	t.Cleanup(func() { close(release) })
	order := func(plan string, n int) []event.Operation {
		ops := make([]event.Operation, n)
		for i := range ops {
			ops[i] = provision(plan)
		}
		s.request(ops...)
		return ops
	}
	failed, failing, hanging := order("azure", 60), order("aws", 20), order("gcp", 3)
	for _, op := range failed {
		s.await(op, "", "failed")
	}
	for _, op := range failing {
		s.awaitWaiting(op, "", "failing")
	}
	for _, op := range hanging {
		s.awaitWaiting(op, "", "no_answer")
	}

	p := openTab(t, s)
	const outage = " operations: POST /namespaces/…: status 503"
	p.open("/console/")
	p.until("the failures are one group", groupsOf("failed")+` === "60`+outage+`"`)
	p.until("the retries are another group", groupsOf("now")+`.includes("20 operations: no quota for …")`)
	p.shows("section[aria-labelledby=now] .group.edge-bad", "3 operations", "Worker alpha is alive and does not answer")
	p.click("section[aria-labelledby=failed] .group-count", "60 operations")
	if diff := cmp.Diff(sortedIDs(failed), p.rows(60)); diff != "" {
		t.Errorf("the rows of the group (-want +got)\n%s", diff)
	}

	// The system works again. A slow batch shows it with a few operations.
	s.script.set("Register", func(op worker.Operation) (worker.Operation, time.Duration, error) { return op, 0, nil })
	p.click("button", "Act on all 60 that match…")
	p.shows("dialog .preview", "60 operations match.", "Register (10)", "Newest:")
	newest := eval[[]string](p, `[...document.querySelectorAll('dialog .preview a')].map((a) => a.getAttribute('href').split('/').at(-1))`)
	for _, id := range newest {
		if !slices.ContainsFunc(failed, func(op event.Operation) bool { return op.ID == id }) {
			t.Errorf("the preview has the operation %s, which has not failed", id)
		}
	}
	p.choose(`dialog select[name="rate"]`, "1")
	p.enter(`dialog input[name="typed"]`, "60")
	p.enter(`dialog input[name="reason"]`, "EDP works again")
	p.click("dialog button", "Order the batch")
	const done = `Number(/(\d+) done, 0 failed, 0 skipped/.exec(document.querySelector('#main').innerText)?.[1])`
	p.until("the batch makes progress", done+` >= 2`)
	p.click("button", "Pause")
	p.shows("#main .title-row", "paused")
	p.shows("#main", "of 60")
	atPause := eval[int](p, done)
	if value := eval[int](p, `document.querySelector('#main progress').value`); value != atPause || atPause >= 60 {
		t.Errorf("%d are done, the progress bar shows %d of 60", atPause, value)
	}
	p.click("button", "Resume")
	p.shows("#main .title-row", "running")
	p.until("the batch continues", fmt.Sprintf(`%s > %d`, done, atPause))
	p.click("button", "Cancel…")
	p.shows("dialog", "Cancel this batch?", "will stay as they are")
	p.click("dialog button", "Cancel the batch")
	p.shows("#main .title-row", "cancelled")
	var first operator.Batch
	s.ask(http.MethodGet, "/batches/"+strings.TrimPrefix(eval[string](p, `location.pathname`), "/console/batches/"), "", "", &first)

	// The rest is one group again, and is retried at once.
	rest := 60 - first.Done
	p.open("/console/")
	p.until("the rest is one group", groupsOf("failed")+fmt.Sprintf(` === "%d%s"`, rest, outage))
	p.click("section[aria-labelledby=failed] .group-count", fmt.Sprintf("%d operations", rest))
	left := p.rows(rest)
	p.click("button", fmt.Sprintf("Act on all %d that match…", rest))
	p.shows("dialog .preview", fmt.Sprintf("%d operations match.", rest))
	p.choose(`dialog select[name="rate"]`, "0")
	p.enter(`dialog input[name="typed"]`, fmt.Sprint(rest))
	p.enter(`dialog input[name="reason"]`, "the first ones have succeeded")
	p.click("dialog button", "Order the batch")
	p.shows("#main", fmt.Sprintf("%d done, 0 failed, 0 skipped, 0 waiting of %d", rest, rest), "finished")
	results := s.results(strings.TrimPrefix(eval[string](p, `location.pathname`), "/console/batches/"))
	if diff := cmp.Diff(left, results); diff != "" {
		t.Errorf("the operations with a result (-want +got)\n%s", diff)
	}
	p.until("each row has its result", fmt.Sprintf(`[...document.querySelectorAll('#main tbody tr')].filter((r) => r.innerText.includes('done')).length === %d`, min(rest, 50)))
	for _, op := range failed {
		s.await(op, "", "succeeded")
	}
	p.open("/console/")
	p.shows("section[aria-labelledby=failed]", "Nothing has failed.")

	// What hangs is cancelled.
	p.click("section[aria-labelledby=now] .group.edge-bad .group-count", "3 operations")
	if diff := cmp.Diff(sortedIDs(hanging), p.rows(3)); diff != "" {
		t.Errorf("the rows of what hangs (-want +got)\n%s", diff)
	}
	p.shows("#main tbody tr", "no answer")
	p.click("button", "Act on all 3 that match…")
	p.choose(`dialog select[name="action"]`, "cancel")
	p.shows("dialog .preview", "3 operations match.")
	p.enter(`dialog input[name="typed"]`, "3")
	p.enter(`dialog input[name="reason"]`, "alpha hangs")
	p.click("dialog button", "Order the batch")
	p.shows("#main", "3 done, 0 failed, 0 skipped, 0 waiting of 3", "finished")
	for _, op := range hanging {
		s.await(op, "", "cancelled")
	}
	p.open("/console/")
	p.until("nothing hangs", `!`+groupsOf("now")+`.includes("answer")`)
	p.open("/console/operations/" + hanging[0].ID)
	p.shows(".state-line", "cancelled")
}

// results returns the IDs of the operations of a batch that are done.
func (s *system) results(batch string) []string {
	s.t.Helper()
	var list operator.List[operator.BatchResult]
	s.ask(http.MethodGet, "/batches/"+batch+"/operations?page_size=100&state=done", "", "", &list)
	var all []string
	for _, r := range list.Data {
		all = append(all, r.OperationID)
	}
	slices.Sort(all)
	return all
}
