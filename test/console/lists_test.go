package console

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/worker"
)

// broker answers questions about one instance, as the broker does.
func (s *system) broker(d event.InstanceDetail) {
	s.t.Helper()
	for subject, handle := range map[string]func(raw []byte) any{
		event.AskInstance: func(raw []byte) any {
			var q event.InstanceRequest
			if json.Unmarshal(raw, &q) != nil || q.InstanceID != d.InstanceID {
				return event.InstanceAnswer{}
			}
			return event.InstanceAnswer{Instance: &d}
		},
		event.AskFind: func(raw []byte) any {
			var q event.FindRequest
			if json.Unmarshal(raw, &q) != nil || !strings.HasPrefix(d.Runtime.Name, q.Text) {
				return event.FindAnswer{Instances: []event.FoundInstance{}}
			}
			return event.FindAnswer{Instances: []event.FoundInstance{{
				InstanceID: d.InstanceID, Matched: "name", RuntimeName: d.Runtime.Name, ShootName: d.Runtime.ShootName, Plan: d.Plan.Name, State: d.State, CreatedAt: d.CreatedAt,
			}}}
		},
		event.AskMaintenanceWindows: func([]byte) any {
			return event.MaintenanceWindowsAnswer{Windows: []event.MaintenanceWindow{{ShootName: d.Runtime.ShootName, Begin: "220000+0000", End: "020000+0000"}}}
		},
	} {
		stop, err := s.Bus.Answer(subject, "broker", func(_ context.Context, raw []byte) (any, error) { return handle(raw), nil })
		require.NoError(s.t, err)
		s.t.Cleanup(stop)
	}
}

// detail describes the instance of an operation, which is suspended.
func detail(op event.Operation) event.InstanceDetail {
	at := time.Date(2026, 11, 23, 2, 0, 0, 0, time.UTC)
	return event.InstanceDetail{
		InstanceID: op.InstanceID, Plan: op.Plan, State: "suspended", Runtime: op.Runtime, RuntimeID: "rt-1", GlobalAccountID: "ga-1", SubaccountID: "sa-1", CreatedAt: at,
		ExpiredAt: &at, Parameters: []byte(`{"name":"demo","machineType":"m5.xlarge"}`), EffectiveParameters: []byte(`{"name":"demo","machineType":"m5.xlarge","volumeSizeGb":50}`),
		Bindings: []event.BindingSummary{{BindingID: "binding-1", CreatedAt: at, ExpiresAt: at.Add(time.Hour), CreatedAccessAt: &at}},
	}
}

