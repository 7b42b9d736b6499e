package console

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/worker"
)

// The budget of the page of an operation that retries every second, for a second.
const (
	bytesPerSecond = 200_000 / 30
	cpuPerSecond   = 1.0 / 30
)

// threeMoreTries is a promise that the page shows three more tries.
const threeMoreTries = `new Promise((resolve) => {
  const callout = document.querySelector('.callout');
  const tries = () => Number(/Tried (\d+) times/.exec(callout.textContent)[1]);
  const wanted = tries() + 3;
  new MutationObserver((_, observer) => {
    if (tries() < wanted) return;
    observer.disconnect();
    resolve(true);
  }).observe(callout, {subtree: true, childList: true, characterData: true});
})`

// often has a step that is tried again after a second, and a step before it in the same stage.
var often = fstest.MapFS{"provision.yaml": {Data: []byte(`
operation: provision
timeout: 1h
stages:
  - name: start
    steps:
      - {name: Starting, worker: orchestrator}
  - name: create
    steps:
      - {name: Prepare, worker: alpha, retry: {every: 1s, timeout: 10m}}
      - {name: Register, worker: beta, retry: {every: 1s, timeout: 10m}}
      - {name: Finish, worker: alpha, retry: {every: 1s, timeout: 10m}}
`)}}

func TestConsole_RetryingOperation_IsCheapAndShowsTheCause(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	viewer, operator := s.protect()
	s.Orchestrator.Processes = often
	s.Orchestrator.Links = "Logs=https://logs.example.org/?q={operation}"
	const long = "the registry answered 503: "
	s.script.set("Register", func(op worker.Operation) (worker.Operation, time.Duration, error) {
		return worker.Retry(op, time.Second, errors.New(long+fmt.Sprint(time.Now().UnixNano())))
	})
	s.start()
	op := provision("azure")
	s.request(op)
	s.awaitWaiting(op, viewer, "failing")

	p := openTab(t, s)
	p.forgive("401 (Unauthorized)", "404 (Not Found)")
	p.open("/console/operations/" + op.ID)
	p.logIn(viewer)
	p.shows("h1", "Provisioning of demo (c-1234567)")
	p.shows(".state-line", "failing")
	p.shows(".callout.edge-wait", "Waiting: failing for", long, "The operation fails if it has not succeeded by")
	p.shows(".actions", "You are a viewer")
	p.shows(".facts", "Process version", "current", "Logs")
	p.until("finished stages have finished steps", `document.querySelector('.map-step[title="Starting: succeeded"]') && document.querySelector('.map-step.here[title^="Register"], .map-step.here[title^="Prepare"]')`)
	p.until("it has retried", `/[3-9] tries/.test(document.querySelector('.history').innerText)`)
	if n := eval[int](p, `[...document.querySelectorAll('.actions button')].filter((b) => !b.disabled).length`); n != 0 {
		t.Errorf("a viewer can press %d buttons", n)
	}

	// A few seconds with the page open cost little.
	var received atomic.Int64
	require.NoError(t, chromedp.Listen(p.ctx, func(ev any) {
		if e, ok := ev.(*network.EventDataReceived); ok {
			received.Add(int64(max(e.EncodedDataLength, 0)))
		}
	}))
	from, worked, start := received.Load(), p.cpu(), time.Now()
	// The page itself waits: questions of the test would cost more than what they measure.
	_, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool](threeMoreTries, chromedp.EvalAwaitPromise))
	require.NoError(t, err)
	seconds := time.Since(start).Seconds()
	bytes, cpu := float64(received.Load()-from)/seconds, (p.cpu()-worked)/1000/seconds
	t.Logf("in %.1f s: %.0f bytes and %.1f ms of the processor in a second", seconds, bytes, 1000*cpu)
	if bytes > bytesPerSecond {
		t.Errorf("%.0f bytes in a second, want at most %d", bytes, bytesPerSecond)
	}
	if cpu > 2*cpuPerSecond { // a few seconds include the start of the page
		t.Errorf("%.0f ms of the processor in a second, want at most %.0f", 1000*cpu, 2000*cpuPerSecond)
	}

	p.changeUser(operator)
	p.click("button", "Cancel…")
	step := eval[string](p, `document.querySelector('dialog label code').innerText`)
	p.enter(`dialog input`, step)
	p.click("dialog button", "Cancel the operation")
	p.shows(".callout.edge-bad", "It was failing at Register in create", long, "Cancelled by olga")
	p.shows(".state-line", "cancelled")
	p.until("the step that failed is cancelled, and the one before it is done", `document.querySelector('.map-step[title="Register: cancelled"]') && document.querySelector('.map-step[title="Finish: waiting"]')`)
	p.until("the focus stays with the actions", `document.activeElement.closest('.actions') !== null`)

	p.open("/console/operations/" + uuid.NewString())
	p.shows("h1", "Operation not found")
	if eval[bool](p, `performance.getEntriesByType('resource').some((r) => r.name.includes('/stream?'))`) {
		t.Error("the page of an unknown operation opens a stream")
	}
}
