//go:build linux

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/internal/harness"
)

const (
	switchVariable = "KEB_CHAOS"
	seedVariable   = "KEB_CHAOS_SEED"
	// calmLimit is the time limit for all accepted operations to end after a fault.
	calmLimit = 4 * time.Minute
	// combinations is the number of random combinations of faults at the end.
	combinations = 3
)

func TestChaos(t *testing.T) {
	testkit.Suite(t, "chaos")
	seed := uint64(time.Now().UnixNano() % 1_000_000)
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s=%q is not a number", seedVariable, text)
		}
	}
	t.Logf("%s=%d", seedVariable, seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(t)
	l := newLoad(w, rnd)
	var rows []row
	t.Cleanup(func() {
		fmt.Printf("\n%s=%d\n", seedVariable, seed)
		table(os.Stdout, rows)
	})
	all := faults(w)
	for _, f := range all {
		t.Run(f.name, func(t *testing.T) { rows = append(rows, w.phase(t, l, f)) })
	}
	for i := range combinations {
		// Draw even if the phase is skipped, so that one phase can be repeated alone.
		a, b := rnd.IntN(len(all)-1)+1, rnd.IntN(len(all)-1)+1
		both := fault{name: fmt.Sprintf("combination %d", i+1), do: func(w *world) {
			all[a].do(w)
			all[b].do(w)
		}}
		t.Run(both.name, func(t *testing.T) {
			t.Logf("%s, then immediately %s", all[a].name, all[b].name)
			r := w.phase(t, l, both)
			r.fault = all[a].name + " + " + all[b].name
			rows = append(rows, r)
		})
	}
	t.Run("history", w.checkHistory)
}

// phase injects a fault under load, and waits until all accepted operations have ended.
func (w *world) phase(t *testing.T, l *load, f fault) row {
	if w.restless {
		t.Fatal("skipped: an earlier phase did not complete")
	}
	outer := w.t
	w.t, w.restless = t, true // until all operations have ended
	defer func() { w.t = outer }()
	w.ready()
	created, letters := w.sys.Created(), w.deadLetters(t.Context())
	w.exits = 0
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	v := newWatch(ctx, w, l)
	more, noMore := context.WithCancel(ctx)
	defer noMore()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.run(ctx, more)
	}()
	defer func() {
		cancel()
		<-ended
	}()
	w.await("operations to be in flight", func() bool { w.pass(0); return l.waiting.Load() >= customers/3 })
	w.pass(time.Second)
	if f.upgrade {
		w.upgrade()
	}
	start := time.Now()
	f.do(w)
	v.heal()
	t.Logf("%s: broken for %.1f s", f.name, time.Since(start).Seconds())
	w.pass(3 * time.Second)
	noMore()
	limit := time.Now().Add(calmLimit)
	for calm := false; !calm; {
		select {
		case <-ended:
			calm = w.orchestrationsEnded()
		default:
		}
		if time.Now().After(limit) {
			t.Errorf("not calm within %s after the fault: %d operations wait", calmLimit, l.waiting.Load())
			w.logStuck()
			cancel() // count the operations in progress as lost
			<-ended
			break
		}
		w.pass(200 * time.Millisecond)
	}
	w.restless = ctx.Err() != nil
	r := row{fault: f.name}
	v.end(t.Context(), &r)
	w.ready()
	w.judge(&r, l, created, letters)
	w.logWaits(start)
	var line strings.Builder
	table(&line, []row{r})
	t.Logf("\n%s", line.String())
	return r
}

