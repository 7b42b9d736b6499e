package console

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/jmoiron/sqlx"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/testkit"
)

const (
	// costLimit is the limit of the bytes of a page that a browser loads for the first time, compressed and with headers.
	costLimit = 200_000
	// costGrowth is the limit of the growth of these bytes with the number of operations.
	costGrowth = 2
	// costLoads is how often each page is loaded; the table shows medians.
	costLoads = 3
)

// watchContent records in contentAt when the page last became complete, in milliseconds of the page: nothing is loading, and no request
// is open.
const watchContent = `
window.contentAt = 0;
(() => {
  let open = 0;
  const check = () => {
    const complete = open === 0 && document.querySelector('#main h1') && !document.querySelector('#main .loading, #main [aria-busy=true]');
    if (!complete) window.contentAt = 0;
    else if (!window.contentAt) window.contentAt = performance.now();
  };
  const send = window.fetch;
  window.fetch = async (...request) => {
    open++;
    try {
      return await send(...request);
    } finally {
      open--;
    }
  };
  new MutationObserver(check).observe(document, { childList: true, subtree: true, attributes: true, characterData: true });
})();`

// cost is what a page costs at first load. answers is the part of the bytes that the API has sent.
type cost struct {
	bytes, answers, cpu, content float64
}

// fill stores operations up to a number, in all states and with a hundred different errors, and orchestrations, batches, actions, holds and
// dead letters in proportion. Nothing is due while the test runs. One instance has a thousandth of the operations.
func (s *system) fill(db *sqlx.DB, from, to int) {
	s.t.Helper()
	var hash string
	require.NoError(s.t, db.Get(&hash, `SELECT hash FROM orchestrator.definitions WHERE operation_type = 'provision'`))
	for _, query := range []string{`
INSERT INTO orchestrator.operations (id, type, instance_id, plan, created_at, state, version, cursor, stage, step, stage_attempt, step_attempt,
    dispatch, stage_memory, started_at, finished_at, deadline, due_at, first_tried_at, message, error, error_group, condition, condition_step,
    condition_since, details)
SELECT gen_random_uuid(), 'provision', CASE WHEN n % 1000 = 2 THEN 'busy' ELSE 'i-' || n END, (ARRAY['azure', 'aws', 'gcp', 'trial'])[1 + n % 4],
    at, state, 9, 20, 1, n % 2, 1, 1, 0, false, CASE WHEN state <> 'pending' THEN at END,
    CASE WHEN state IN ('succeeded', 'failed', 'cancelled') THEN at + interval '5 minutes' END, now() + interval '2 days',
    CASE WHEN state = 'in progress' THEN now() + interval '1 day' END, CASE WHEN state = 'in progress' THEN at END, 'still creating',
    CASE WHEN state = 'failed' OR fails THEN jsonb_build_object('component', 'ext', 'message', 'ext is broken in place ' || n % 300, 'reason', 'broken') END,
    CASE WHEN state = 'failed' OR fails THEN to_char(n % 300, 'FM0000000000000000') END,
    CASE WHEN fails THEN 'failing' WHEN state = 'in progress' THEN 'polling' END, CASE WHEN state = 'in progress' THEN n % 2 END,
    CASE WHEN state = 'in progress' THEN at END, '{"provisioner": {"runtimeId": "6f2fbf0a-1b1b-4b1b-8b1b-123456789012"}}'
FROM (SELECT *, state = 'in progress' AND n % 10 IN (5, 6) AS fails FROM (
    SELECT n, now() - interval '10 minutes' - n * interval '100 ms' AS at, CASE
        WHEN n % 1000 = 1 THEN 'cancelled' WHEN n % 10 = 1 THEN 'failed' WHEN n % 10 IN (5, 6, 7) THEN 'in progress' ELSE 'succeeded' END AS state
    FROM generate_series($1::int + 1, $2::int) AS n) s) v WHERE $3 <> ''`, `
INSERT INTO orchestrator.instances (instance_id, running)
SELECT o.instance_id, (array_agg(o.id) FILTER (WHERE o.state = 'in progress'))[1] FROM orchestrator.operations o
WHERE $1::int < $2::int AND $3 <> '' GROUP BY o.instance_id ON CONFLICT DO NOTHING`, `
INSERT INTO orchestrator.requests (operation_id, body, definition)
SELECT o.id, jsonb_build_object('id', o.id, 'type', o.type, 'instanceId', o.instance_id, 'plan', jsonb_build_object('id', o.plan, 'name', o.plan),
    'context', jsonb_build_object('globalAccountId', 'ga-' || o.arrived % 50, 'subaccountId', 'sa-' || o.arrived),
    'runtime', jsonb_build_object('name', 'demo', 'shootName', 'c-' || o.arrived, 'shootDomain', 'c-1.example.com', 'provider', 'azure', 'region', 'westeurope'),
    'parameters', jsonb_build_object('name', 'demo', 'machineType', 'Standard_D8_v3', 'autoScalerMax', 10)), $3
FROM orchestrator.operations o WHERE $1::int < $2::int ON CONFLICT DO NOTHING`, `
INSERT INTO orchestrator.history (operation_id, cursor, stage, step, stage_attempt, step_attempt, started_at, finished_at, kind)
SELECT o.id, c, 1, 0, 1, c, o.created_at, o.created_at, 'succeeded' FROM orchestrator.operations o, generate_series(1, 5) AS c
WHERE $1::int < $2::int AND $3 <> '' ON CONFLICT DO NOTHING`, `
INSERT INTO orchestrator.orchestrations (id, type, parameters, created_at, state, description, updated_at)
SELECT gen_random_uuid(), 'upgradeKyma', '{}', now() - n * interval '1 minute', 'succeeded', n || ' of ' || n, now()
FROM generate_series($1::int / 100 + 1, $2::int / 100) AS n WHERE $3 <> ''`, `
INSERT INTO orchestrator.batches (id, action, stage, step, filter, reason, created_by, created_at, rate, total, state, done, updated_at, due_at)
SELECT gen_random_uuid(), 'retry', '', '', 'state=failed', 'ext works again, time ' || n, 'olga', now() - n * interval '1 minute', 50, n, 'finished', n, now(), now()
FROM generate_series($1::int / 100 + 1, $2::int / 100) AS n WHERE $3 <> ''`, `
INSERT INTO orchestrator.holds (id, scope, reason, created_by, created_at)
SELECT gen_random_uuid(), jsonb_build_object('instance', 'none-' || n), 'migration ' || n, 'olga', now() - n * interval '1 minute'
FROM generate_series($1::int / 1000 + 1, $2::int / 1000) AS n WHERE $3 <> ''`, `
INSERT INTO orchestrator.actions (at, name, subject, role, authentication, action, target, detail, outcome, reason)
SELECT now() - n * interval '1 second', 'olga', '', 'operator', 'token', 'retry', gen_random_uuid()::text, 'create', 'done', ''
FROM generate_series($1::int + 1, $2::int) AS n WHERE $3 <> ''`} {
		_, err := db.ExecContext(s.t.Context(), query, from, to, hash)
		require.NoErrorf(s.t, err, "%s", query)
	}
	_, err := db.ExecContext(s.t.Context(), `VACUUM ANALYZE`)
	require.NoError(s.t, err)
	for n := from / 100; n < to/100; n++ {
		_, err := s.Bus.JetStream().PublishMsg(s.t.Context(), &nats.Msg{
			Subject: event.DeadSubject(event.StreamResults), Data: []byte(`{"step": "Register"}`),
			Header: nats.Header{
				bus.HeaderDeadSubject: {event.ResultSubject("beta", "Register")}, bus.HeaderDeadConsumer: {"orchestrator"},
				bus.HeaderDeadReason: {fmt.Sprintf("not a readable CloudEvent %d", n)},
			},
		})
		require.NoError(s.t, err)
	}
	// The API keeps the numbers of the overview for a while.
	testkit.Eventually(s.t, patience, "all failed operations are counted", func() bool {
		var e operator.Errors
		s.ask(http.MethodGet, "/errors", "", "", &e)
		return e.Failed.Operations == to/10-to/1000
	})
}

