//go:build linux

package site

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/internal/installation"
)

const (
	seedVariable   = "KEB_SITE_SEED"
	roundsVariable = "KEB_SITE_ROUNDS"
	defaultRounds  = 6
	// goal is the longest time from the promotion to the next transition of an operation, and until all services are ready.
	goal = 10 * time.Second
	// longestDetection limits the time between the loss of the primary and the promotion.
	longestDetection = 4 * time.Second
	// hang is the time for which a commit on the old primary must stay without an answer.
	hang = 2 * time.Second
)

// loss is a way to lose the primary.
type loss struct {
	name string
	// lose makes the primary unavailable, and comeBack undoes that without pg_rewind, as a careless supervisor would.
	lose, comeBack func(w *world, n *installation.Node)
}

func losses() []loss {
	return []loss{
		{
			name:     "killed",
			lose:     func(w *world, n *installation.Node) { w.Kill(n) },
			comeBack: func(w *world, n *installation.Node) { w.Start(n) },
		},
		{
			name:     "frozen",
			lose:     func(_ *world, n *installation.Node) { n.Signal(syscall.SIGSTOP) },
			comeBack: func(_ *world, n *installation.Node) { n.Signal(syscall.SIGCONT) },
		},
		{
			name:     "cut off",
			lose:     (*world).cut,
			comeBack: (*world).restore,
		},
	}
}

// result is the result of one fail-over.
type result struct {
	installation.Row
	writable, moved, ready time.Duration // since the promotion, or the loss of the site
	kept                   bool          // the old primary kept a commit that it had not acknowledged
}

// world is an installation with a standby.
type world struct {
	*installation.World
	rnd *rand.Rand
	// written is the number of the last row of the test in the table probes.
	written int
}

// newWorld starts an installation with a standby, and returns the number of rounds.
func newWorld(t *testing.T, name string) (w *world, rounds int) {
	t.Helper()
	testkit.Suite(t, "site")
	seed, rounds := testkit.Number(t, seedVariable, uint64(time.Now().UnixNano()%1_000_000), 0), int(testkit.Number(t, roundsVariable, defaultRounds, 1))
	t.Logf("%s=%d %s=%d", seedVariable, seed, roundsVariable, rounds)
	w = &world{rnd: rand.New(rand.NewPCG(seed, 0))}
	w.World = installation.New(t, installation.Config{
		Name: name, Standby: true, Env: installation.AVSLookUp(),
		// The standby has flushed each commit (on), and pg_rewind needs to find changed pages.
		Settings: map[string]string{"synchronous_commit": "on", "wal_log_hints": "on", "wal_keep_size": "512MB"},
	})
	_, err := w.DB.ExecContext(t.Context(), `CREATE TABLE probes (n int PRIMARY KEY)`)
	require.NoError(t, err)
	t.Cleanup(func() { fmt.Printf("\n%s=%d\n", seedVariable, seed) })
	return w, rounds
}

func TestStandby(t *testing.T) {
	w, rounds := newWorld(t, "standby")
	l := installation.NewLoad(w.World, w.rnd)
	var results []result
	t.Cleanup(func() { table(os.Stdout, results) })
	var order []loss
	for round := range rounds {
		if len(order) == 0 {
			order = losses()
			w.rnd.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		}
		next := order[0]
		order = order[1:]
		t.Run(fmt.Sprintf("%d %s", round+1, next.name), func(t *testing.T) {
			r := result{}
			name := w.Primary.Name + " " + next.name
			r.Row = w.Phase(t, l, installation.Fault{Name: name, Do: func() { w.failOver(&r, next) }})
			results = append(results, r)
		})
	}
	w.Settle()
	t.Run("history", w.CheckHistory)
}

// failOver loses the primary, promotes the standby, lets the old primary come back as a second one, and then makes it the new standby.
func (w *world) failOver(r *result, l loss) {
	old := w.Primary
	w.probe()
	l.lose(w, old)
	w.Pass(time.Duration(w.rnd.Int64N(int64(longestDetection))))

	promoted := w.promote(r, goal, time.Now())
	defer func() { _ = promoted.Close() }()
	l.comeBack(w, old)
	r.kept = w.checkSplit(old, promoted)
	w.checkProbes(promoted)
	w.Rejoin()
}

// probe writes one row, which every promoted server must have.
func (w *world) probe() {
	w.T.Helper()
	w.written++
	_, err := w.DB.ExecContext(w.T.Context(), `INSERT INTO probes VALUES ($1)`, w.written)
	require.NoError(w.T, err)
}

// promote promotes the standby, runs the functions after that, and waits until operations go on and all services are ready. That must be
// within limit from start. The caller closes the pool of the promoted server.
func (w *world) promote(r *result, limit time.Duration, start time.Time, then ...func()) (promoted *sqlx.DB) {
	w.T.Helper()
	w.Promote()
	promoted = w.Open(w.Primary.Server.URL("keb"), "promoted")
	r.writable = time.Since(start)
	before, err := w.cursors(promoted)
	require.NoError(w.T, err)
	for _, f := range then {
		f()
	}
	w.Await("transitions after the promotion, and ready services", func() bool {
		w.Pass(0)
		if now, err := w.cursors(promoted); err == nil && r.moved == 0 && now != before {
			r.moved = time.Since(start)
		}
		if r.ready == 0 && w.IsReady(w.T.Context()) {
			r.ready = time.Since(start)
		}
		return r.moved > 0 && r.ready > 0
	})
	if r.moved > limit || r.ready > limit {
		w.T.Errorf("%.1f s until the first transition, %.1f s until all services were ready; want at most %s", r.moved.Seconds(), r.ready.Seconds(), limit)
	}
	return promoted
}

