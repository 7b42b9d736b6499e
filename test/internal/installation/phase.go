//go:build linux

package installation

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/test/internal/harness"
)

// calmLimit is the time limit for all accepted operations to end after a fault.
const calmLimit = 4 * time.Minute

// Fault is a fault and its repair.
type Fault struct {
	Name string
	Do   func()
	// Upgrade starts an upgrade of all runtimes during the fault.
	Upgrade bool
	// Harmless means that no message may be redelivered.
	Harmless bool
	// Unwatched leaves out the stalls: to see them, the database is queried ten times a second.
	Unwatched bool
}

// Phase injects a fault under load, and waits until all accepted operations have ended.
func (w *World) Phase(t *testing.T, l *Load, f Fault) Row {
	if w.restless {
		t.Fatal("skipped: an earlier phase did not complete")
	}
	outer := w.T
	w.T, w.restless = t, true // until all operations have ended
	defer func() { w.T = outer }()
	w.Ready()
	created, letters, redelivered := w.Sys.Created(), w.deadLetters(t.Context()), w.redelivered(t.Context())
	w.exits = 0
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	v := newWatch(ctx, w, l, !f.Unwatched)
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
	w.Await("operations to be in flight", func() bool { w.Pass(0); return l.waiting.Load() >= Customers/3 })
	w.Pass(time.Second)
	if f.Upgrade {
		w.upgrade()
	}
	start := time.Now()
	f.Do()
	v.heal()
	t.Logf("%s: broken for %.1f s", f.Name, time.Since(start).Seconds())
	w.Pass(3 * time.Second)
	noMore()
	limit := time.Now().Add(calmLimit)
	for calm := false; !calm; {
		select {
		case <-ended:
			calm = w.OperationsEnded()
		default:
		}
		if time.Now().After(limit) {
			t.Errorf("not calm within %s after the fault: %d operations wait", calmLimit, l.waiting.Load())
			w.logStuck()
			cancel() // count the operations in progress as lost
			<-ended
			break
		}
		w.Pass(200 * time.Millisecond)
	}
	w.restless = ctx.Err() != nil
	r := Row{Fault: f.Name}
	v.end(t.Context(), &r)
	w.Ready()
	w.judge(&r, l, created, letters)
	if r.Redelivered = w.redeliveredSince(t.Context(), redelivered); r.Redelivered > 0 && f.Harmless {
		t.Errorf("%d messages were redelivered although no process failed", r.Redelivered)
	}
	w.logWaits(start)
	var line strings.Builder
	Table(&line, []Row{r})
	t.Logf("\n%s", line.String())
	return r
}

// replaced are the objects that a step removes and creates anew when it runs again, as the original does
// (docs/contracts/edp.md#conflict-and-failure). There is never a second one.
var replaced = []string{"edp/dataTenant", "edp/metadata"}

