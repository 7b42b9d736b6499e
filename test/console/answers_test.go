package console

import (
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

// intercept gives the page the functions that hold back or replace an answer of the API:
//   - window.hold is a pattern. The next request that matches is answered only after window.release(), with the answer of before.
//   - window.refuse is a pattern. The requests that match are answered with window.refusal, the arguments of a Response.
//
// window.requests has the method and the URL of each request.
const intercept = `
window.requests = [];
const ask = window.fetch;
window.fetch = async (url, options = {}) => {
  const request = (options.method ?? 'GET') + ' ' + url;
  window.requests.push(request);
  const answer = window.refuse?.test(request) ? new Response(...window.refusal) : await ask(url, options);
  if (window.hold?.test(request)) {
    window.hold = null;
    await new Promise((release, abort) => {
      window.release = release;
      options.signal?.addEventListener('abort', () => abort(options.signal.reason));
    });
  }
  return answer;
};`

// onNewDocument evaluates a script in every page before its own scripts.
func (p *tab) onNewDocument(source string) {
	p.t.Helper()
	_, err := chromedp.Call(p.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: source})
	require.NoError(p.t, err)
}

func TestConsole_ReloadDuringRequest_ShowsNewestOperations(t *testing.T) {
	s := thorough(t)
	s.start()
	first := provision("trial")
	s.request(first)
	s.await(first, "", "succeeded")

	p := openTab(t, s)
	p.onNewDocument(intercept + `window.hold = /^GET .operations[?]/;`)
	p.open("/console/operations")
	p.until("the first answer is held back", `window.release`)
	second := provision("azure")
	s.request(second)
	s.await(second, "", "succeeded")
	p.shortcut("r")
	eval[any](p, `window.release(); undefined`)
	p.shows("#main", "2 operations")

	eval[any](p, `window.release = null; window.requests = []; window.hold = /^GET .operations[?]/; undefined`)
	p.choose(`select[name="type"]`, "provision")
	p.until("the answer for the type is held back", `window.release`)
	p.choose(`select[name="plan"]`, "trial")
	p.until("the plan is in the address", `new URL(location).searchParams.get('plan') === 'trial'`)
	eval[any](p, `window.release(); undefined`)
	p.shows("#main", "1 operation")
	if eval[bool](p, `window.requests.find((r) => r.includes('plan=trial')).includes('until=')`) {
		t.Error("a list of other filters ends at the newest operation of the list before")
	}
}

func TestConsole_ErrorAfterDialogIsClosed_IsShown(t *testing.T) {
	s := thorough(t)
	op := s.failing()
	p := openTab(t, s)
	p.onNewDocument(intercept)
	p.open("/console/operations/" + op.ID)
	cancel := func() {
		t.Helper()
		eval[any](p, `window.release = null; window.hold = /^POST .*cancel$/; undefined`)
		p.click("button", "Cancel…")
		p.enter("dialog input", "Register")
		p.click("dialog button", "Cancel the operation")
		p.until("the answer is held back", `window.release`)
		p.press(kb.Escape)
		p.until("the dialog is closed", `document.querySelector('dialog') === null`)
	}
	eval[any](p, `window.refuse = /^POST .*cancel$/; window.refusal = ['{"error": "not now"}', { status: 409 }]; undefined`)
	cancel()
	eval[any](p, `window.release(); undefined`)
	p.shows(".notice", "Cancel the operation: not now")

	// The end of an action does not close another dialog.
	eval[any](p, `window.refuse = null; undefined`)
	cancel()
	p.shortcut("?")
	p.shows("dialog", "Keyboard")
	eval[any](p, `window.release(); undefined`)
	p.shows(".notice", "Cancellation requested.")
	p.shows("dialog", "Keyboard")
}

func TestConsole_UnavailableWithReason_IsNotOffline(t *testing.T) {
	s := thorough(t)
	op := s.failing()
	p := openTab(t, s)
	// window.limit is the timeout of the next request.
	p.onNewDocument(intercept + `
		const timeout = AbortSignal.timeout;
		AbortSignal.timeout = (ms) => {
			const limit = window.limit ?? ms;
			window.limit = null;
			return timeout.call(AbortSignal, limit);
		};`)
	p.open("/console/operations/" + op.ID)
	p.shows(".live", "Live")
	p.click("button", "Cancel…")
	p.enter("dialog input", "Register")

	const reason = "the action cannot be recorded now and was not done; try again"
	eval[any](p, `window.refuse = /^POST /; window.refusal = ['{"error": "`+reason+`"}', { status: 503 }]; undefined`)
	p.click("dialog button", "Cancel the operation")
	p.shows("dialog .refusal", reason)

	eval[any](p, `window.refuse = null; window.requests = []; window.hold = /^POST /; window.limit = 300; undefined`)
	p.click("dialog button", "Cancel the operation")
	p.shows("dialog .refusal", "has not answered within", "may have been done")
	p.until("the API was asked whether it responds", `window.requests.includes('GET /me')`)
	if eval[bool](p, `document.querySelector('#banner').innerText !== '' || document.querySelector('.live').innerText.includes('Offline')`) {
		t.Error("one slow answer is shown as an orchestrator that does not respond")
	}
}