// checkSplit checks that the old primary, which runs again and accepts sessions that write, acknowledges nothing, and that no service uses it. It reports
// whether a commit remained there.
func (w *world) checkSplit(old *installation.Node, promoted *sqlx.DB) (kept bool) {
	w.T.Helper()
	// A new process must find the promoted server, too.
	w.Killed(0, "broker-0", "orchestrator-0")
	db := w.Open(old.Server.URL("keb"), "split")
	defer func() { _ = db.Close() }()
	var standby bool
	if err := db.GetContext(w.T.Context(), &standby, `SELECT pg_is_in_recovery()`); err != nil || standby {
		w.T.Errorf("the old primary %s does not run as a primary: %v", old.Name, err)
	}
	ctx, cancel := context.WithTimeout(w.T.Context(), hang)
	defer cancel()
	if _, err := db.ExecContext(ctx, `INSERT INTO probes VALUES ($1)`, -w.written); err == nil {
		w.T.Errorf("the old primary %s acknowledges a commit that the promoted server lacks", old.Name)
	}
	w.Pass(time.Second)
	var rows int
	if err := db.GetContext(w.T.Context(), &rows, `SELECT count(*) FROM probes WHERE n = $1`, -w.written); err != nil {
		w.T.Error(err)
	}
	w.Await("the restarted processes to be ready", func() bool { w.Pass(0); return w.IsReady(w.T.Context()) })
	w.Await("the services to leave the old primary", func() bool {
		w.Pass(0)
		return w.sessions(db) == 0
	})
	if w.sessions(promoted) == 0 {
		w.T.Error("the services have no session on the promoted server")
	}
	return rows > 0
}

// sessions returns the number of sessions of the services on a server. A session that waits for the standby does not notice that its client has gone,
// and is left out.
func (w *world) sessions(db *sqlx.DB) (n int) {
	w.T.Helper()
	err := db.GetContext(w.T.Context(), &n, `SELECT count(*) FROM pg_stat_activity WHERE usename IN ('broker', 'orchestrator') AND wait_event IS DISTINCT FROM 'SyncRep'`)
	require.NoError(w.T, err)
	return n
}

// checkProbes checks that the promoted server has every acknowledged row of the test, and no other one. The next round checks the rewound server, which it
// promotes.
func (w *world) checkProbes(promoted *sqlx.DB) {
	w.T.Helper()
	var found []int
	if err := promoted.SelectContext(w.T.Context(), &found, `SELECT n FROM probes ORDER BY n`); err != nil {
		w.T.Error(err)
	}
	if len(found) != w.written || found[0] != 1 || found[len(found)-1] != w.written {
		w.T.Errorf("%s has the rows %v, want 1 to %d", w.Primary.Name, found, w.written)
	}
}

// cursors returns the sum of the cursors, which increases with each transition of an operation.
func (w *world) cursors(db *sqlx.DB) (sum int64, err error) {
	ctx, cancel := context.WithTimeout(w.T.Context(), time.Second)
	defer cancel()
	err = db.GetContext(ctx, &sum, `SELECT COALESCE(sum(cursor), 0) FROM orchestrator.operations`)
	return sum, err
}

// cut closes the connections of all services to a server, and rejects new ones.
func (w *world) cut(n *installation.Node) {
	for name, p := range w.Proxies {
		if strings.HasSuffix(name, " "+n.Name) {
			p.Stop()
		}
	}
}

// restore ends a cut.
func (w *world) restore(n *installation.Node) {
	for name, p := range w.Proxies {
		if strings.HasSuffix(name, " "+n.Name) {
			require.NoErrorf(w.T, p.Start(), "proxy %s", name)
		}
	}
}

func table(out io.Writer, results []result) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PRIMARY\tACCEPTED\tSUCCEEDED\tFAILED\tLOST\tDOUBLED\tMISSING\tWRITABLE\tFIRST TRANSITION\tALL READY\tLONGEST STALL\tSLOWEST\tEXITS\tLEFT ON OLD\tREQUESTS REFUSED")
	for _, r := range results {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%.1f s\t%.1f s\t%.1f s\t%.1f s\t%.1f s\t%d\t%t\t%s\n", r.Fault, r.Accepted, r.Succeeded, r.Failed, r.Lost, r.Doubled, r.Missing,
			r.writable.Seconds(), r.moved.Seconds(), r.ready.Seconds(), r.Stall.Seconds(), r.Slowest.Seconds(), r.Exits, r.kept, r.Refusals)
	}
	_ = w.Flush() // to a terminal or a file
}
