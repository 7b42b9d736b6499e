package console

import (
	_ "embed"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
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

func TestAccessibility_EachView_Passes(t *testing.T) {
	t.Parallel()
	thorough(t)
	s := newSystem(t)
	s.script.set("Register", retry("beta is closed"))
	s.script.set("Remove", fail("cannot be removed"))
	s.start()
	waiting, done := provision("azure"), provision("trial")
	s.broker(detail(done))
	s.request(waiting, done)
	s.await(done, "", "succeeded")
	s.awaitWaiting(waiting, "", "failing")

	_, err := s.Bus.JetStream().PublishMsg(t.Context(), &nats.Msg{
		Subject: event.DeadSubject(event.StreamResults), Data: []byte(`{"step": "Register"}`), Header: nats.Header{bus.HeaderDeadReason: {"not a readable CloudEvent"}},
	})
	require.NoError(t, err)
	cancelled, incomplete := provision("azure"), provision("azure")
	incomplete.Type = event.Deprovision
	s.request(cancelled, incomplete)
	s.await(incomplete, "", "succeeded")
	s.awaitWaiting(cancelled, "", "failing")
	s.ask(http.MethodPost, "/operations/"+cancelled.ID+"/cancel", "", "", nil)
	s.await(cancelled, "", "cancelled")

	axe := axeFile(t)
	p := openTab(t, s)
	for _, view := range []string{
		"/console/", "/console/operations", "/console/operations?state=failed", "/console/operations/" + waiting.ID, "/console/operations/" + done.ID,
		"/console/workers", "/console/processes/provision", "/console/orchestrations", "/console/batches", "/console/holds", "/console/actions", "/console/dead-letters", "/console/dead-letters/1",
		"/console/operations/" + cancelled.ID, "/console/operations/" + incomplete.ID,
		"/console/find?q=demo", "/console/find?q=ga-1", "/console/instances/" + done.InstanceID, "/console/instances/" + waiting.InstanceID,
	} {
		for _, theme := range []string{"light", "dark"} {
			width := map[string]int64{"light": 1280, "dark": 360}[theme]
			p.do(chromedp.EmulateViewport(width, 900))
			_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}, {Name: "prefers-reduced-motion", Value: "reduce"}},
			})
			require.NoError(t, err)
			p.open(view)
			p.until("the view is complete", `document.querySelector('#main .loading') === null`)
			found := eval[[]string](p, checks)
			if axe != "" {
				eval[any](p, axe+"; undefined")
				violations, err := chromedp.Run(p.ctx, chromedp.Evaluate[[]string](runAxe, chromedp.EvalAwaitPromise))
				require.NoError(t, err)
				found = append(found, violations...)
			}
			if len(found) > 0 {
				t.Errorf("%s, %s, %d pixels wide:\n  %s", view, theme, width, strings.Join(found, "\n  "))
			}
		}
	}
}

func TestAccessibility_PlantedErrors_AreFound(t *testing.T) {
	t.Parallel()
	thorough(t)
	s := newSystem(t)
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