// judge fills in the results of a phase, and fails the test if a promise is broken.
func (w *World) judge(r *Row, l *Load, created map[string]int, before dead) {
	w.T.Helper()
	got := l.take()
	r.Accepted, r.Succeeded, r.Failed = len(got.all), got.ended(osb.StateSucceeded), got.ended(osb.StateFailed)
	r.Lost, r.Refusals, r.Exits, r.Binds = len(got.lost), got.refusals(), w.exits, got.binds
	r.Slowest, r.Provisioning = got.slowest(), got.median()
	r.Dead = w.deadLetters(w.T.Context()).since(before)
	for _, problem := range append(got.lost, got.wrong...) {
		w.T.Error(problem)
	}
	if r.Dead > 0 {
		w.T.Errorf("%d messages went to the dead letters, want none", r.Dead)
	}
	if r.Accepted == 0 {
		w.T.Error("no operation was accepted")
	}
	orders, wants, gone := []*harness.Order{}, []harness.Footprint{}, map[*harness.Order]bool{}
	for _, c := range l.customers {
		switch {
		case c.exists && c.suspended:
			orders, wants = append(orders, c.order), append(wants, harness.Footprint{})
		case c.exists:
			orders, wants = append(orders, c.order), append(wants, Footprint(c.plan()))
		}
		for _, o := range c.gone {
			orders, wants = append(orders, o), append(wants, harness.Footprint{})
			gone[o] = true
		}
		c.gone = nil
	}
	late := harness.Footprint{}
	for i, found := range w.Sys.Footprints(orders) {
		if gone[orders[i]] {
			w.noteLate(orders[i], found.WithoutAccount(), late)
			continue
		}
		w.compare(r, orders[i].InstanceID, wants[i], found.WithoutAccount())
	}
	// Objects that were created twice and then removed appear in the number of creations.
	after, want, made := w.Sys.Created(), harness.Footprint{}, harness.Footprint{}
	for plan, n := range got.builds {
		for key, count := range Footprint(plan).Created(n) {
			want[key] += count
		}
	}
	for key := range Footprint("azure") {
		made[key] = after[key] - created[key] - late[key]
		r.Late += late[key]
	}
	for key, n := range made {
		switch {
		case n <= want[key]:
		case slices.Contains(replaced, key):
			r.Replaced += n - want[key]
		default:
			r.Doubled += n - want[key]
			w.T.Errorf("%s was created %d times, want %d", key, n, want[key])
		}
	}
}

// noteLate counts the objects of a deprovisioned runtime in late. Settle checks that they go.
func (w *World) noteLate(o *harness.Order, found, late harness.Footprint) {
	for key, n := range found {
		if n > 0 {
			w.T.Logf("instance %s, removed: %d of %s", o.InstanceID, n, key)
			late[key] += n
			w.late += n
		}
	}
	w.gone = append(w.gone, o)
}

// lateWindow is how long an unanswered request can take effect (docs/decisions/0084-late-effects.md).
const lateWindow = 2 * time.Minute

// Settle waits until unanswered requests can no longer take effect, and runs the job that deprovisions the affected instances again. After
// that no deprovisioned runtime may have an object, and the orchestrators have counted what was removed.
func (w *World) Settle() {
	w.T.Helper()
	w.Pass(lateWindow)
	var kept, left int
	require.NoError(w.T, w.DB.GetContext(w.T.Context(), &kept, `SELECT count(*) FROM broker.instances WHERE deleted_at IS NOT NULL`))
	before := w.lateEffects()
	out, err := w.Run("job", "deprovision-retrigger")
	require.NoError(w.T, err, "%s", out)
	w.Await("all instances to be removed", func() bool {
		err := w.DB.GetContext(w.T.Context(), &left, `SELECT count(*) FROM broker.instances WHERE deleted_at IS NOT NULL`)
		return err == nil && left == 0 && w.OperationsEnded()
	})
	var r Row
	for i, found := range w.Sys.Footprints(w.gone) {
		w.compare(&r, w.gone[i].InstanceID, harness.Footprint{}, found.WithoutAccount())
	}
	counted := w.lateEffects() - before
	w.T.Logf("%d of %d removed instances were deprovisioned once more; of %d late objects, keb_late_effects_total counts %.0f",
		kept, len(w.gone), w.late, counted)
	if w.late > 0 && counted < 1 {
		w.T.Errorf("%d late objects were removed, and keb_late_effects_total counts none", w.late)
	}
	w.late = 0
}

// lateEffects returns what all orchestrators have counted in keb_late_effects_total.
func (w *World) lateEffects() (sum float64) {
	w.T.Helper()
	ctx, cancel := context.WithTimeout(w.T.Context(), 30*time.Second)
	defer cancel()
	for name, addr := range w.Addr {
		if strings.HasPrefix(name, "orchestrator-") {
			n, err := metric(ctx, addr, "keb_late_effects_total")
			require.NoError(w.T, err, "%s", name)
			sum += n
		}
	}
	return sum
}

// compare counts surplus and missing objects.
func (w *World) compare(r *Row, instance string, want, got harness.Footprint) {
	w.T.Helper()
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
		r.Doubled += max(got[key]-want[key], 0)
		r.Missing += max(want[key]-got[key], 0)
		w.T.Errorf("instance %s: %d of %s, want %d", instance, got[key], key, want[key])
	}
}

