package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/google/uuid"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

func TestConsole_StuckOperation_IsFollowedToEnd(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.orchestrator()
	s.worker("alpha")
	op := provision("azure")
	s.request(op)
	s.awaitWaiting(op, "", "no_worker")

	p := openTab(t, s)
	p.open("/console/")
	p.shows("main", "No live worker beta", "1 operation", "Missing beta no replica serves Register")
	p.click(".group a", "1 operation")
	p.until("the filter is in the address", `new URL(location).searchParams.get('waiting') === 'no_worker' && new URL(location).searchParams.get('worker') === 'beta'`)
	p.shows("tbody tr", "Register", "no live worker beta")
	p.do(chromedp.Click(chromedp.CSS("tbody th a")))
	p.shows(".callout", "Waiting: no live worker beta")
	p.shows("tr.here", "Register", "beta")
	p.click(".state-line a", "Register")
	p.shows(".node.marked", "Register beta", "no live worker", "1 operation here", "1 no worker", `if plan.name != "trial"`)
	p.do(chromedp.NavigateBack())
	p.shows(".callout", "Waiting: no live worker beta")
	p.until("the address can be shared", fmt.Sprintf(`location.pathname === '/console/operations/%s'`, op.ID))

	eval[any](p, `window.samePage = true`)
	s.worker("beta")
	p.shows(".state-line", "succeeded")
	p.until("every step is there", `[...document.querySelectorAll('.step-row')].every((r) => r.innerText.includes('succeeded'))`)
	p.shows("section", "operation succeeded")
	if !eval[bool](p, `window.samePage === true`) {
		t.Error("the page was loaded again, instead of following the operation")
	}
	p.click("nav a", "Workers")
	p.shows("tbody tr", "beta alive 1 × 1.4.0")
}

func TestConsole_RetryFromEarlierStage_ShowsTheSteps(t *testing.T) {
	s := thorough(t)
	s.script.set("Finish", fail("the quota is spent"))
	s.start()
	op := provision("azure")
	s.request(op)
	s.await(op, "", "failed")
	s.script.set("Finish", nil)

	p := openTab(t, s)
	p.open("/console/operations/" + op.ID)
	p.click("button", "Retry…")
	p.shows("dialog", "Completed stages are not repeated", "1 step runs again")
	p.choose("dialog select", "create")
	p.shows("dialog", "The stages from create on are repeated", "3 steps run again")
	p.click("dialog summary", "3 steps run again")
	p.shows("dialog", "Prepare runs again", "Register runs again", "Finish runs again")
	p.click("dialog button", "Retry")
	p.shows(".notice", "The operation runs again.")
	s.await(op, "", "succeeded")
}

func TestConsole_Operator_RetriesSkipsCancels(t *testing.T) {
	s := thorough(t)
	s.script.set("Prepare", fail("the quota is spent"))
	s.script.set("Finish", retry("not yet"))
	s.start()
	op := provision("azure")
	s.request(op)
	s.await(op, "", "failed")

	p := openTab(t, s)
	p.open("/console/operations/" + op.ID)
	p.shows(".callout", "Failed at Prepare", "the quota is spent")
	p.click("button", "Retry…")
	p.shows("dialog", "Retry this operation?", "Completed stages are not repeated", "runs again")
	p.click("dialog button", "Close")
	p.until("the dialog is closed", `document.querySelector('dialog') === null`)
	s.script.set("Prepare", nil)
	s.script.set("Register", retry("beta is closed"))
	p.click("button", "Retry…")
	p.shows("dialog", "1 step runs again") // a preview after the retry would be rejected
	p.click("dialog button", "Retry")
	p.shows(".notice", "The operation runs again.")
	p.shows(".callout", "Waiting: failing for", "beta is closed")

	p.click("button", "Skip step…")
	p.shows("dialog", "Step Register is recorded as not completed")
	if !eval[bool](p, `[...document.querySelectorAll('dialog button')].find((b) => b.innerText === 'Skip the step').disabled`) {
		t.Error("the step can be skipped without its name typed in")
	}
	p.enter(`dialog input`, "Register")
	p.click("dialog button", "Skip the step")
	p.shows(".callout", "Not completed: Register")
	p.shows(".callout", "Waiting: failing for", "not yet")
	p.shows("tr.here", "Finish")

	p.click("button", "Cancel…")
	p.shows("dialog", "It ends immediately", "cannot be resumed")
	p.enter(`dialog input`, "Finish")
	p.click("dialog button", "Cancel the operation")
	p.shows(".state-line", "cancelled")
	s.await(op, "", "cancelled")
	p.until("what cannot be done is not offered", `document.querySelectorAll('.actions button').length === 0`)
	p.click("nav a", "Actions")
	p.shows("tbody tr", "retry", "skip Register", "cancel")
}

