package console

import (
	"net/http"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
)

func TestConsole_Instance_IsHeldReleasedAndRetried(t *testing.T) {
	s := thorough(t)
	viewer, operator := s.protect()
	s.script.set("Finish", fail("the quota is spent"))
	s.start()
	op := provision("azure")
	s.broker(detail(op))
	s.request(op)
	s.await(op, operator, "failed")

	p := openTab(t, s)
	p.forgive("401 (Unauthorized)")
	p.open("/console/instances/" + op.InstanceID)
	p.logIn(operator)
	p.shows("h1", "demo "+op.InstanceID)

	p.click("button", "Hold this instance…")
	p.until("the scope is the instance", `document.querySelector('dialog input[name="instance"]').value === '`+op.InstanceID+`'`)
	p.shows("dialog .preview", "0 unfinished operations in the scope now.")
	p.enter(`dialog input[name="reason"]`, "the customer asked for a pause")
	p.click("dialog button", "Create the hold")
	p.shows(".notice", "The hold applies within a second.")
	p.shows(".callout", "Hold: instance "+op.InstanceID+" the customer asked for a pause olga")

	s.script.set("Finish", nil)
	p.click("button", "Retry the provisioning…")
	p.shows("dialog", "Retry this operation?", "Completed stages are not repeated")
	p.click("dialog button", "Retry")
	p.shows(".notice", "The operation runs again.")
	s.awaitWaiting(op, operator, "held")
	p.shows("#main", "Cancel the provisioning…")
	p.until("it cannot be retried now", `![...document.querySelectorAll('button')].some((b) => b.innerText.startsWith('Retry'))`)
	s.accessible(p, "/console/instances/"+op.InstanceID)

	// A viewer sees the hold and cannot act on it.
	p.changeUser(viewer)
	p.shows(".callout", "the customer asked for a pause")
	p.until("a viewer is offered no action", `document.querySelectorAll('#main .actions, #main .callout button').length === 0`)
	p.changeUser(operator)

	p.click(".callout button", "Release…")
	p.shows("dialog", "Release this hold?", "1 operation will continue")
	p.click("dialog button", "Release")
	s.await(op, operator, "succeeded")
	p.until("the hold is gone, and an ended operation allows no action", `document.querySelectorAll('#main .callout').length === 0
		&& [...document.querySelectorAll('#main .actions button')].map((b) => b.innerText).join() === 'Hold this instance…'`)
}

func TestConsole_InstanceActions_AreFilteredAndSorted(t *testing.T) {
	s := thorough(t)
	s.script.set("Finish", fail("the quota is spent"))
	s.start()
	first, second := provision("azure"), provision("aws")
	s.request(first, second)
	for _, op := range []event.Operation{first, second} {
		s.await(op, "", "failed")
	}
	// Both are rejected: a failed operation has no step to skip and cannot be cancelled.
	for _, op := range []event.Operation{first, second} {
		for _, action := range []string{"skip", "cancel"} {
			if code := s.ask(http.MethodPost, "/operations/"+op.ID+"/"+action, "", `{"step":"Finish"}`, nil); code != http.StatusConflict {
				t.Fatalf("%s: %d", action, code)
			}
		}
	}
	s.script.set("Finish", nil)
	s.act(second, "retry")

	p := openTab(t, s)
	p.open("/console/actions")
	p.shows(".head", "5 actions")
	p.until("every time has its date", `[...document.querySelectorAll('tbody time')].some((e) => /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d/.test(e.innerText))`)
	p.enter(`input[name="target"]`, second.ID+kb.Enter)
	p.shows(".head", "3 actions")
	p.choose(`select[name="outcome"]`, "refused")
	p.shows(".head", "2 actions")
	p.until("the filters are in the address", `new URL(location).searchParams.get('target') === '`+second.ID+`' && new URL(location).searchParams.get('outcome') === 'refused'`)
	p.open(eval[string](p, `location.pathname + location.search`))
	p.shows(".head", "2 actions")
	p.until("the filters survive the reload", `document.querySelector('input[name="target"]').value === '`+second.ID+`' && document.querySelector('select[name="outcome"]').value === 'refused'`)
	s.accessible(p, "/console/actions")
	p.choose(`select[name="action"]`, "retry")
	p.shows(".empty", "No actions match these filters.")
	p.click("button", "Clear all")
	p.shows(".head", "5 actions")

	p.open("/console/workers")
	names := `[...document.querySelectorAll('tbody th')].map((e) => e.innerText).join()`
	p.until("the workers are in the order of their states", names+` === 'alpha,beta' && document.querySelector('th[aria-sort="ascending"]').innerText.startsWith('State')`)
	p.click(".sort", "Worker")
	p.click(".sort", "Worker ▲")
	p.until("the names are descending", names+` === 'beta,alpha' && location.search === '?sort=-name' && document.querySelector('th[aria-sort="descending"]').innerText.startsWith('Worker')`)
	p.open("/console/workers?sort=-name")
	p.until("the order survives the reload", names+` === 'beta,alpha'`)
}