// judge fills in the results of a phase, and fails the test if a promise is broken.
func (w *world) judge(r *row, l *load, created map[string]int, before dead) {
	w.t.Helper()
	got := l.take()
	r.accepted, r.succeeded, r.failed = len(got.all), got.ended(osb.StateSucceeded), got.ended(osb.StateFailed)
	r.lost, r.refusals, r.exits, r.binds = len(got.lost), got.refusals(), w.exits, got.binds
	r.slowest = got.slowest()
	r.dead = w.deadLetters(w.t.Context()).since(before)
	for _, problem := range append(got.lost, got.wrong...) {
		w.t.Error(problem)
	}
	if r.dead > 0 {
		w.t.Errorf("%d messages went to the dead letters, want none", r.dead)
	}
	if r.accepted == 0 {
		w.t.Error("no operation was accepted")
	}
	orders, wants := []*harness.Order{}, []harness.Footprint{}
	for _, c := range l.customers {
		switch {
		case c.exists && c.suspended:
			orders, wants = append(orders, c.order), append(wants, harness.Footprint{})
		case c.exists:
			orders, wants = append(orders, c.order), append(wants, footprint(c.plan()))
		}
		for _, o := range c.gone {
			orders, wants = append(orders, o), append(wants, harness.Footprint{})
		}
		c.gone = nil
	}
	for i, found := range w.sys.Footprints(orders) {
		w.compare(r, orders[i].InstanceID, wants[i], found.WithoutAccount())
	}
	// Objects that were created twice and then removed appear in the number of creations.
	after, want, made := w.sys.Created(), harness.Footprint{}, harness.Footprint{}
	for plan, n := range got.builds {
		for key, count := range footprint(plan).Created(n) {
			want[key] += count
		}
	}
	for key := range footprint("azure") {
		made[key] = after[key] - created[key]
	}
	for key, n := range made {
		if n > want[key] {
			r.doubled += n - want[key]
			w.t.Errorf("%s was created %d times, want %d", key, n, want[key])
		}
	}
}

// compare counts surplus and missing objects.
func (w *world) compare(r *row, instance string, want, got harness.Footprint) {
	w.t.Helper()
	keys := map[string]bool{}
	for key := range want {
		keys[key] = true
	}
	for key := range got {
		keys[key] = true
	}
	for key := range keys {
		if got[key] == want[key] {
			continue
		}
		r.doubled += max(got[key]-want[key], 0)
		r.missing += max(want[key]-got[key], 0)
		w.t.Errorf("instance %s: %d of %s, want %d", instance, got[key], key, want[key])
	}
}

// footprint returns the objects of a runtime of a plan in the landscape, without the account.
func footprint(plan string) harness.Footprint {
	f := harness.Complete().WithoutAccount()
	if plan == "trial" {
		f["avs/evaluation"] = 1 // a trial has no external evaluation
	}
	return f
}

// pass lets a time pass. It restarts every process that exits unexpectedly, as its supervisor would.
func (w *world) pass(d time.Duration) {
	w.t.Helper()
	until := time.Now().Add(d)
	for {
		for name, p := range w.programs {
			if !w.down[name] && !p.running() {
				w.exits++
				w.t.Logf("%s exited unexpectedly: %s", name, tail(p.log, 2))
				p.start()
			}
		}
		left := time.Until(until)
		if left <= 0 {
			return
		}
		wait(w.t.Context(), min(left, 200*time.Millisecond))
	}
}

// run runs keb.
func (w *world) run(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, w.keb.path, args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, w.keb.env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// upgrade starts an upgrade of all runtimes.
func (w *world) upgrade() {
	w.t.Helper()
	if out, err := w.run("upgrade", "cluster", "--target", "all", "--parallel-workers", "4"); err != nil {
		w.t.Errorf("upgrade: %v\n%s", err, out)
	}
}

// orchestrationsEnded reports whether every orchestration has ended.
func (w *world) orchestrationsEnded() bool {
	var running int
	ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Second)
	defer cancel()
	err := w.db.GetContext(ctx, &running, `SELECT count(*) FROM orchestrator.operations WHERE state IN ('pending', 'in progress')`)
	if err != nil || running > 0 {
		return false
	}
	err = w.db.GetContext(ctx, &running, `SELECT count(*) FROM orchestrator.orchestrations WHERE state IN ('pending', 'in progress', 'retrying', 'canceling')`)
	return err == nil && running == 0
}