func TestConsole_RejectedAction_IsShown(t *testing.T) {
	s := thorough(t)
	op := s.failing()
	p := openTab(t, s)
	p.forgive("409 (Conflict)")
	p.open("/console/operations/" + op.ID)
	p.click("button", "Skip step…")
	p.enter(`dialog input`, "Register")
	// Meanwhile another operator has done it.
	s.act(op, "cancel")
	p.click("dialog button", "Skip the step")
	p.shows("dialog .refusal", "a step can be skipped only while it is in progress")
	p.press(kb.Escape)
	p.until("the dialog is closed", `document.querySelector('dialog') === null`)
	p.shows(".state-line", "cancelled")
}

func TestConsole_Viewer_CannotAct(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	viewer, operator := s.protect()
	s.script.set("Register", retry("beta is closed"))
	s.start()
	op := provision("azure")
	s.request(op)
	s.awaitWaiting(op, viewer, "failing")

	p := openTab(t, s)
	p.forgive("403 (Forbidden)")
	p.forgive("401 (Unauthorized)")
	p.open("/console/operations/" + op.ID)
	p.shows("h1", "Log in")
	p.logIn("wrong")
	p.until("the refusal is shown", `document.querySelector('.refusal').innerText !== ''`)
	eval[any](p, `document.querySelector('input[name="token"]').select()`)
	p.logIn(viewer)
	p.shows(".callout", "beta is closed")
	p.shows(".who", "victor viewer")
	p.shows(".actions", "You are a viewer")
	if n := eval[int](p, `[...document.querySelectorAll('.actions button')].filter((b) => !b.disabled).length`); n != 0 {
		t.Errorf("%d buttons can be pressed", n)
	}
	for _, action := range []string{"cancel", "retry", "skip"} {
		js := fmt.Sprintf(`fetch('/operations/%s/%s', {method: 'POST', headers: {'Content-Type': 'application/json'}, body: '{"step":"Register"}'}).then((r) => r.status)`, op.ID, action)
		ctx := p.ctx
		code, err := chromedp.Run(ctx, chromedp.Evaluate[int](js, chromedp.EvalAwaitPromise))
		if err != nil || code != http.StatusForbidden {
			t.Errorf("%s: %d, %v", action, code, err)
		}
	}
	if got := s.state(op, viewer); got.State != "in progress" || len(got.NotCompleted) > 0 {
		t.Errorf("the operation has changed: %+v", got)
	}
	if eval[bool](p, `document.documentElement.outerHTML.includes('`+viewer+`') || document.cookie !== '' || JSON.stringify(localStorage).includes('`+viewer+`')`) {
		t.Error("scripts can read the token or the session")
	}

	p.click("button", "Log out")
	p.shows("h1", "Log in")
	p.logIn(operator)
	p.shows(".who", "olga operator")
	p.click("button", "Cancel…")
	p.enter(`dialog input`, "Register")
	p.click("dialog button", "Cancel the operation")
	p.shows(".state-line", "cancelled")
	p.shows("section", "olga cancel: done")
}