func TestConsole_InstanceOperation_PanesAreResized(t *testing.T) {
	s := thorough(t)
	op := s.failing()

	p := openTab(t, s)
	view := "/console/operations/" + op.ID
	p.open(view)
	p.shows(".step-details", "Register", "failing", "in create", "Worker beta", "beta is closed", "Tries, newest first")
	p.click(".step-name", "Prepare")
	p.shows(".step-details", "Prepare", "succeeded", "Worker alpha")
	p.until("the row is marked", `document.querySelector('tr.selected').innerText.startsWith('Prepare')`)

	separator := `document.querySelector('[role="separator"]')`
	value := func() int { return eval[int](p, `Number(`+separator+`.getAttribute('aria-valuenow'))`) }
	beside := `document.querySelector('.step-details').getBoundingClientRect().left > ` + separator + `.getBoundingClientRect().left`
	p.until("the panes are side by side", beside+` && `+separator+`.getAttribute('aria-orientation') === 'vertical'`)
	if at := value(); at != 64 {
		t.Errorf("the first pane has %d %% at first", at)
	}
	eval[any](p, separator+`.focus()`)
	p.press(kb.ArrowLeft + kb.ArrowLeft)
	p.until("the arrow keys move it", separator+`.getAttribute('aria-valuenow') === '60'`)
	p.press(kb.Home)
	p.until("it is at its minimum", separator+`.getAttribute('aria-valuenow') === `+separator+`.getAttribute('aria-valuemin')`)
	p.press(kb.End)
	p.until("it is at its maximum", separator+`.getAttribute('aria-valuenow') === `+separator+`.getAttribute('aria-valuemax')`)
	s.accessible(p, view)

	// It is dragged to the middle.
	eval[any](p, separator+`.scrollIntoView({block: 'center'})`)
	place := func(js string) float64 { return eval[float64](p, js) }
	x, y := place(`(({left, width}) => left + width / 2)(`+separator+`.getBoundingClientRect())`), place(`innerHeight / 2`)
	middle := place(`(({left, width}) => left + width / 2)(document.querySelector('.panes').getBoundingClientRect())`)
	for _, e := range []input.DispatchMouseEventParams{
		{Type: "mousePressed", X: x, Y: y, Button: "left", ClickCount: 1},
		{Type: "mouseMoved", X: (x + middle) / 2, Y: y, Button: "left"},
		{Type: "mouseMoved", X: middle, Y: y, Button: "left"},
		{Type: "mouseReleased", X: middle, Y: y, Button: "left", ClickCount: 1},
	} {
		_, err := chromedp.Call(p.ctx, input.DispatchMouseEvent, e)
		require.NoError(t, err)
	}
	p.until("the pointer moves it", separator+`.getAttribute('aria-valuenow') === '50' && document.querySelector('.separator.dragged') === null`)
	width := place(`document.querySelector('.pane').getBoundingClientRect().width`)
	p.open(view)
	p.until("the width survives the reload", separator+`?.getAttribute('aria-valuenow') === '50'`)
	if after := place(`document.querySelector('.pane').getBoundingClientRect().width`); after != width {
		t.Errorf("the pane is %v wide after the reload, was %v", after, width)
	}

	p.do(chromedp.EmulateViewport(1279, 900))
	p.until("the panes are stacked below 1280 pixels", `getComputedStyle(`+separator+`).display === 'none'
		&& document.querySelector('.step-details').getBoundingClientRect().top >= document.querySelector('.pane').getBoundingClientRect().bottom`)
}
