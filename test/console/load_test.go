package console

import (
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// flood stands in for the stream: every 20 ms ten changes, nine of invisible operations and one of a row. What the API
// does under such a load is tested with the orchestrator; this is about the page.
const flood = `
window.sent = 0;
window.EventSource = class extends EventTarget {
  constructor() {
    super();
    setTimeout(() => this.onopen?.(), 0);
    const id = () => crypto.randomUUID();
    const send = (o) => { window.sent++; this.dispatchEvent(new MessageEvent('operation', { data: JSON.stringify(o) })); };
    this.timer = setInterval(() => {
      if (!window.flooding) return;
      const base = { type: 'provision', state: 'in progress', plan: 'aws', step: 'Register', stage: 'create', notCompleted: [], message: 'x'.repeat(500) };
      for (let i = 0; i < 9; i++) send({ ...base, id: id(), instanceId: id(), cursor: 1, createdAt: new Date(Date.now() + 60_000).toISOString() });
      const row = document.querySelector('tbody th a')?.title;
      if (row) send({ ...base, id: row, instanceId: id(), cursor: 1000 + window.sent, createdAt: new Date(0).toISOString() });
    }, 20);
  }
  close() { clearInterval(this.timer); }
};`

func TestLoad_ManyChanges_PageStaysSmall(t *testing.T) {
	s := thorough(t)
	s.start()
	op := provision("trial")
	s.request(op)
	s.await(op, "", "succeeded")
	p := openTab(t, s)
	p.onNewDocument(flood)
	p.open("/console/operations")
	p.shows("main", "1 operation")
	heap := func() float64 {
		t.Helper()
		_, err := chromedp.Call(p.ctx, heapprofiler.CollectGarbage, cdp.Empty{})
		require.NoError(t, err)
		usage, err := chromedp.Call(p.ctx, runtime.GetHeapUsage, cdp.Empty{})
		require.NoError(t, err)
		return usage.UsedSize
	}
	eval[any](p, `window.flooding = true`)
	p.until("the first changes are taken in", `window.sent > 3000`)
	p.shows(".fresh", "Show 1000+")
	before := heap()
	p.until("many more are taken in", `window.sent > 9000`)
	eval[any](p, `window.flooding = false`)
	p.shows("tbody tr", "Register") // the row has followed
	if rows := eval[int](p, `document.querySelectorAll('tbody tr').length`); rows != 1 {
		t.Errorf("%d rows", rows)
	}
	if after := heap(); after > before+4<<20 {
		t.Errorf("the heap has grown from %.1f MB to %.1f MB", before/(1<<20), after/(1<<20))
	} else {
		t.Logf("heap: %.1f MB after 3,000 changes, %.1f MB after 9,000", before/(1<<20), after/(1<<20))
	}
}