func TestConsole_ForeignTexts_AreNotExecuted(t *testing.T) {
	const evil = `"'><img src=x onerror="window.ran=1"><script>window.ran=1</script><svg onload=window.ran=1>`
	s := thorough(t)
	s.script.set("Register", retry(evil))
	s.start()
	op := provision("azure")
	op.InstanceID = `i-` + evil
	op.Plan.Name = evil
	op.Runtime.Name, op.Runtime.ShootName, op.Runtime.Region = evil, evil, `javascript:window.ran=1`
	op.Context.GlobalAccountID, op.Context.SubaccountID = evil, evil
	s.request(op)
	s.awaitWaiting(op, "", "failing")
	if code := s.ask(http.MethodPost, "/operations/"+op.ID+"/skip", "", `{"by": "`+strings.ReplaceAll(evil, `"`, `\"`)+`", "step": "No_Such_Step"}`, nil); code != http.StatusConflict {
		t.Fatalf("skip: %d", code)
	}

	p := openTab(t, s)
	for path, texts := range map[string][]string{
		"/console/":                                {"<img src=x onerror="},
		"/console/operations":                      {"<img src=x onerror="},
		"/console/operations?q=" + op.ID[:8]:       {"<script>window.ran=1</script>"},
		"/console/operations/" + op.ID:             {"i-\"'><img src=x", "<svg onload=window.ran=1>", "javascript:window.ran=1"},
		"/console/processes/%3Cimg%20src=x%3E":     {"No process for <img src=x>"},
		"/console/operations?instance=%3Csvg%20x=": {"Instance <svg x="},
		"/console/actions":                         {op.ID[:8]},
	} {
		p.open(path)
		p.shows("main", texts...)
		if n := eval[int](p, `document.querySelectorAll('main img, main script, [onerror], [onload], a[href^="javascript:"]').length`); n != 0 {
			t.Errorf("%s: %d elements came from texts", path, n)
		}
		if eval[bool](p, `window.ran !== undefined`) {
			t.Errorf("%s: a text has run", path)
		}
	}
	p.open("/console/operations/" + op.ID)
	p.click("button", "Cancel…")
	p.shows("dialog", "<img src=x onerror=")
	if eval[bool](p, `window.ran !== undefined || document.querySelector('dialog img') !== null`) {
		t.Error("a text has run in a dialog")
	}
}

func TestConsole_Keyboard_ReachesEverything(t *testing.T) {
	s := thorough(t)
	s.script.set("Register", retry("beta is closed"))
	s.start()
	op := provision("azure")
	s.request(op, provision("trial"))
	s.awaitWaiting(op, "", "failing")

	p := openTab(t, s)
	p.open("/console/")
	p.press(kb.Tab)
	if got := p.focused(); got != "Skip to content" {
		t.Errorf("the first Tab leads to %q", got)
	}
	p.press(kb.Enter)
	p.until("the content has the focus", `document.activeElement.id === 'main'`)
	p.shortcut("?")
	p.shows("dialog", "Keyboard", "find a runtime or an operation", "filter the list")
	p.press(kb.Escape)
	p.until("the help is closed and the focus is back", `document.querySelector('dialog') === null && document.activeElement.id === 'main'`)
	p.shortcut("gw")
	p.shows("h1", "Workers")
	p.until("the new view has the focus", `document.activeElement.id === 'main'`)
	p.shortcut("/")
	p.until("the search of everything has the focus", `document.activeElement.name === 'find'`)
	eval[any](p, `document.activeElement.blur()`)
	p.shortcut("f")
	p.shows("h1", "Operations")
	p.until("the search has the focus", `document.activeElement.name === 'q'`)
	p.press(op.ID[len(op.ID)-3:]) // no id begins like that
	p.shows("main", "No operations match these filters")
	p.press(strings.Repeat(kb.Backspace, 3))
	p.shows("main", "2 operations")
	p.press(op.ID)
	p.shows("main", "1 operation")
	p.until("typing does not lose the focus", `document.activeElement.type === 'search'`)
	eval[any](p, `document.activeElement.blur()`)
	p.shortcut("j")
	p.until("a row has the focus", `document.activeElement.matches('[data-row]')`)
	p.press(kb.Enter)
	p.shows(".callout", "beta is closed")
	for range 20 {
		if p.focused() == "Skip step…" {
			break
		}
		p.press(kb.Tab)
	}
	if got := p.focused(); got != "Skip step…" {
		t.Fatalf("Tab does not lead to the button, but to %q", got)
	}
	if !eval[bool](p, `getComputedStyle(document.activeElement).outlineStyle !== 'none'`) {
		t.Error("the focus cannot be seen")
	}
	p.press(" ")
	p.until("the dialog asks for the name", `document.activeElement.name === 'typed'`)
	p.press("Register" + kb.Enter)
	s.await(op, "", "succeeded")
	p.shows(".callout", "Not completed: Register")
}