// Footprint returns the objects of a runtime of a plan in the landscape, without the account.
func Footprint(plan string) harness.Footprint {
	f := harness.Complete().WithoutAccount()
	if plan == "trial" {
		f["avs/evaluation"] = 1 // a trial has no external evaluation
	}
	return f
}

// Pass lets a time pass. It restarts every process that exits unexpectedly, as its supervisor would.
func (w *World) Pass(d time.Duration) {
	w.T.Helper()
	until := time.Now().Add(d)
	for {
		for name, p := range w.Programs {
			if !w.Down[name] && !p.Running() {
				w.exits++
				w.T.Logf("%s exited unexpectedly: %s", name, tail(p.log, 2))
				p.Start()
			}
		}
		left := time.Until(until)
		if left <= 0 {
			return
		}
		Wait(w.T.Context(), min(left, 200*time.Millisecond))
	}
}

// Run runs keb.
func (w *World) Run(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(w.T.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, w.keb.path, args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, w.keb.env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// upgrade starts an upgrade of all runtimes.
func (w *World) upgrade() {
	w.T.Helper()
	if out, err := w.Run("upgrade", "cluster", "--target", "all", "--parallel-workers", "4"); err != nil {
		w.T.Errorf("upgrade: %v\n%s", err, out)
	}
}

// OperationsEnded reports whether every operation and every orchestration has ended.
func (w *World) OperationsEnded() bool {
	var running int
	ctx, cancel := context.WithTimeout(w.T.Context(), 5*time.Second)
	defer cancel()
	err := w.DB.GetContext(ctx, &running, `SELECT count(*) FROM orchestrator.operations WHERE state IN ('pending', 'in progress')`)
	if err != nil || running > 0 {
		return false
	}
	err = w.DB.GetContext(ctx, &running, `SELECT count(*) FROM orchestrator.orchestrations WHERE state IN ('pending', 'in progress', 'retrying', 'canceling')`)
	return err == nil && running == 0
}

// logStuck logs the output of keb stuck.
func (w *World) logStuck() {
	out, err := w.Run("stuck")
	w.T.Logf("keb stuck (%v):\n%s", err, out)
}

// logWaits logs the operations with the longest waits for a transition since a time.
func (w *World) logWaits(since time.Time) {
	var waits []struct {
		ID, Type, Kind string
		Cursor         int
		Waited         float64
	}
	err := w.DB.SelectContext(w.T.Context(), &waits, `
SELECT * FROM (SELECT h.operation_id::text AS id, o.type, h.kind, h.cursor,
    extract(epoch FROM h.finished_at - COALESCE(lag(h.finished_at) OVER (PARTITION BY h.operation_id ORDER BY h.cursor), o.created_at))::float8 AS waited
    FROM orchestrator.history h JOIN orchestrator.operations o ON o.id = h.operation_id WHERE o.finished_at > $1) AS w
ORDER BY waited DESC LIMIT 3`, since)
	if err != nil {
		w.T.Errorf("query the waits: %v", err)
	}
	for _, x := range waits {
		w.T.Logf("%s %s waited %.1f s for transition %d (%s)", x.Type, x.ID, x.Waited, x.Cursor, x.Kind)
	}
}

// CheckHistory checks the invariants of the history of all operations.
func (w *World) CheckHistory(t *testing.T) {
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
		if err := w.DB.SelectContext(t.Context(), &found, query); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if len(found) > 0 {
			t.Errorf("%s: %v", what, found)
		}
	}
	var operations, lines int
	if err := w.DB.GetContext(t.Context(), &operations, `SELECT count(*) FROM orchestrator.operations`); err != nil {
		t.Error(err)
	}
	if err := w.DB.GetContext(t.Context(), &lines, `SELECT count(*) FROM orchestrator.history`); err != nil {
		t.Error(err)
	}
	t.Logf("%d operations with %d transitions checked", operations, lines)
}
