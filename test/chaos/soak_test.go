//go:build linux

package chaos

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/internal/installation"
)

const (
	durationVariable = "KEB_SOAK_FOR"
	defaultDuration  = time.Hour
	// mostFaults is the highest number of faults of a round, one immediately after the other.
	mostFaults = 3
	// partOfGrowth is the duration of a part of TestGrowth, after which all operations end and the installation is measured.
	partOfGrowth = 90 * time.Second
	// heldCost is how much more CPU time and how much longer an operation may take while a transaction is held.
	heldCost = 1.1
)

func duration(t *testing.T) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(cmp.Or(os.Getenv(durationVariable), defaultDuration.String()))
	require.NoError(t, err, durationVariable)
	return d
}

// TestFaults injects faults and power cuts in random order for an hour, in rounds of up to three, while hostile clients use the bus. After each
// round the runtimes must be those that the customers ordered, changed and deleted.
func TestFaults(t *testing.T) {
	testkit.Suite(t, "faults")
	seed, d := testkit.Number(t, seedVariable, uint64(time.Now().UnixNano()%1_000_000), 0), duration(t)
	t.Logf("%s=%d %s=%s", seedVariable, seed, durationVariable, d)
	w := newWorld(t, "faults", seed)
	w.checkSettings()
	l := installation.NewLoad(w.World, w.rnd)
	all := faults()
	for _, k := range powerCuts() {
		all = append(all, fault{name: "power cut: " + k.name, do: func(w *world) { w.cut(k, &cutResult{kind: k.name}) }})
	}
	h, stop := w.startHostile()
	rounds := map[string]*installation.Row{} // by fault
	total := installation.Row{Fault: "all rounds"}
	n := 0
	t.Cleanup(func() {
		stop()
		fmt.Printf("\n%s=%d %s=%s: %d rounds, hostile clients: %v\n", seedVariable, seed, durationVariable, d, n, h.acts)
		faultTable(os.Stdout, all, rounds, total)
	})
	for start := time.Now(); time.Since(start) < d && !t.Failed(); n++ {
		var chosen []fault
		for range 1 + w.rnd.IntN(mostFaults) {
			chosen = append(chosen, all[w.rnd.IntN(len(all)-1)+1])
		}
		names := make([]string, len(chosen))
		for i, f := range chosen {
			names[i] = f.name
		}
		t.Run(fmt.Sprintf("round %d", n+1), func(t *testing.T) {
			r := w.Phase(t, l, installation.Fault{Name: strings.Join(names, " + "), Upgrade: w.rnd.IntN(4) == 0, Do: func() {
				for _, f := range chosen {
					f.do(w)
				}
			}})
			h.report(t)
			total.Rounds++
			total.Add(r)
			slices.Sort(names)
			for _, name := range slices.Compact(names) {
				if rounds[name] == nil {
					rounds[name] = &installation.Row{}
				}
				rounds[name].Rounds++
				rounds[name].Add(r)
			}
		})
	}
	stop()
	w.Settle()
	t.Run("history", w.CheckHistory)
}

// faultTable prints the rounds that had a fault. A round with several faults counts for each, and once in the last row.
func faultTable(out io.Writer, all []fault, rounds map[string]*installation.Row, total installation.Row) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "FAULT\tROUNDS\tACCEPTED\tSUCCEEDED\tFAILED\tLOST\tDOUBLED\tMISSING\tREPLACED\tLATE\tLONGEST STALL\tSLOWEST\tSENT AGAIN\tDEAD\tEXITS\tBINDINGS")
	row := func(name string, r *installation.Row) {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.1f s\t%.1f s\t%d\t%d\t%d\t%d\n", name, r.Rounds, r.Accepted, r.Succeeded, r.Failed, r.Lost, r.Doubled, r.Missing,
			r.Replaced, r.Late, r.Stall.Seconds(), r.Slowest.Seconds(), r.SentAgain, r.Dead, r.Exits, r.Binds)
	}
	for _, f := range all {
		if r := rounds[f.name]; r != nil {
			row(f.name, r)
		}
	}
	row(total.Fault, &total)
	_ = w.Flush() // to a terminal or a file
}