// load loads a page as a browser does for the first time.
func (p *tab) load(path string) cost {
	p.t.Helper()
	// The process of the page stays the same as long as the origin does, and its CPU time adds up.
	p.do(chromedp.Navigate(p.base + "/me"))
	before := p.cpu()
	p.do(chromedp.Navigate(p.base + path))
	// The figures are taken in the moment in which the page is complete: it may load more in the next.
	p.until("the page is complete", `contentAt > 0 && document.querySelector('#main [role=alert]') === null && (window.figures = (() => {
	  const all = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')].filter((e) => e.startTime <= contentAt);
	  const bytes = (some) => some.reduce((sum, e) => sum + e.transferSize, 0);
	  return [bytes(all), bytes(all.filter((e) => e.initiatorType === 'fetch')), contentAt];
	})())`)
	spent := p.cpu() - before
	loaded := eval[[]float64](p, `figures`)
	return cost{bytes: loaded[0], answers: loaded[1], cpu: spent, content: loaded[2]}
}

func TestCost_ManyOperations_PagesStaySmall(t *testing.T) {
	testkit.Suite(t, "console") // not parallel, because it measures CPU time
	s := newSystem(t)
	s.start()
	db, err := postgres.Open(t.Context(), postgres.Config{URL: s.Orchestrator.Database.URL, MaxOpen: 2})
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	p := openTab(t, s)
	p.forgive("/favicon.ico") // a page of the API has no icon
	_, err = chromedp.Call(p.ctx, network.SetCacheDisabled, network.SetCacheDisabledParams{CacheDisabled: true})
	require.NoError(t, err)
	_, err = chromedp.Call(p.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: watchContent})
	require.NoError(t, err)
	sizes := []int{5_000, 100_000}
	var names []string
	costs := map[string][]cost{}
	for i, size := range sizes {
		from := 0
		if i > 0 {
			from = sizes[i-1]
		}
		s.fill(db, from, size)
		var op, failing, batch, orchestration string
		require.NoError(t, db.Get(&op, `SELECT id FROM orchestrator.operations WHERE state = 'succeeded' ORDER BY arrived LIMIT 1`))
		require.NoError(t, db.Get(&failing, `SELECT id FROM orchestrator.operations WHERE condition = 'failing' ORDER BY arrived LIMIT 1`))
		require.NoError(t, db.Get(&batch, `SELECT id FROM orchestrator.batches ORDER BY arrived LIMIT 1`))
		require.NoError(t, db.Get(&orchestration, `SELECT id FROM orchestrator.orchestrations ORDER BY arrived LIMIT 1`))
		views := [][2]string{
			{"overview", ""},
			{"operations", "operations"},
			{"operations, failed", "operations?state=failed"},
			{"operations, longest", "operations?sort=duration"},
			{"operation, ended", "operations/" + op},
			{"operation, failing", "operations/" + failing},
			{"instance", "instances/busy"},
			{"find by name", "find?q=demo"},
			{"find by account", "find?q=ga-7"},
			{"orchestrations", "orchestrations"},
			{"orchestration", "orchestrations/" + orchestration},
			{"batches", "batches"},
			{"batch", "batches/" + batch},
			{"holds", "holds"},
			{"webhooks", "webhooks"},
			{"workers", "workers"},
			{"processes", "processes/provision"},
			{"actions", "actions"},
			{"dead letters", "dead-letters"},
			{"dead letter", "dead-letters/1"},
		}
		names = names[:0]
		for _, v := range views {
			names = append(names, v[0])
			var loads []cost
			for range costLoads {
				loads = append(loads, p.load("/console/"+v[1]))
			}
			costs[v[0]] = append(costs[v[0]], median(loads))
		}
	}
	var out strings.Builder
	fmt.Fprintf(&out, "\n%-20s %19s %19s %19s %19s\n", "", "first load, kB", "of it answers, kB", "CPU, ms", "content after, ms")
	fmt.Fprintf(&out, "%-20s", "operations")
	for range 4 {
		for _, size := range sizes {
			fmt.Fprintf(&out, " %9d", size)
		}
	}
	for _, name := range names {
		a, b := costs[name][0], costs[name][1]
		fmt.Fprintf(&out, "\n%-20s %9.1f %9.1f %9.1f %9.1f %9.0f %9.0f %9.0f %9.0f",
			name, a.bytes/1000, b.bytes/1000, a.answers/1000, b.answers/1000, a.cpu, b.cpu, a.content, b.content)
		if a.bytes > costLimit || b.bytes > costLimit {
			t.Errorf("%s: first load: %.0f and %.0f bytes, at most %d are allowed", name, a.bytes, b.bytes, costLimit)
		}
		if b.bytes > costGrowth*a.bytes {
			t.Errorf("%s: first load grows with the operations from %.0f to %.0f bytes", name, a.bytes, b.bytes)
		}
	}
	t.Log(out.String())
}

// median is the median of each figure.
func median(loads []cost) cost {
	of := func(figure func(cost) float64) float64 {
		var all []float64
		for _, l := range loads {
			all = append(all, figure(l))
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	return cost{
		bytes: of(func(c cost) float64 { return c.bytes }), answers: of(func(c cost) float64 { return c.answers }), cpu: of(func(c cost) float64 { return c.cpu }),
		content: of(func(c cost) float64 { return c.content }),
	}
}
