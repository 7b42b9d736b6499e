package console

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/testkit"
)

// tab is a tab of a browser of its own. It remembers what must not happen: errors on the console, violations of the content
// security policy, and requests that leave the origin.
type tab struct {
	t    *testing.T
	ctx  context.Context
	base string

	mu       sync.Mutex
	problems []string
	// forgiven are parts of problems that a test provokes.
	forgiven []string
	// drawn counts the pictures by name.
	drawn map[string]int
}

func openTab(t *testing.T, s *system) *tab {
	t.Helper()
	path := browser(t)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.WindowSize(1280, 900), chromedp.WSURLReadTimeout(patience))
	ctx, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, closeTab := chromedp.NewContext(ctx)
	// The machine's own networks may change, for example with each container; the page then loads itself again.
	p := &tab{t: t, ctx: ctx, base: "http://" + s.addr, forgiven: []string{"net::ERR_NETWORK_CHANGED"}}
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Errorf("close the browser: %v", err)
		}
		closeTab()
		stop()
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, problem := range p.problems {
			t.Error(problem)
		}
	})
	// The browser lives as long as the context of the first action.
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate("about:blank")))
	_, err := chromedp.Call(ctx, network.Enable, network.EnableParams{})
	require.NoError(t, err)
	require.NoError(t, chromedp.Listen(ctx, p.see))
	return p
}

func (p *tab) see(ev any) {
	switch e := ev.(type) {
	case *runtime.EventConsoleAPICalled:
		if e.Type == "error" || e.Type == "warning" || e.Type == "assert" {
			p.blame(fmt.Sprintf("console.%s: %v", e.Type, e.Args))
		}
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			text += " " + e.ExceptionDetails.Exception.Description
		}
		p.blame("exception: " + text)
	case *cdplog.EventEntryAdded:
		if e.Entry.Level == "error" || e.Entry.Level == "warning" {
			p.blame(fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	case *network.EventRequestWillBeSent:
		if url := e.Request.URL; !strings.HasPrefix(url, p.base+"/") && !strings.HasPrefix(url, "about:") && !strings.HasPrefix(url, "data:,") {
			p.blame("a request leaves the origin: " + url)
		}
	}
}

func (p *tab) blame(problem string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.forgiven {
		if strings.Contains(problem, f) {
			return
		}
	}
	p.problems = append(p.problems, problem)
}

// forgive lets problems pass that a test provokes.
func (p *tab) forgive(parts ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgiven = append(p.forgiven, parts...)
}

func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.t.Fatalf("browser: %v\n%s", err, p.look())
	}
}

// open goes to a view and waits until it has its heading.
func (p *tab) open(path string) {
	p.t.Helper()
	p.do(chromedp.Navigate(p.base + path))
	p.until("the page has a heading", `document.querySelector('h1') !== null`)
}

func eval[T any](p *tab, js string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](js))
	require.NoErrorf(p.t, err, "evaluate %s", js)
	return v
}

// until waits until an expression is true.
func (p *tab) until(what, js string) {
	p.t.Helper()
	done := false
	defer func() {
		if !done {
			p.t.Logf("%s: the page shows:\n%s", what, p.look())
		}
	}()
	testkit.Eventually(p.t, patience, what, func() bool { return eval[bool](p, "Boolean("+js+")") })
	done = true
}

// look is the text of the page.
func (p *tab) look() string {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`location.href + '\n' + document.body.innerText`))
	if err != nil {
		return err.Error()
	}
	return text
}

// shows waits until the page, or the part of it, has the texts.
func (p *tab) shows(selector string, texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		p.until(fmt.Sprintf("%s shows %q", selector, text),
			fmt.Sprintf(`[...document.querySelectorAll(%q)].some((e) => e.innerText.replace(/\s+/g, ' ').includes(%q))`, selector, text))
	}
}

// click clicks on what has the text exactly, and is there and enabled.
func (p *tab) click(selector, text string) {
	p.t.Helper()
	find := fmt.Sprintf(`[...document.querySelectorAll(%q)].find((e) => e.innerText.trim() === %q && !e.disabled)`, selector, text)
	// It is marked in the moment in which it is found: the page may change it in the next.
	p.until(fmt.Sprintf("there is a %s %q to click on", selector, text),
		fmt.Sprintf(`((e) => { document.querySelectorAll('[data-test]').forEach((old) => old.removeAttribute('data-test')); e?.setAttribute('data-test', ''); return e; })(%s)`, find))
	p.do(chromedp.Click(chromedp.CSS(`[data-test]`)))
}

// enter types into a field.
func (p *tab) enter(selector, text string) {
	p.t.Helper()
	p.do(chromedp.WaitVisible(chromedp.CSS(selector)), chromedp.SendKeys(chromedp.CSS(selector), text))
}

// logIn logs in with a token.
func (p *tab) logIn(token string) {
	p.t.Helper()
	p.enter(`input[name="token"]`, token)
	p.click("button", "Log in with the token")
}

// changeUser logs out and logs in with another token.
func (p *tab) changeUser(token string) {
	p.t.Helper()
	p.click("button", "Log out")
	p.logIn(token)
}

// choose sets the value of a field, as if the user had chosen it.
func (p *tab) choose(selector, value string) {
	p.t.Helper()
	p.until("there is a "+selector, fmt.Sprintf(`document.querySelector(%q) !== null`, selector))
	eval[any](p, fmt.Sprintf(`(() => {
		const e = document.querySelector(%q);
		e.value = %q;
		for (const kind of ['input', 'change']) e.dispatchEvent(new Event(kind, { bubbles: true }));
	})(); undefined`, selector, value))
}

// press presses keys, one after the other, wherever the focus is.
func (p *tab) press(keys string) {
	p.t.Helper()
	p.do(chromedp.KeyEvent(keys))
}

// shortcut presses keys that the page takes for itself: a browser then makes no text of them.
func (p *tab) shortcut(keys string) {
	p.t.Helper()
	for _, key := range keys {
		for _, kind := range []input.DispatchKeyEventType{"rawKeyDown", "keyUp"} {
			_, err := chromedp.Call(p.ctx, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: kind, Key: string(key)})
			require.NoErrorf(p.t, err, "press %c", key)
		}
	}
}

// focused describes what has the focus.
func (p *tab) focused() string {
	p.t.Helper()
	return eval[string](p, `(document.activeElement.innerText || document.activeElement.getAttribute('aria-label') || document.activeElement.name || document.activeElement.tagName).trim()`)
}

// cpu returns how long the main thread of the page has computed since the first call, in milliseconds of CPU time.
func (p *tab) cpu() float64 {
	p.t.Helper()
	_, err := chromedp.Call(p.ctx, performance.Enable, performance.EnableParams{TimeDomain: performance.EnableTimeDomainThreadTicks})
	require.NoError(p.t, err)
	all, err := chromedp.Call(p.ctx, performance.GetMetrics, cdp.Empty{})
	require.NoError(p.t, err)
	for _, m := range all.Metrics {
		if m.Name == "TaskDuration" {
			return m.Value * 1000
		}
	}
	p.t.Fatalf("the browser does not measure the CPU time: %v", all.Metrics)
	return 0
}
