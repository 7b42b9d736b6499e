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
	partOfGrowth = 45 * time.Second
	// heldCost is how much more CPU time an operation may take while a transaction is held.
	heldCost = 1.1
)

func duration(t *testing.T) time.Duration {
	t.Helper()
	text := cmp.Or(os.Getenv(durationVariable), defaultDuration.String())
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		t.Fatalf("%s=%q: want a time above zero, such as 1h or 30m", durationVariable, text)
	}
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
	h.end(t)
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

// TestGrowth measures what an installation uses under load without faults, for an hour: nothing may grow but what is kept for longer. A second
// installation has a transaction that stays open, so that Postgres cannot remove old rows; its operations may cost a tenth more. Parts of the
// load run on both in turn, so that other work on the machine affects both.
func TestGrowth(t *testing.T) {
	testkit.Suite(t, "growth")
	seed, d := testkit.Number(t, seedVariable, uint64(time.Now().UnixNano()%1_000_000), 0), duration(t)
	t.Logf("%s=%d %s=%s", seedVariable, seed, durationVariable, d)
	free, held := newMeasured(t, "nothing held", seed), newMeasured(t, "transaction held", seed)
	tx := held.hold()
	for start := time.Now(); time.Since(start) < d && !t.Failed(); {
		free.part(t)
		held.part(t)
	}
	require.NoError(t, tx.Rollback())
	fmt.Printf("\n%s=%d %s=%s\n", seedVariable, seed, durationVariable, d)
	for _, m := range []*measured{free, held} {
		operations, cpu, provisioning := m.cost()
		fmt.Printf("%s: %d operations in %d parts; in the last third an operation needs %.0f ms of CPU time, and a provisioning takes %.2f s\n", m.name, operations, len(m.parts),
			1000*cpu, provisioning)
		installation.SlopeTable(os.Stdout, m.slopes())
	}
	for _, s := range free.slopes() {
		if kept[s.Name] == "" && s.Grows(20) {
			t.Errorf("%s grows from %.1f to %.1f", s.Name, s.First, s.Last)
		}
	}
	if found := free.notVacuumed(); len(found) > 0 {
		t.Errorf("autovacuum does not remove the dead rows of %+v", found)
	}
	if len(held.parts) > 1 && len(held.notVacuumed()) == 0 {
		t.Error("no table has too many dead rows, although a transaction is held: the check cannot fail")
	}
	_, cheap, _ := free.cost()
	if _, cpu, _ := held.cost(); cpu > heldCost*cheap {
		t.Errorf("an operation needs %.0f ms of CPU time, and %.0f ms while a transaction is held", 1000*cheap, 1000*cpu)
	}
}

// kept are the values that grow for longer than an hour, and why.
var kept = map[string]string{
	"rows of the archive":   "operations stay in the archive for two years",
	"postgres: database MB": "it has the archive",
	"nats: store MB":        "facts stay on the bus for seven days",
	"rows of the broker":    "it removes old rows once in an hour",
	"rows of operations":    followsLoad,
	"rows of the history":   followsLoad,
	"postgres: dead rows":   "autovacuum leaves more in larger tables; see notVacuumed",
}

const (
	followsLoad = "there are more rows if more operations were accepted before; see checkRows"
	// keepOperations is how long ended operations stay in the tables, so that these reach their size within the test, and archiveEvery how
	// often they are moved to the archive then.
	keepOperations, archiveEvery = 5 * time.Minute, 10 * time.Minute
)

// measured is an installation that is measured after each part of the load, when nothing runs.
type measured struct {
	*world
	name  string
	load  *installation.Load
	parts []part
}

// part has the results of a part, the usage after it, and the CPU seconds of all services with NATS and Postgres.
type part struct {
	installation.Row
	usage installation.Usage
	cpu   float64
}

func newMeasured(t *testing.T, name string, seed uint64) *measured {
	t.Helper()
	env := installation.AVSLookUp()
	keep := keepOperations.String()
	env["orchestrator"] = map[string]string{"KEB_OPERATIONS_KEEP": keep}
	env["broker"] = map[string]string{"KEB_BROKER_KEEP_OPERATIONS": keep, "KEB_BROKER_KEEP_TOMBSTONES": keep}
	m := &measured{name: name, world: &world{World: installation.New(t, installation.Config{Name: "growth", Env: env}), rnd: random(seed)}}
	m.load = installation.NewLoad(m.World, m.rnd)
	return m
}

// hold begins a transaction, and returns it after its first statement: Postgres keeps all rows that are deleted from now on.
func (m *measured) hold() *sqlx.Tx {
	m.T.Helper()
	tx, err := m.DB.BeginTxx(m.T.Context(), nil)
	require.NoError(m.T, err)
	_, err = tx.ExecContext(m.T.Context(), `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`)
	require.NoError(m.T, err)
	var n int
	require.NoError(m.T, tx.GetContext(m.T.Context(), &n, `SELECT count(*) FROM orchestrator.operations`))
	return tx
}

func (m *measured) part(t *testing.T) {
	t.Helper()
	t.Run(fmt.Sprintf("%s, part %d", m.name, len(m.parts)+1), func(t *testing.T) {
		before := m.Usage()
		row := m.Phase(t, m.load, installation.Fault{Name: m.name, Unwatched: true, Do: func() { m.Pass(partOfGrowth) }})
		p := part{Row: row, usage: m.Usage()}
		for role, seconds := range p.usage.CPU {
			p.cpu += seconds - before.CPU[role]
		}
		m.parts = append(m.parts, p)
		m.checkRows(t)
	})
}

// checkRows checks that the tables have no operation that ended before the last archiving (a part takes less than a minute), and adds to the
// usage of the last part how many other rows there are for a thousand operations.
func (m *measured) checkRows(t *testing.T) {
	t.Helper()
	last, accepted := m.parts[len(m.parts)-1].usage, 0
	for _, p := range m.parts {
		if last.At.Sub(p.usage.At) < keepOperations+archiveEvery+time.Minute {
			accepted += p.Accepted
		}
	}
	rows := last.Values["rows of operations"]
	if int(rows) > accepted {
		t.Errorf("%.0f rows of operations, but only %d were accepted since those that must be archived", rows, accepted)
	}
	for name, why := range kept {
		if why == followsLoad && name != "rows of operations" {
			last.Values[name+", for 1,000 operations"] = 1000 * last.Values[name] / rows
		}
	}
}

// notVacuumed returns the tables whose dead rows autovacuum has not removed between two parts.
func (m *measured) notVacuumed() (found []installation.DeadRows) {
	for i := 1; i < len(m.parts); i++ {
		found = append(found, installation.NotVacuumed(m.parts[i-1].usage, m.parts[i].usage)...)
	}
	return found
}

// slopes leaves out the first fifth, in which caches and pools fill.
func (m *measured) slopes() []installation.Slope {
	var usages []installation.Usage
	for _, p := range m.parts[len(m.parts)/5:] {
		usages = append(usages, p.usage)
	}
	return installation.Slopes(usages)
}

// cost returns the number of all operations, and what one costs in the last third: seconds of CPU time, and the median of provisionings.
func (m *measured) cost() (operations int, cpu, provisioning float64) {
	var took []float64
	last := 0
	for i, p := range m.parts {
		operations += p.Accepted
		if i >= 2*len(m.parts)/3 {
			last += p.Accepted
			cpu += p.cpu
			took = append(took, p.Provisioning.Seconds())
		}
	}
	slices.Sort(took)
	if last == 0 {
		return operations, 0, 0
	}
	return operations, cpu / float64(last), took[len(took)/2]
}