// logStuck logs the output of keb stuck.
func (w *world) logStuck() {
	out, err := w.run("stuck")
	w.t.Logf("keb stuck (%v):\n%s", err, out)
}

// logWaits logs the operations with the longest waits for a transition since a time.
func (w *world) logWaits(since time.Time) {
	var waits []struct {
		ID, Type, Kind string
		Cursor         int
		Waited         float64
	}
	err := w.db.SelectContext(w.t.Context(), &waits, `
SELECT * FROM (SELECT h.operation_id::text AS id, o.type, h.kind, h.cursor,
    extract(epoch FROM h.finished_at - COALESCE(lag(h.finished_at) OVER (PARTITION BY h.operation_id ORDER BY h.cursor), o.created_at))::float8 AS waited
    FROM orchestrator.history h JOIN orchestrator.operations o ON o.id = h.operation_id WHERE o.finished_at > $1) AS w
ORDER BY waited DESC LIMIT 3`, since)
	if err != nil {
		w.t.Errorf("query the waits: %v", err)
	}
	for _, x := range waits {
		w.t.Logf("%s %s waited %.1f s for transition %d (%s)", x.Type, x.ID, x.Waited, x.Cursor, x.Kind)
	}
}

// awaitStuck waits until `keb stuck` and the operator API show all operations in flight with the worker that each waits for.
func (w *world) awaitStuck() {
	w.t.Helper()
	start, named := time.Now(), 0
	testkit.Eventually(w.t, waitLimit, "keb stuck to show the operations that wait for a worker", func() bool {
		if out, err := w.run("stuck"); err != nil || !strings.Contains(out, "no_worker") {
			return false
		}
		named = 0
		for _, g := range harness.Get[struct {
			Data []struct {
				Reason, Worker string
				Count          int
			}
		}](w.sys, "http://"+w.sys.OperatorAddr+"/stuck").Data {
			if g.Reason == "no_worker" && g.Worker != "" {
				named += g.Count
			}
		}
		return named >= customers/3
	})
	w.t.Logf("keb stuck shows the workers that %d operations wait for, %.1f s after they were killed", named, time.Since(start).Seconds())
}

// checkHistory checks the invariants of the history of all operations.
func (w *world) checkHistory(t *testing.T) {
	for what, query := range map[string]string{
		"operations that have not ended": `SELECT id::text FROM orchestrator.operations WHERE state IN ('pending', 'in progress')`,
		"operations that ran a step of a stage after a later stage began": `
SELECT DISTINCT operation_id::text FROM (SELECT operation_id, stage,
    max(stage) OVER (PARTITION BY operation_id ORDER BY cursor ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached
    FROM orchestrator.history WHERE stage >= 0) AS h WHERE stage < reached`,
		"operations with two transitions under one cursor": `
SELECT operation_id::text FROM orchestrator.history GROUP BY operation_id, cursor HAVING count(*) > 1`,
		"operations in progress together with another operation of their instance": `
SELECT a.id::text FROM orchestrator.operations a JOIN orchestrator.operations b ON a.instance_id = b.instance_id AND a.id < b.id
WHERE a.started_at < b.finished_at AND b.started_at < a.finished_at`,
		"operations with another end in the broker": `
SELECT o.id::text FROM orchestrator.operations o JOIN broker.operations b ON o.id::text = b.id WHERE o.state::text <> b.state::text`,
	} {
		var found []string
		if err := w.db.SelectContext(t.Context(), &found, query); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if len(found) > 0 {
			t.Errorf("%s: %v", what, found)
		}
	}
	var operations, lines int
	if err := w.db.GetContext(t.Context(), &operations, `SELECT count(*) FROM orchestrator.operations`); err != nil {
		t.Error(err)
	}
	if err := w.db.GetContext(t.Context(), &lines, `SELECT count(*) FROM orchestrator.history`); err != nil {
		t.Error(err)
	}
	t.Logf("%d operations with %d transitions checked", operations, lines)
}