func TestConsole_ServerRestarts_Reconnects(t *testing.T) {
	s := thorough(t)
	s.script.set("Register", retry("beta is closed"))
	stop := s.orchestrator()
	s.worker("alpha")
	s.worker("beta")
	op := provision("azure")
	s.request(op)
	s.awaitWaiting(op, "", "failing")

	p := openTab(t, s)
	p.forgive("net::ERR_")
	p.open("/console/operations/" + op.ID)
	p.shows(".live", "Live")
	eval[any](p, `window.samePage = true`)
	stop()
	p.shows("#banner", "The orchestrator has not responded")
	p.shows(".live", "Offline")
	p.shows(".callout", "beta is closed") // what was known stays

	s.orchestrator()
	p.until("the banner is gone", `document.querySelector('#banner').innerText === ''`)
	p.shows(".live", "Live")
	s.act(op, "cancel")
	p.shows(".state-line", "cancelled")
	if !eval[bool](p, `window.samePage === true`) {
		t.Error("the page was loaded again")
	}
}

// The list has no timer: that the stream ends is all it notices.
func TestConsole_ServerOrSessionLost_IsShown(t *testing.T) {
	s := thorough(t)
	viewer, _ := s.protect()
	stop := s.orchestrator()
	s.worker("alpha")
	s.worker("beta")

	p := openTab(t, s)
	p.forgive("net::ERR_")
	p.forgive("401 (Unauthorized)")
	p.open("/console/operations")
	p.shows("h1", "Log in")
	p.logIn(viewer)
	p.shows(".live", "Live")
	stop()
	p.shows("#banner", "The orchestrator has not responded")

	s.orchestrator() // with a new key for sessions, so all users are logged out
	p.shows("h1", "Log in")
}

func TestConsole_LongList_HasStablePages(t *testing.T) {
	s := thorough(t)
	s.script.set("Finish", retry("not yet"))
	s.start()
	var all []event.Operation
	for range 120 {
		all = append(all, provision("trial"))
	}
	s.request(all...)
	last := all[len(all)-1]
	s.awaitWaiting(last, "", "failing")

	p := openTab(t, s)
	p.open("/console/operations")
	p.shows("main", "120 operations")
	p.shows(".live", "Live")
	ids := `[...document.querySelectorAll('tbody th a')].map((a) => a.title).join()`
	first := eval[string](p, ids)
	if n := strings.Count(first, ",") + 1; n != 50 {
		t.Fatalf("%d rows", n)
	}
	seen := map[string]bool{}
	note := func() {
		for id := range strings.SplitSeq(eval[string](p, ids), ",") {
			if seen[id] {
				t.Errorf("operation %s is on two pages", id)
			}
			seen[id] = true
		}
	}
	note()
	for page := 2; page <= 3; page++ {
		before := eval[string](p, ids)
		p.click(".pager button", "Older")
		p.until("the next page is there", `document.querySelectorAll('tbody tr').length > 0 && `+ids+` !== '`+before+`'`)
		note()
	}
	if len(seen) != len(all) {
		t.Errorf("the pages show %d of %d operations", len(seen), len(all))
	}
	p.do(chromedp.NavigateBack(), chromedp.NavigateBack())
	p.until("the way back leads to the first page", ids+` === '`+first+`'`)

	// New rows are announced and do not move the visible ones.
	s.request(provision("trial"), provision("trial"))
	p.shows(".fresh", "Show 2 new operations")
	if got := eval[string](p, ids); got != first {
		t.Error("the rows have changed")
	}
	s.act(last, "cancel")
	p.shows("tbody tr", "cancelled") // what is shown follows
	p.click(".fresh button", "Show 2 new operations")
	p.shows("main", "122 operations")
}

