package console

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
)

// checks.js finds what keeps people from using a page; `make e2e SUITE=console` runs axe-core beside it.
//
//go:embed testdata/checks.js
var checks string

// axeFile is the file of axe-core, or empty.
func axeFile(t *testing.T) string {
	t.Helper()
	path := os.Getenv("KEB_AXE")
	if path == "" {
		return ""
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err, "KEB_AXE")
	return string(text)
}

const runAxe = `axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']}).then((r) =>
  r.violations.flatMap((v) => v.nodes.map((n) => v.id + ': ' + n.target.join(' ') + ': ' + n.failureSummary.replace(/\s+/g, ' '))))`

// look is a theme and a width in which a view is checked.
type look struct {
	theme string
	width int64
}

// looks returns the looks in which each view is checked; with KEB_PICTURES, the folder for a picture of each, those that people review.
func looks() []look {
	if os.Getenv("KEB_PICTURES") != "" {
		return []look{{"light", 1440}, {"dark", 1440}, {"light", 390}, {"dark", 390}}
	}
	return []look{{"light", 1280}, {"dark", 360}}
}

// picture draws the page into the folder KEB_PICTURES, if it is set.
func (p *tab) picture(view string, buttons []string, l look) {
	p.t.Helper()
	folder := os.Getenv("KEB_PICTURES")
	if folder == "" {
		return
	}
	name := regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`).ReplaceAllString(strings.Join(append([]string{strings.TrimPrefix(view, "/console/")}, buttons...), "-"), "")
	name = strings.Trim(regexp.MustCompile(`[^A-Za-z0-9]+`).ReplaceAllString(name, "-"), "-")
	if p.drawn == nil {
		p.drawn = map[string]int{}
	}
	name = fmt.Sprintf("%s-%s-%d", cmp.Or(name, "overview"), l.theme, l.width)
	p.drawn[name]++
	if n := p.drawn[name]; n > 1 {
		name += fmt.Sprintf("-%d", n)
	}
	image, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
	require.NoError(p.t, err)
	require.NoError(p.t, os.WriteFile(filepath.Join(folder, name+".png"), image, 0o600))
}

// accessible opens a view in each look, presses the buttons that open its dialog, and checks what it shows.
func (p *tab) accessible(axe, view string, buttons ...string) {
	p.t.Helper()
	for _, look := range looks() {
		p.do(chromedp.EmulateViewport(look.width, 900))
		_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: look.theme}, {Name: "prefers-reduced-motion", Value: "reduce"}},
		})
		require.NoError(p.t, err)
		p.open(view)
		p.until("the view is complete", `document.querySelector('#main .loading') === null`)
		if len(buttons) > 0 {
			p.do(chromedp.EmulateViewport(1280, 900)) // a phone folds some buttons away
			for _, button := range buttons {
				p.click("button", button)
			}
			p.until("the dialog is complete", `document.querySelector('dialog[open]') !== null && !/Counting the|Looking up/.test(document.querySelector('dialog').innerText)`)
			p.do(chromedp.EmulateViewport(look.width, 900))
		}
		p.picture(view, buttons, look)
		found := eval[[]string](p, checks)
		if axe != "" {
			eval[any](p, axe+"; undefined")
			violations, err := chromedp.Run(p.ctx, chromedp.Evaluate[[]string](runAxe, chromedp.EvalAwaitPromise))
			require.NoError(p.t, err)
			found = append(found, violations...)
		}
		if len(found) > 0 {
			p.t.Errorf("%s %q, %s, %d pixels wide:\n  %s", view, buttons, look.theme, look.width, strings.Join(found, "\n  "))
		}
	}
}

func TestAccessibility_EachView_Passes(t *testing.T) {
	s := thorough(t)
	s.runtimes(9)
	s.script.set("Register", func(op worker.Operation) (worker.Operation, time.Duration, error) {
		if op.Plan.Name == "gcp" {
			return op, 0, errors.New("gcp is closed")
		}
		return retry("beta is closed")(op)
	})
	s.script.set("Remove", fail("cannot be removed"))
	receiver := s.receiver(func() int { return http.StatusServiceUnavailable })
	s.start()
	waiting, done := provision("azure"), provision("trial")
	s.broker(detail(done))
	s.request(waiting, done)
	s.await(done, "", "succeeded")
	s.awaitWaiting(waiting, "", "failing")

	_, err := s.Bus.JetStream().PublishMsg(t.Context(), &nats.Msg{
		Subject: event.DeadSubject(event.StreamResults), Data: []byte(`{"step": "Register"}`),
		Header: nats.Header{bus.HeaderDeadReason: {"not a readable CloudEvent"}, bus.HeaderDeadSubject: {event.ResultSubject("beta", "Register")}},
	})
	require.NoError(t, err)
	cancelled, incomplete, failed, failedToo := provision("azure"), provision("azure"), provision("gcp"), provision("gcp")
	incomplete.Type = event.Deprovision
	s.request(cancelled, incomplete, failed, failedToo)
	s.await(incomplete, "", "succeeded")
	s.await(failed, "", "failed")
	s.await(failedToo, "", "failed")
	s.awaitWaiting(cancelled, "", "failing")
	s.ask(http.MethodPost, "/operations/"+cancelled.ID+"/cancel", "", "", nil)
	s.await(cancelled, "", "cancelled")

	// A batch that is paused after its first operation, a hold, and an upgrade whose canary waits for approval.
	c, err := operator.New("http://"+s.addr, "")
	require.NoError(t, err)
	slow := 0.01
	batch, _, err := c.OrderBatch(t.Context(), operator.BatchRequest{Action: operator.BatchRetry, Filter: "plan=gcp", Reason: "gcp is open", Rate: &slow})
	require.NoError(t, err)
	_, _, err = c.ChangeBatch(t.Context(), batch.ID, "pause")
	require.NoError(t, err)
	_, _, err = c.CreateHold(t.Context(), operator.HoldRequest{Scope: operator.HoldScope{Plan: "aws"}, Reason: "aws is being migrated"})
	require.NoError(t, err)
	_, _, err = c.CreateWebhook(t.Context(), operator.WebhookRequest{Name: "on-call", URL: receiver})
	require.NoError(t, err)
	upgrade, _, err := c.Upgrade(t.Context(), "kyma", &operator.Upgrade{
		Targets:  operator.Targets{Include: []operator.Target{{Target: "all"}}},
		Strategy: operator.Strategy{Parallel: operator.Parallel{Workers: 4}, Canary: &operator.Canary{Size: 3}, MaxFailures: "1"},
		Kyma:     &operator.KymaVersion{Version: "2.21.0"},
	})
	require.NoError(t, err)
	paused := func(reason operator.PauseReason) {
		t.Helper()
		testkit.Eventually(t, patience, "the upgrade is paused: "+string(reason), func() bool {
			o, _, err := c.Orchestration(t.Context(), upgrade)
			require.NoError(t, err)
			return o.Pause != nil && o.Pause.Reason == reason
		})
	}
	paused(operator.PausedForApproval)

	axe := axeFile(t)
	p := openTab(t, s)
	p.forgive("404 (Not Found)") // the page of an unknown operation
	orchestration := "/console/orchestrations/" + upgrade
	for _, view := range []string{
		"/console/", "/console/operations", "/console/operations?state=failed", "/console/operations?plan=none", "/console/operations?filter=plan%3Dgcp", "/console/operations/" + waiting.ID,
		"/console/operations/" + done.ID, "/console/operations/" + failed.ID, "/console/operations/" + cancelled.ID, "/console/operations/" + incomplete.ID,
		"/console/operations/" + uuid.NewString(), "/console/workers", "/console/processes/provision", "/console/orchestrations", orchestration,
		"/console/batches", "/console/batches/" + batch.ID, "/console/holds", "/console/webhooks", "/console/actions", "/console/dead-letters", "/console/dead-letters/1",
		"/console/find?q=demo", "/console/find?q=ga-1", "/console/find?q=nothing", "/console/instances/" + done.InstanceID,
		"/console/instances/" + waiting.InstanceID, "/console/unknown",
	} {
		p.accessible(axe, view)
	}
	for _, dialog := range [][]string{
		{"/console/", "Keys"},
		{"/console/operations?state=failed", "Save view…"},
		{"/console/operations?filter=plan:gcp", "?"},
		{"/console/operations?plan=gcp", "Act on all 2 that match…"},
		{"/console/operations/" + waiting.ID, "Skip step…"},
		{"/console/operations/" + waiting.ID, "Cancel…"},
		{"/console/operations/" + failed.ID, "Retry…"},
		{"/console/operations/" + waiting.ID, "Input and result"},
		{"/console/instances/" + waiting.InstanceID, "Hold this instance…"},
		{"/console/orchestrations", "Order an upgrade…"},
		{orchestration, "Approve…"},
		{orchestration, "Cancel…"},
		{"/console/batches/" + batch.ID, "Cancel…"},
		{"/console/holds", "Create a hold…"},
		{"/console/holds", "Release…"},
		{"/console/webhooks", "Create a webhook…"},
		{"/console/webhooks", "Disable…"},
		{"/console/webhooks", "Delete…"},
		{"/console/dead-letters/1", "Redrive…"},
		{"/console/dead-letters/1", "Drop…"},
	} {
		p.accessible(axe, dialog[0], dialog[1:]...)
	}
	s.script.set("Prepare", fail("the reconciler answered 503"))
	_, _, err = c.ChangeOrchestration(t.Context(), upgrade, "approve")
	require.NoError(t, err)
	paused(operator.PausedByFailures)
	p.accessible(axe, orchestration)
	p.accessible(axe, orchestration, "Resume…")
	p.accessible(axe, orchestration, "Retry failed…")
}

func TestAccessibility_Login_Passes(t *testing.T) {
	s := thorough(t)
	viewer, _ := s.protect()
	s.issuer()
	s.start()
	axe := axeFile(t)
	p := openTab(t, s)
	p.forgive("401 (Unauthorized)")
	p.accessible(axe, "/console/")
	p.click("button", "Log in with the token")
	p.shows(".refusal", "Paste a token first.")
	p.logIn(viewer)
	p.shows("h1", "Overview")
	for _, view := range []string{"/console/holds", "/console/webhooks", "/console/orchestrations", "/console/operations"} { // what a viewer may not do is marked
		p.accessible(axe, view)
	}
}

func TestAccessibility_PlantedErrors_AreFound(t *testing.T) {
	s := thorough(t)
	s.start()
	p := openTab(t, s)
	p.open("/console/actions")
	p.until("the view is complete", `document.querySelector('#main .loading') === null`)
	if found := eval[[]string](p, checks); len(found) > 0 {
		t.Fatalf("before anything is wrong: %v", found)
	}
	eval[any](p, `(() => {
	  const add = (tag, f) => { const e = document.createElement(tag); f(e); document.querySelector('#main').append(e); };
	  add('input', () => {}); add('button', () => {}); add('h5', (e) => { e.textContent = 'jump'; }); add('div', (e) => { e.id = 'main'; });
	  add('p', (e) => { e.textContent = 'pale'; e.style.color = '#bbb'; e.style.background = '#fff'; });
	  add('div', (e) => { e.style.width = '9000px'; e.textContent = 'wide'; }); add('span', (e) => { e.tabIndex = 3; e.textContent = 'first'; });
	  add('table', (e) => { const r = e.insertRow(); r.insertCell().textContent = 'no head'; });
	})()`)
	found := strings.Join(eval[[]string](p, checks), "\n")
	for _, want := range []string{"no label", "no name", "heading", "duplicated", "contrast", "wider than the screen", "tabindex", "table"} {
		if !strings.Contains(found, want) {
			t.Errorf("nothing says %q:\n%s", want, found)
		}
	}
}
