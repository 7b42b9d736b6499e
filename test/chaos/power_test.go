//go:build linux

package chaos

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/internal/installation"
	"github.com/kyma-project/keb/test/internal/lossyfs"
)

const (
	cutsVariable = "KEB_POWER_CUTS"
	defaultCuts  = 90
	// maxCutsOfPhase is the highest number of cuts until all accepted operations must have ended and the external systems are counted.
	maxCutsOfPhase = 10
	// calm is the longest time between two cuts, after operations have moved again.
	calm = 3 * time.Second
	// moveLimit is the time limit for operations to move again after a cut.
	moveLimit = 2 * time.Minute
)

// powerCut is a kind of power cut. It stops the file systems at one moment and kills the processes; then all of them start again, and must
// recover without help. The simulated external systems keep running: they know what was ordered and created.
type powerCut struct {
	name string
	// postgres, nats and rest lose their power; rest are brokers, orchestrators and workers.
	postgres, nats, rest bool
	damage               lossyfs.Damage
}

func powerCuts() []powerCut {
	torn := func(border int64) lossyfs.Damage { return lossyfs.Damage{Tear: border} }
	flipped := lossyfs.Damage{Tear: 512, Flip: appended}
	written := lossyfs.Damage{Survive: 0.5, Tear: 512, Flip: appended}
	return []powerCut{
		{name: "Postgres", postgres: true},
		{name: "NATS", nats: true},
		{name: "Postgres and NATS", postgres: true, nats: true},
		{name: "whole machine", postgres: true, nats: true, rest: true},
		{name: "Postgres, torn at 512 bytes", postgres: true, damage: torn(512)},
		{name: "NATS, torn and bits flipped", nats: true, damage: flipped},
		{name: "whole machine, torn at 4 KiB", postgres: true, nats: true, rest: true, damage: torn(4096)},
		{name: "Postgres and NATS, torn and bits flipped", postgres: true, nats: true, damage: flipped},
		{name: "whole machine, half of the pages written", postgres: true, nats: true, rest: true, damage: written},
	}
}

// appended reports whether a file may have flipped bits in a torn write: those with checksums, to which is only appended. Postgres relies on
// unsynced pages of tables to be old or new, sector by sector.
func appended(file string) bool {
	return strings.Contains(file, "/pg_wal/") || path.Ext(file) == ".blk"
}

// cutResult is what the cuts of a kind did.
type cutResult struct {
	kind string
	cuts int
	installation.Row
	loss     lossyfs.Loss
	messages uint64
}

func TestPower(t *testing.T) {
	testkit.Suite(t, "power")
	seed, cuts := testkit.Number(t, seedVariable, uint64(time.Now().UnixNano()%1_000_000), 0), int(testkit.Number(t, cutsVariable, defaultCuts, 1))
	t.Logf("%s=%d %s=%d", seedVariable, seed, cutsVariable, cuts)
	w := newWorld(t, "power", seed)
	w.checkSettings()
	l := installation.NewLoad(w.World, w.rnd)
	results := map[string]*cutResult{}
	var order []*cutResult
	t.Cleanup(func() {
		fmt.Printf("\n%s=%d %s=%d\n", seedVariable, seed, cutsVariable, cuts)
		cutTable(os.Stdout, order)
		for name, disk := range w.disks {
			fmt.Printf("disk of %s: %+v\n", name, disk.Stats())
		}
	})
	all := powerCuts()
	cutsOfPhase := min(max(cuts/len(all), 1), maxCutsOfPhase)
	for phase := 0; phase*cutsOfPhase < cuts; phase++ {
		k, n := all[phase%len(all)], min(cuts-phase*cutsOfPhase, cutsOfPhase)
		t.Run(fmt.Sprintf("%d %s", phase+1, k.name), func(t *testing.T) {
			r := results[k.name]
			if r == nil {
				r = &cutResult{kind: k.name}
				results[k.name], order = r, append(order, r)
			}
			row := w.Phase(t, l, installation.Fault{Name: fmt.Sprintf("%d cuts: %s", n, k.name), Do: func() {
				for range n {
					w.cut(k, r)
				}
			}})
			r.Add(row)
		})
	}
	w.Settle()
	t.Run("history", w.CheckHistory)
}

// checkSettings checks that Postgres keeps what it acknowledges, and that NATS is configured as it is deployed.
func (w *world) checkSettings() {
	w.T.Helper()
	for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		var value string
		require.NoError(w.T, w.DB.GetContext(w.T.Context(), &value, "SELECT current_setting($1)", name))
		if value != "on" {
			w.T.Fatalf("Postgres runs with %s=%s", name, value)
		}
	}
}

