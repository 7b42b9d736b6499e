//go:build linux

package upgrade

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/history"
	"github.com/kyma-project/keb/test/internal/harness"
	"github.com/kyma-project/keb/test/internal/installation"
)

const (
	root         = "../.."
	seedVariable = "KEB_UPGRADE_SEED"
	// mixed is the time that both versions run side by side before and in the middle of a roll, and pause the longest time between two replacements.
	mixed, pause = 4 * time.Second, time.Second
	// overlay makes another definition, so that a roll has operations of two.
	overlay = "operation: provision\nchanges:\n  - move: {step: AVS_Create_Internal_Eval_Step, before: Resolve_Target_Secret}\n"
)

// roll replaces every process by that of a version.
type roll struct {
	name  string
	to    *installation.Version
	order []string // names of programs
	// kills sends SIGKILL in place of SIGTERM to some processes, and kills others between two replacements.
	kills bool
	// prepare makes secrets and migrates before the first replacement, and lets the old processes run with that for a while.
	prepare bool
}

// result is the result of a roll.
type result struct {
	installation.Row
	took          time.Duration
	killed        int
	byOld, byHead int // steps that workers of a version executed during the roll
	kept          int // operations that began before the definitions changed, and ended with theirs
}

// world is an installation whose version changes.
type world struct {
	*installation.World
	rnd     *rand.Rand
	release *harness.Release
	// applied is whether the overlay applies; pinned are the definitions of operations, by id, that had not ended before it changed.
	applied bool
	pinned  map[string]string
}

func TestUpgrade(t *testing.T) {
	testkit.Suite(t, "upgrade")
	seed := testkit.Number(t, seedVariable, uint64(time.Now().UnixNano()%1_000_000), 0)
	w := &world{rnd: rand.New(rand.NewPCG(seed, 0)), release: harness.LastRelease(t, root), pinned: map[string]string{}}
	t.Logf("%s=%d, release %s (%s)", seedVariable, seed, w.release.Version, w.release.Commit)
	w.World = installation.New(t, installation.Config{Name: "upgrade", Release: w.release, Env: installation.AVSLookUp()})
	require.NoError(t, os.WriteFile(filepath.Join(w.Dir, "other.yaml"), []byte(overlay), 0o600))
	old, head := w.Version(w.release), w.Version(nil)
	workers, orchestrators, brokers := w.Names("worker-"), w.Names("orchestrator-"), w.Names("broker-")
	documented := slices.Concat(workers, orchestrators, brokers)
	back := slices.Clone(documented)
	slices.Reverse(back)
	l := installation.NewLoad(w.World, w.rnd)
	var results []result
	t.Cleanup(func() {
		fmt.Printf("\n%s=%d, release %s\n", seedVariable, seed, w.release.Version)
		table(os.Stdout, results)
	})
	for i, r := range []roll{
		{name: "forward, as documented", to: head, order: documented, prepare: true},
		{name: "back, in reverse", to: old, order: back},
		{name: "forward, shuffled, with kills", to: head, order: w.shuffled(documented), kills: true},
		{name: "back, shuffled, with kills", to: old, order: w.shuffled(documented), kills: true},
		{name: "forward, brokers first", to: head, order: slices.Concat(brokers, orchestrators, workers)},
	} {
		t.Run(r.name, func(t *testing.T) {
			res := result{}
			res.Row = w.Phase(t, l, installation.Fault{Name: r.name, Upgrade: i != 3, Do: func() { w.roll(&res, r) }})
			w.checkPinned(t, &res)
			results = append(results, res)
		})
	}
	w.Settle()
	t.Run("history", w.CheckHistory)
	t.Run("facts", w.checkFacts)
}

func (w *world) shuffled(names []string) []string {
	names = slices.Clone(names)
	w.rnd.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names
}

// roll replaces all processes, one after the other, under load.
func (w *world) roll(res *result, r roll) {
	start := time.Now()
	if r.prepare {
		w.Prepare(r.to)
		w.Pass(mixed)
	}
	for _, name := range r.order {
		w.Replace(name, r.to, r.kills && w.kill(res, 3))
		if r.kills && w.kill(res, 4) {
			w.Killed(0, r.order[w.rnd.IntN(len(r.order))])
		}
		w.Pass(time.Duration(w.rnd.Int64N(int64(pause))))
		if strings.HasPrefix(name, "orchestrator-") && len(w.pinned) == 0 { // both versions of orchestrators run
			w.change()
			w.Pass(mixed)
		}
	}
	w.Use(r.to)
	if out, err := w.Run("job", "deprovision-retrigger"); err != nil {
		w.T.Errorf("job: %v\n%s", err, out)
	}
	res.took = time.Since(start)
	res.byOld, res.byHead = w.steps(start)
	if res.byOld == 0 || res.byHead == 0 {
		w.T.Errorf("workers of the release executed %d steps, those of this tree %d; want some of both", res.byOld, res.byHead)
	}
}

// kill draws whether a process is killed, one time in n, and counts it.
func (w *world) kill(res *result, n int) bool {
	if w.rnd.IntN(n) > 0 {
		return false
	}
	res.killed++
	return true
}