// TestGrowth measures what an installation uses under load without faults, for an hour: nothing may grow but the archive. Then a transaction
// stays open for half that time, so that Postgres cannot remove old rows; operations may take a tenth more.
func TestGrowth(t *testing.T) {
	testkit.Suite(t, "growth")
	seed, d := testkit.Number(t, seedVariable, uint64(time.Now().UnixNano()%1_000_000), 0), duration(t)
	t.Logf("%s=%d %s=%s", seedVariable, seed, durationVariable, d)
	env := installation.AVSLookUp()
	// Ended operations leave the tables soon, so that these reach their size within the test.
	env["orchestrator"] = map[string]string{"KEB_OPERATIONS_KEEP": "5m"}
	env["broker"] = map[string]string{"KEB_BROKER_KEEP_OPERATIONS": "5m", "KEB_BROKER_KEEP_TOMBSTONES": "5m"}
	w := &world{World: installation.New(t, installation.Config{Name: "growth", Env: env}), rnd: random(seed)}
	l := installation.NewLoad(w.World, w.rnd)
	free, last := w.measure(t, l, "nothing held", d)
	slopes := installation.Slopes(last)
	fmt.Printf("\n%s=%d %s=%s, %d operations, %.0f ms of CPU time each, provisioning %.2f s\n", seedVariable, seed, durationVariable, d, free.operations, 1000*free.cpu, free.provisioning)
	installation.SlopeTable(os.Stdout, slopes)
	for _, s := range slopes {
		if s.Name != "rows of the archive" && s.Name != "postgres: database MB" && s.Grows(20) {
			t.Errorf("%s grows from %.1f to %.1f", s.Name, s.First, s.Last)
		}
	}
	tx := w.hold()
	held, last := w.measure(t, l, "transaction held", d/2)
	require.NoError(t, tx.Rollback())
	fmt.Printf("\nwith a transaction that is held for %s: %d operations, %.0f ms of CPU time each (%+.1f %%), provisioning %.2f s (%+.1f %%)\n", d/2, held.operations,
		1000*held.cpu, 100*(held.cpu/free.cpu-1), held.provisioning, 100*(held.provisioning/free.provisioning-1))
	installation.SlopeTable(os.Stdout, installation.Slopes(last))
	if held.cpu > heldCost*free.cpu {
		t.Errorf("an operation needs %.0f ms of CPU time, and %.0f ms while a transaction is held", 1000*free.cpu, 1000*held.cpu)
	}
}

// hold begins a transaction, and returns it after its first statement: Postgres keeps all rows that are deleted from now on.
func (w *world) hold() *sqlx.Tx {
	w.T.Helper()
	tx, err := w.DB.BeginTxx(w.T.Context(), nil)
	require.NoError(w.T, err)
	_, err = tx.ExecContext(w.T.Context(), `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`)
	require.NoError(w.T, err)
	var n int
	require.NoError(w.T, tx.GetContext(w.T.Context(), &n, `SELECT count(*) FROM orchestrator.operations`))
	return tx
}

// cost is what operations cost in the last third of a measurement.
type cost struct {
	operations        int
	cpu, provisioning float64 // seconds of an operation: of all services with NATS and Postgres, and the median of provisionings
}

// measure runs the load in parts, and measures the installation after each. The first fifth of the uses is left out: caches and pools fill.
func (w *world) measure(t *testing.T, l *installation.Load, name string, d time.Duration) (cost, []installation.Use) {
	t.Helper()
	uses := []installation.Use{w.Look()}
	var rows []installation.Row
	for start := time.Now(); time.Since(start) < d && !t.Failed(); {
		t.Run(fmt.Sprintf("%s, part %d", name, len(rows)+1), func(t *testing.T) {
			rows = append(rows, w.Phase(t, l, installation.Fault{Name: name, Do: func() { w.Pass(partOfGrowth) }}))
			uses = append(uses, w.Look())
		})
	}
	from := 2 * len(rows) / 3
	var c cost
	var took []float64
	for _, r := range rows[from:] {
		c.operations += r.Accepted
		took = append(took, r.Provisioning.Seconds())
	}
	for role, seconds := range uses[len(uses)-1].CPU {
		c.cpu += (seconds - uses[from].CPU[role]) / float64(c.operations)
	}
	slices.Sort(took)
	c.provisioning = took[len(took)/2]
	return c, uses[len(uses)/5:]
}