func TestConsole_AddressWithFilters_IsShareable(t *testing.T) {
	s := thorough(t)
	s.script.set("Register", retry("beta is closed"))
	s.start()
	stuck, fine := provision("azure"), provision("trial")
	s.request(stuck, fine)
	s.await(fine, "", "succeeded")
	s.awaitWaiting(stuck, "", "failing")
	p := openTab(t, s)
	p.open("/console/operations")
	p.shows("main", "2 operations")
	p.do(chromedp.Click(chromedp.CSS(`input[value="succeeded"]`)))
	p.shows("main", "1 operation")
	p.until("the filter is in the address", `location.search === '?state=succeeded'`)
	p.do(chromedp.Click(chromedp.CSS(`input[value="in progress"]`)))
	p.until("a second state is added", `new URL(location).searchParams.get('state') === 'in progress,succeeded'`)
	p.shows("main", "2 operations")
	p.open("/console/operations?worker=beta&step=Register&waiting=failing&type=provision&plan=azure&since=1h")
	p.shows("main", "1 operation")
	p.shows("tbody tr", "beta is closed")
	p.until("the fields show the filters", `['worker','step','waiting','type','plan','since'].map((n) => document.querySelector('[name=' + n + ']').value).join() === 'beta,Register,failing,provision,azure,1h'`)
	p.click("button", "Clear all")
	p.shows("main", "2 operations")
	p.open("/console/no-such-view")
	p.shows("h1", "Not found")
	p.forgive("404 (Not Found)")
	p.open("/console/operations/" + uuid.NewString())
	p.shows("main", "There is no operation with the ID")
}

// The figures of the overview come from the same API; here they are drawn.
func TestConsole_Overview_DrawsEndedOperations(t *testing.T) {
	s := thorough(t)
	s.start()
	op := provision("trial")
	s.request(op)
	s.await(op, "", "succeeded")
	p := openTab(t, s)
	p.open("/console/")
	p.shows("main", "Nothing fails.", "All 2 workers are alive")
	testkit.Eventually(t, patience, "the chart has the operation", func() bool {
		eval[any](p, `document.querySelectorAll('details').forEach((d) => { d.open = true; })`)
		return eval[bool](p, `[...document.querySelectorAll('.figures tbody td')].some((c) => c.innerText === '1') && document.querySelector('.plot rect') !== null`)
	})
}

func TestConsole_Overview_ListsIncompleteOperations(t *testing.T) {
	s := thorough(t)
	s.script.set("Remove", fail("cannot be removed"))
	s.start()
	op := provision("trial")
	op.Type = event.Deprovision
	s.request(op)
	s.await(op, "", "succeeded")
	p := openTab(t, s)
	p.open("/console/")
	p.shows("main", "Nothing fails.", "Nothing has failed.", "1 operation succeeded without some steps")
	p.click("section[aria-labelledby=failed] a", "1 operation")
	p.until("the list has the incomplete operation", `document.querySelector('#main tbody th a')?.title === '`+op.ID+`' && document.querySelectorAll('#main tbody tr').length === 1`)
}