func TestConsole_FindRuntime_ShowsInstance(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.start()
	op := provision("trial")
	s.broker(detail(op))
	s.request(op)
	s.await(op, "", "succeeded")

	p := openTab(t, s)
	_, err := chromedp.Call(p.ctx, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Tokyo"})
	require.NoError(t, err)
	p.open("/console/workers")
	p.shortcut("/")
	p.until("the search has the focus", `document.activeElement.name === 'find'`)
	p.press("demo" + kb.Enter)
	p.until("the only match is opened", fmt.Sprintf(`location.pathname === '/console/instances/%s'`, op.InstanceID))
	p.shows("h1", "demo "+op.InstanceID)
	p.shows(".state-line", "suspended expired since")
	p.shows(".facts", "Shoot c-1234567", "Runtime ID rt-1", "Maintenance window 22:00 UTC to 02:00 UTC", "Created 2026-11-23 02:00:00 UTC")
	p.shows("section", "succeeded provisioning", "binding-1 expired", "volumeSizeGb – 50", "machineType m5.xlarge m5.xlarge", "finish/Finish succeeded", "The instance is in no orchestration")
	p.shortcut("z")
	p.shows(".facts", "Created 2026-11-23 11:00:00 GMT+9")
	p.until("the choice is kept", `localStorage.getItem('keb.zone') === 'local'`)
	p.do(chromedp.NavigateBack())
	p.shows("h1", "Workers")
	p.shows("main", "GMT+9")
}

func TestConsole_Lists_KeepOrderViewsAndPosition(t *testing.T) {
	s := thorough(t)
	long := "create data tenant: " + strings.Repeat("call the system again: ", 20) + "connection refused"
	s.script.set("Register", retry(long))
	s.start()
	var all []event.Operation
	for range 70 {
		all = append(all, provision("trial"))
	}
	failing := provision("azure")
	s.request(append([]event.Operation{failing}, all...)...)
	s.awaitWaiting(failing, "", "failing")
	s.await(all[len(all)-1], "", "succeeded")

	p := openTab(t, s)
	p.open("/console/operations")
	p.shows("main", "71 operations")
	ids := `[...document.querySelectorAll('tbody th a')].map((a) => a.title).join()`

	// The way back leads to the same rows at the same place, also from the second page.
	first := eval[string](p, ids)
	eval[any](p, `scrollTo(0, 700)`)
	p.until("the head of the table stays visible", `document.querySelector('thead th').getBoundingClientRect().top === 0`)
	p.until("the position is kept", `history.state?.y === 700`)
	row := eval[string](p, `(() => { const a = document.querySelectorAll('tbody th a')[20]; a.focus({preventScroll: true}); a.click(); return a.title; })()`)
	p.until("the operation is open", fmt.Sprintf(`location.pathname === '/console/operations/%s' && document.querySelector('h1 .id') !== null`, row))
	s.request(provision("trial"))
	p.do(chromedp.NavigateBack())
	p.until("the same rows are at the same place", fmt.Sprintf(`%s === '%s' && scrollY === 700 && document.activeElement.title === '%s'`, ids, first, row))
	p.click(".pager button", "Older")
	p.until("the second page has the rest", `document.querySelectorAll('tbody tr').length === 21`)
	p.do(chromedp.Click(chromedp.CSS(`tbody th a`)))
	p.until("the operation is open", `location.pathname !== '/console/operations'`)
	p.do(chromedp.NavigateBack())
	p.until("the second page is back", `document.querySelectorAll('tbody tr').length === 21`)
	p.click(".pager button", "Newer")
	p.until("the first page is back", `document.querySelectorAll('tbody tr').length === 50`)

	// The order, and a view of it.
	p.click(".sort", "Created ▼")
	p.until("the oldest is first", fmt.Sprintf(`location.search === '?sort=oldest' && %s.startsWith('%s')`, ids, failing.ID))
	p.click(".sort", "Took")
	p.until("the longest is first", fmt.Sprintf(`location.search === '?sort=duration' && %s.startsWith('%s')`, ids, failing.ID))
	p.do(chromedp.Click(chromedp.CSS(`input[value="in progress"]`)))
	p.shows("main", "1 operation")
	p.click("button", "Save view…")
	p.enter(`dialog input`, "Night shift")
	p.click("dialog button", "Save")
	p.click(".views a", "All")
	p.until("all are there", `document.querySelectorAll('tbody tr').length === 50`)
	top := `document.querySelector('.list').getBoundingClientRect().top`
	before := eval[float64](p, top)
	p.open("/console/operations")
	p.click(".views a", "Night shift")
	p.until("the view has its filter and order", `new URL(location).searchParams.get('sort') === 'duration' && document.querySelectorAll('tbody tr').length === 1`)
	if after := eval[float64](p, top); after != before {
		t.Errorf("the filter moves the list from %v to %v", before, after)
	}

	// The end of the error is visible, and the rest on demand.
	p.shows("tbody .failure summary", "connection refused")
	if eval[bool](p, `document.querySelector('tbody .failure').innerText.includes('create data tenant')`) {
		t.Error("the beginning of a long error is visible")
	}
	p.do(chromedp.Click(chromedp.CSS(`tbody .failure summary`)))
	p.shows("tbody .failure", "create data tenant: call the system again:")

	p.do(chromedp.EmulateViewport(390, 844))
	p.until("every column is a part of the card", `[...document.querySelectorAll('tbody tr > *')].length === 8 && [...document.querySelectorAll('tbody tr > *')]
		.every((c) => { const r = c.getBoundingClientRect(); return r.width > 0 && r.left >= 0 && r.right <= 390; }) && document.documentElement.scrollWidth <= 390`)
	p.shows("tbody tr", "demo provisioning azure")
	p.do(chromedp.EmulateViewport(1280, 900))
	for _, view := range []string{"/console/operations", "/console/workers", "/console/actions", "/console/find?q=ga-1", "/console/instances/" + failing.InstanceID, "/console/processes/provision"} {
		p.open(view)
		p.until(view+" is complete and fits", `document.querySelector('#main .loading') === null && document.documentElement.scrollWidth <= innerWidth
			&& [...document.querySelectorAll('.scroll')].every((e) => e.scrollWidth <= e.clientWidth)`)
		if view != "/console/actions" {
			p.shortcut("j")
			p.until("a row has the focus in "+view, `document.activeElement.closest('tbody tr, .node') !== null`)
		}
	}
}

func TestConsole_FilterLanguage_FiltersViewsAndBatches(t *testing.T) {
	s := thorough(t)
	s.script.set("Register", fail("the system answered 503"))
	s.start()
	azure, aws, trial := provision("azure"), provision("aws"), provision("trial")
	s.request(azure, aws, trial)
	s.await(azure, "", "failed")
	s.await(aws, "", "failed")
	s.await(trial, "", "succeeded")

	p := openTab(t, s)
	p.forgive("400 (Bad Request)")
	p.open("/console/operations")
	p.shows("main", "3 operations")
	p.click("button", "?")
	p.shows("dialog", "Conditions", "error.message", "OR binds tighter than AND")
	p.click("dialog button", "Close")
	p.enter("#condition", "stat = failed"+kb.Enter)
	p.shows(".list", `filter: at character 1: unknown field "stat": allowed are attempts,`)
	p.choose(`#condition`, "")
	p.enter("#condition", `error.message:503 AND NOT plan:(aws OR gcp)`+kb.Enter)
	p.until("only one is listed", fmt.Sprintf(`document.querySelectorAll('tbody tr').length === 1 && document.querySelector('tbody th a').title === '%s'`, azure.ID))
	p.until("the address has the condition", `new URL(location).searchParams.get('filter') === 'error.message:503 AND NOT plan:(aws OR gcp)'`)

	p.click("button", "Save view…")
	p.enter(`dialog input`, "Broken")
	p.click("dialog button", "Save")
	p.click(".views a", "All")
	p.until("the condition is empty", `document.querySelectorAll('tbody tr').length === 3 && document.querySelector('#condition').value === ''`)
	p.click(".views a", "Broken")
	p.until("the view has its condition", `document.querySelectorAll('tbody tr').length === 1 && document.querySelector('#condition').value.startsWith('error.message:503')`)
	p.click("button", "Act on all 1 that match…")
	p.shows("dialog", "filter=error.message:503 AND NOT plan:(aws OR gcp)", "1 operation")
}

func TestConsole_AddressOfBatch_KeepsEveryFilter(t *testing.T) {
	s := thorough(t)
	s.start()
	east, west := provision("trial"), provision("trial")
	west.Runtime.Region = "westus"
	s.request(east, west)
	s.await(east, "", "succeeded")
	s.await(west, "", "succeeded")

	p := openTab(t, s)
	p.open("/console/operations?region=westus&state=succeeded&state=failed")
	p.shows("#main", "Region westus")
	p.until("only the operation in the region is listed", fmt.Sprintf(`document.querySelectorAll('tbody tr').length === 1 && document.querySelector('tbody th a').title === '%s'`, west.ID))
	p.click("button", "Act on all 1 that match…")
	p.shows("dialog", "region=westus, state=succeeded,failed")
	p.shows("dialog .preview", "1 operation match")
	p.click("dialog button", "Close")
	p.open("/console/operations?regoin=westus")
	p.shows("#main", "Unknown filter: regoin")
	p.until("no batch can be ordered", `[...document.querySelectorAll('button')].some((b) => b.innerText === 'Act on all that match…' && b.disabled)`)
}

func TestConsole_FailingNow_ShowsOperationThatBeginsToFail(t *testing.T) {
	s := thorough(t)
	older := s.failing()
	s.script.set("Register", func(op worker.Operation) (worker.Operation, time.Duration, error) {
		if op.Plan.Name == "azure" {
			return retry("beta is closed")(op)
		}
		return op, 100 * time.Millisecond, nil
	})
	newer := provision("aws")
	s.request(newer)
	s.awaitWaiting(newer, "", "polling")

	p := openTab(t, s)
	p.open("/console/operations")
	p.shows(".live", "Live")
	p.click(".views a", "Failing now")
	p.until("one operation fails", fmt.Sprintf(`document.querySelectorAll('tbody tr').length === 1 && document.querySelector('tbody th a').title === '%s'`, older.ID))
	s.script.set("Register", retry("beta is closed"))
	s.awaitWaiting(newer, "", "failing")
	p.until("another operation fails", fmt.Sprintf(`document.querySelectorAll('tbody tr').length === 2 && document.querySelector('tbody th a').title === '%s'`, newer.ID))
}

func TestConsole_FailedInDay_ShowsOperationOrderedBefore(t *testing.T) {
	s := thorough(t)
	s.script.set("Register", fail("the system answered 503"))
	s.start()
	op := provision("azure")
	s.request(op)
	s.await(op, "", "failed")
	db, err := postgres.Open(t.Context(), postgres.Config{URL: s.Orchestrator.Database.URL, MaxOpen: 1, ApplicationName: "test"})
	require.NoError(t, err)
	defer db.Close()
	_, err = db.ExecContext(t.Context(), `UPDATE orchestrator.operations SET created_at = created_at - interval '25 hours'`)
	require.NoError(t, err)

	p := openTab(t, s)
	p.open("/console/operations")
	p.click(".views a", "Failed in 24 h")
	p.until("the operation is listed", fmt.Sprintf(`location.search.includes('24h') && document.querySelector('.list[aria-busy="false"] tbody th a')?.title === '%s'`, op.ID))
}