// cut cuts the power after a random time under load, starts everything again, and waits until operations move. One cut in five comes
// without that wait, so that it hits the recovery from the one before.
func (w *world) cut(k powerCut, r *cutResult) {
	w.T.Helper()
	hasty, written := w.rnd.IntN(5) == 0, w.rnd.IntN(2) == 0
	w.Pass(time.Duration(w.rnd.Int64N(int64(calm))))
	var disks []*lossyfs.FS
	var programs []string
	if k.postgres {
		disks = append(disks, w.disks[installation.DiskPostgres])
	}
	if k.nats {
		disks, programs = append(disks, w.disks[installation.DiskNATS]), append(programs, installation.ToNATS)
	}
	if k.rest {
		programs = append(programs, w.Names("broker-", "orchestrator-", "worker-")...)
	}
	if written {
		// The kernel writes everything from time to time. What NATS has lost afterwards is the end of its streams, and not all of them.
		for _, disk := range disks {
			disk.Sync()
		}
		w.Pass(time.Duration(w.rnd.Int64N(int64(calm))))
	}
	before, cursors := w.messages(), w.cursors()
	for name, n := range before {
		if strings.HasPrefix(name, string(event.StreamDead)) && n > 0 && w.Foreign == nil {
			w.T.Errorf("there are %d dead letters before the cut, want none", n)
		}
	}
	start := time.Now()
	var loss lossyfs.Loss
	for _, l := range lossyfs.Cut(k.damage, w.rnd, disks...) {
		loss.Add(l)
	}
	for _, name := range programs {
		w.Down[name] = true
		w.Programs[name].Signal(syscall.SIGKILL)
	}
	if k.postgres {
		w.SignalPostgres(syscall.SIGKILL)
	}
	for _, disk := range disks {
		disk.Release()
	}
	w.Take(programs...)
	if k.postgres {
		_ = w.Postgres.Stop(w.T.Context()) // it was killed; this closes its lock file
	}
	for _, disk := range disks {
		require.NoError(w.T, disk.Restore(w.T.Context()))
	}
	if k.postgres {
		w.RestartPostgres()
	}
	w.Bring(programs...)
	up := time.Since(start)
	r.cuts++
	r.loss.Add(loss)
	var lost uint64
	if k.nats {
		lost = before.lost(w.awaitMessages())
		r.messages += lost
	}
	if !hasty {
		w.awaitMoves(cursors)
	}
	moved := time.Since(start)
	w.T.Logf("cut %d of %s: written before %t; lost %+v and %d messages; started after %.1f s, operations move after %.1f s, next cut without a wait %t",
		r.cuts, k.name, written, loss, lost, up.Seconds(), moved.Seconds(), hasty)
}

// cursors returns the sum of the cursors of all operations, which grows with each transition; 0 if Postgres does not answer.
func (w *world) cursors() (sum int64) {
	ctx, cancel := context.WithTimeout(w.T.Context(), 2*time.Second)
	defer cancel()
	if err := w.DB.GetContext(ctx, &sum, `SELECT COALESCE(sum(cursor), 0) FROM orchestrator.operations`); err != nil {
		return 0
	}
	return sum
}

// awaitMoves waits until operations have moved.
func (w *world) awaitMoves(before int64) {
	w.T.Helper()
	for limit := time.Now().Add(moveLimit); w.cursors() <= before; w.Pass(100 * time.Millisecond) {
		if time.Now().After(limit) {
			w.T.Fatalf("no operation has moved within %s after a cut", moveLimit)
		}
	}
}

// streams are the last sequence numbers of the streams, by name and time of creation.
type streams map[string]uint64

// messages returns the state of all streams; those that do not answer are left out.
func (w *world) messages() streams {
	ctx, cancel := context.WithTimeout(w.T.Context(), 5*time.Second)
	defer cancel()
	found := streams{}
	for _, spec := range event.Streams() {
		s, err := w.JS.Stream(ctx, string(spec.Name))
		if err != nil {
			continue
		}
		info := s.CachedInfo()
		found[string(spec.Name)+" "+info.Created.String()] = info.State.LastSeq
	}
	return found
}

// awaitMessages waits until NATS answers, and returns the state of all streams. What was sent again by then hides as many lost messages.
func (w *world) awaitMessages() (found streams) {
	w.T.Helper()
	w.Await("NATS to answer after the cut", func() bool {
		ctx, cancel := context.WithTimeout(w.T.Context(), time.Second)
		defer cancel()
		if _, err := w.JS.AccountInfo(ctx); err != nil {
			return false
		}
		found = w.messages()
		return true
	})
	return found
}

// lost returns the number of messages that were in the streams and never will be again.
func (s streams) lost(after streams) (n uint64) {
	for name, last := range s {
		n += last - min(last, after[name])
	}
	return n
}

// cutTable prints the results by kind.
func cutTable(out io.Writer, results []*cutResult) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "POWER CUT\tCUTS\tACCEPTED\tSUCCEEDED\tFAILED\tLOST\tDOUBLED\tMISSING\tREPLACED\tLONGEST STALL\tSLOWEST\tDEAD\tSENT AGAIN\tEXITS\tBUS LOST\tFILES LOST\tKIB LOST\tENTRIES LOST\tTORN\tFLIPPED")
	all := &cutResult{kind: "all"}
	for _, r := range results {
		all.cuts += r.cuts
		all.messages += r.messages
		all.loss.Add(r.loss)
		all.Add(r.Row)
	}
	for _, r := range append(results, all) {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.1f s\t%.1f s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", r.kind, r.cuts, r.Accepted, r.Succeeded, r.Failed, r.Lost, r.Doubled,
			r.Missing, r.Replaced, r.Stall.Seconds(), r.Slowest.Seconds(), r.Dead, r.SentAgain, r.Exits, r.messages, r.loss.Files, r.loss.Bytes>>10, r.loss.Entries, r.loss.Torn, r.loss.Flipped)
	}
	_ = w.Flush() // to a terminal or a file
}