// change changes the definition of new operations, and notes those of operations that have begun.
func (w *world) change() {
	w.T.Helper()
	args := []string{"process", "apply", filepath.Join(w.Dir, "other.yaml")}
	if w.applied {
		args = []string{"process", "remove", "other"}
	}
	var begun []struct{ ID, Definition string }
	require.NoError(w.T, w.DB.SelectContext(w.T.Context(), &begun, `
SELECT o.id::text AS id, r.definition FROM orchestrator.operations o JOIN orchestrator.requests r ON r.operation_id = o.id WHERE o.state IN ('pending', 'in progress')`))
	for _, o := range begun {
		w.pinned[o.ID] = o.Definition
	}
	w.Await("the overlay to change", func() bool {
		w.Pass(0)
		out, err := w.Run(args...) // an orchestrator may be away
		if err != nil {
			w.T.Logf("keb %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return err == nil
	})
	w.applied = !w.applied
}

// steps returns the numbers of steps by the version of their worker since a time.
func (w *world) steps(since time.Time) (byOld, byHead int) {
	w.T.Helper()
	var found []struct {
		Version string
		N       int
	}
	require.NoError(w.T, w.DB.SelectContext(w.T.Context(), &found, `
SELECT worker_version AS version, count(*) AS n FROM orchestrator.history WHERE worker_version <> '' AND started_at > $1 GROUP BY 1`, since))
	for _, f := range found {
		if f.Version == "v"+w.release.Version {
			byOld += f.N
		} else {
			byHead += f.N
		}
	}
	return byOld, byHead
}

// checkPinned checks that the operations which had begun before a change of the definitions have ended with theirs.
func (w *world) checkPinned(t *testing.T, res *result) {
	for id, hash := range w.pinned {
		var definition, state string
		err := w.DB.QueryRowContext(t.Context(), `
SELECT r.definition, o.state FROM orchestrator.operations o JOIN orchestrator.requests r ON r.operation_id = o.id WHERE o.id = $1`, id).Scan(&definition, &state)
		if err != nil || definition != hash || state != "succeeded" && state != "cancelled" {
			t.Errorf("operation %s, which began with definition %s, is %s with definition %s: %v", id, hash, state, definition, err)
			continue
		}
		res.kept++
	}
	if res.kept == 0 {
		t.Error("no operation had begun before the definitions changed")
	}
	clear(w.pinned)
}

// checkFacts checks that the facts of all operations are gapless, and that each step is the one that the definition of its operation has at that position.
func (w *world) checkFacts(t *testing.T) {
	outer := w.T
	w.T = t
	defer func() { w.T = outer }()
	v := history.Check(history.Events(t, w.DB, w.JS), time.Minute)
	for _, violation := range v.Violations {
		t.Error(violation)
	}
	var bodies []struct{ Hash, Body string }
	require.NoError(t, w.DB.SelectContext(t.Context(), &bodies, `SELECT hash, body FROM orchestrator.definitions`))
	definitions := map[string]*process.Process{}
	for _, b := range bodies {
		p, err := process.Parse([]byte(b.Body))
		require.NoError(t, err)
		definitions[b.Hash] = p
	}
	var lines []struct {
		ID, Definition      string
		Cursor, Stage, Step int
	}
	require.NoError(t, w.DB.SelectContext(t.Context(), &lines, `
SELECT h.operation_id::text AS id, r.definition, h.cursor, h.stage, h.step FROM orchestrator.history h JOIN orchestrator.requests r ON r.operation_id = h.operation_id
WHERE h.stage >= 0`))
	type at struct {
		id     string
		cursor int64
	}
	names, provisions := map[at]string{}, map[string]bool{}
	for _, l := range lines {
		p := definitions[l.Definition]
		names[at{l.ID, int64(l.Cursor)}] = p.Stages[l.Stage].Steps[l.Step].Name
		if p.Operation == event.Provision {
			provisions[l.Definition] = true
		}
	}
	checked := 0
	history.EachFact(t, w.JS, "keb.fact.*.step-finished", func(m jetstream.Msg) {
		var f event.StepFinished
		require.NoError(t, json.Unmarshal(m.Data(), &f))
		if want, ok := names[at{f.OperationID, f.Cursor}]; ok && want != f.Step {
			t.Errorf("operation %s ran %s at cursor %d, where its definition has %s", f.OperationID, f.Step, f.Cursor, want)
		} else if ok {
			checked++
		}
	})
	if v.Facts == 0 || checked == 0 || len(provisions) < 2 {
		t.Errorf("%d facts, %d steps and %d definitions of provisionings to check, want some, some and 2", v.Facts, checked, len(provisions))
	}
	fmt.Printf("transitions %d with %d facts, steps compared with the definition of their operation %d, definitions of provisionings %d, violations %d\n",
		v.Transitions, v.Facts, checked, len(provisions), len(v.Violations))
}

func table(out io.Writer, results []result) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ROLL\tTOOK\tKILLED\tACCEPTED\tSUCCEEDED\tFAILED\tLOST\tDOUBLED\tMISSING\tLATE\tSTEPS BY RELEASE\tBY TREE\tKEPT DEFINITION\tLONGEST STALL\tSLOWEST\tDEAD\tEXITS\tBINDINGS\tREQUESTS REFUSED")
	for _, r := range results {
		fmt.Fprintf(w, "%s\t%.0f s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.1f s\t%.1f s\t%d\t%d\t%d\t%s\n", r.Fault, r.took.Seconds(), r.killed, r.Accepted, r.Succeeded, r.Failed, r.Lost,
			r.Doubled, r.Missing, r.Late, r.byOld, r.byHead, r.kept, r.Stall.Seconds(), r.Slowest.Seconds(), r.Dead, r.Exits, r.Binds, r.Refusals)
	}
	_ = w.Flush() // to a terminal or a file
}
