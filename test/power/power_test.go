//go:build linux

package power

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
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
	seedVariable = "KEB_POWER_SEED"
	defaultCuts  = 90
	// maxCutsOfPhase is the highest number of cuts until all accepted operations must have ended and the external systems are counted.
	maxCutsOfPhase = 10
	// calm is the longest time between two cuts, after operations have moved again.
	calm = 3 * time.Second
	// moveLimit is the time limit for operations to move again after a cut.
	moveLimit = 2 * time.Minute
)

// kind is a kind of power cut.
type kind struct {
	name string
	// postgres, nats and rest lose their power; rest are brokers, orchestrators and workers.
	postgres, nats, rest bool
	damage               lossyfs.Damage
}

func kinds() []kind {
	torn := func(border int64) lossyfs.Damage { return lossyfs.Damage{Tear: border} }
	flipped := lossyfs.Damage{Tear: 512, Flip: appended}
	written := lossyfs.Damage{Survive: 0.5, Tear: 512, Flip: appended}
	return []kind{
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

// result is what the cuts of a kind did.
type result struct {
	kind string
	cuts int
	installation.Row
	loss     lossyfs.Loss
	messages uint64
}

// machine is an installation whose disks lose what was not synced.
type machine struct {
	*installation.World
	rnd   *rand.Rand
	disks map[string]*lossyfs.FS
}

func TestPower(t *testing.T) {
	testkit.Suite(t, "power")
	seed, cuts := testkit.Number(t, seedVariable, uint64(time.Now().UnixNano()%1_000_000), 0), int(testkit.Number(t, cutsVariable, defaultCuts, 1))
	t.Logf("%s=%d %s=%d", seedVariable, seed, cutsVariable, cuts)
	m := &machine{rnd: rand.New(rand.NewPCG(seed, 0))}
	var mount func(name, dir string) bool
	m.disks, mount = installation.LossyDisks(t, func(name string) *lossyfs.Config {
		// Postgres never syncs the folder of a new table: it relies on ext4 and XFS, which keep the name of a file that is synced.
		return &lossyfs.Config{Strict: name != installation.DiskPostgres, SyncTime: syncTime}
	})
	m.World = installation.New(t, installation.Config{
		Name: "power", Disk: mount,
		// So many pages are written before they are synced, and the log is short.
		Settings: map[string]string{"checkpoint_timeout": "30s", "max_wal_size": "128MB"},
		// A step whose result the bus has lost runs again. The known contract of AvS has no call that finds the evaluation of the first execution
		// (docs/contracts/avs.md#calls), so that a second one would be created.
		Env: installation.AVSLookUp(),
	})
	m.checkSettings()
	l := installation.NewLoad(m.World, m.rnd)
	results := map[string]*result{}
	var order []*result
	t.Cleanup(func() {
		fmt.Printf("\n%s=%d %s=%d\n", seedVariable, seed, cutsVariable, cuts)
		table(os.Stdout, order)
		for name, disk := range m.disks {
			fmt.Printf("disk of %s: %+v\n", name, disk.Stats())
		}
	})
	all := kinds()
	cutsOfPhase := min(max(cuts/len(all), 1), maxCutsOfPhase)
	for phase := 0; phase*cutsOfPhase < cuts; phase++ {
		k, n := all[phase%len(all)], min(cuts-phase*cutsOfPhase, cutsOfPhase)
		t.Run(fmt.Sprintf("%d %s", phase+1, k.name), func(t *testing.T) {
			r := results[k.name]
			if r == nil {
				r = &result{kind: k.name}
				results[k.name], order = r, append(order, r)
			}
			row := m.Phase(t, l, installation.Fault{Name: fmt.Sprintf("%d cuts: %s", n, k.name), Do: func() {
				for range n {
					m.cut(k, r)
				}
			}})
			r.Add(row)
		})
	}
	m.Settle()
	t.Run("history", m.CheckHistory)
}

// checkSettings checks that Postgres keeps what it acknowledges, and that NATS is configured as it is deployed.
func (m *machine) checkSettings() {
	m.T.Helper()
	for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		var value string
		require.NoError(m.T, m.DB.GetContext(m.T.Context(), &value, "SELECT current_setting($1)", name))
		if value != "on" {
			m.T.Fatalf("Postgres runs with %s=%s", name, value)
		}
	}
}

// cut cuts the power after a random time under load, starts everything again, and waits until operations move. One cut in five comes
// without that wait, so that it hits the recovery from the one before.
func (m *machine) cut(k kind, r *result) {
	m.T.Helper()
	hasty, written := m.rnd.IntN(5) == 0, m.rnd.IntN(2) == 0
	m.Pass(time.Duration(m.rnd.Int64N(int64(calm))))
	var disks []*lossyfs.FS
	var programs []string
	if k.postgres {
		disks = append(disks, m.disks[installation.DiskPostgres])
	}
	if k.nats {
		disks, programs = append(disks, m.disks[installation.DiskNATS]), append(programs, installation.ToNATS)
	}
	if k.rest {
		programs = append(programs, m.Names("broker-", "orchestrator-", "worker-")...)
	}
	if written {
		// The kernel writes everything from time to time. What NATS has lost afterwards is the end of its streams, and not all of them.
		for _, disk := range disks {
			disk.Sync()
		}
		m.Pass(time.Duration(m.rnd.Int64N(int64(calm))))
	}
	before, cursors := m.messages(), m.cursors()
	for name, n := range before {
		if strings.HasPrefix(name, string(event.StreamDead)) && n > 0 {
			m.T.Errorf("there are %d dead letters before the cut, want none", n)
		}
	}
	start := time.Now()
	var loss lossyfs.Loss
	for _, l := range lossyfs.Cut(k.damage, m.rnd, disks...) {
		loss.Add(l)
	}
	for _, name := range programs {
		m.Down[name] = true
		m.Programs[name].Signal(syscall.SIGKILL)
	}
	if k.postgres {
		m.SignalPostgres(syscall.SIGKILL)
	}
	for _, disk := range disks {
		disk.Release()
	}
	m.Take(programs...)
	if k.postgres {
		_ = m.Postgres.Stop(m.T.Context()) // it was killed; this closes its lock file
	}
	for _, disk := range disks {
		require.NoError(m.T, disk.Restore(m.T.Context()))
	}
	if k.postgres {
		m.RestartPostgres()
	}
	m.Bring(programs...)
	up := time.Since(start)
	r.cuts++
	r.loss.Add(loss)
	var lost uint64
	if k.nats {
		lost = before.lost(m.awaitMessages())
		r.messages += lost
	}
	if !hasty {
		m.awaitMoves(cursors)
	}
	moved := time.Since(start)
	m.T.Logf("cut %d of %s: written before %t; lost %+v and %d messages; started after %.1f s, operations move after %.1f s, next cut without a wait %t",
		r.cuts, k.name, written, loss, lost, up.Seconds(), moved.Seconds(), hasty)
}

// cursors returns the sum of the cursors of all operations, which grows with each transition; 0 if Postgres does not answer.
func (m *machine) cursors() (sum int64) {
	ctx, cancel := context.WithTimeout(m.T.Context(), 2*time.Second)
	defer cancel()
	if err := m.DB.GetContext(ctx, &sum, `SELECT COALESCE(sum(cursor), 0) FROM orchestrator.operations`); err != nil {
		return 0
	}
	return sum
}

// awaitMoves waits until operations have moved.
func (m *machine) awaitMoves(before int64) {
	m.T.Helper()
	for limit := time.Now().Add(moveLimit); m.cursors() <= before; m.Pass(100 * time.Millisecond) {
		if time.Now().After(limit) {
			m.T.Fatalf("no operation has moved within %s after a cut", moveLimit)
		}
	}
}

// streams are the last sequence numbers of the streams, by name and time of creation.
type streams map[string]uint64

// messages returns the state of all streams; those that do not answer are left out.
func (m *machine) messages() streams {
	ctx, cancel := context.WithTimeout(m.T.Context(), 5*time.Second)
	defer cancel()
	found := streams{}
	for _, spec := range event.Streams() {
		s, err := m.JS.Stream(ctx, string(spec.Name))
		if err != nil {
			continue
		}
		info := s.CachedInfo()
		found[string(spec.Name)+" "+info.Created.String()] = info.State.LastSeq
	}
	return found
}

// awaitMessages waits until NATS answers, and returns the state of all streams. What was sent again by then hides as many lost messages.
func (m *machine) awaitMessages() (found streams) {
	m.T.Helper()
	m.Await("NATS to answer after the cut", func() bool {
		ctx, cancel := context.WithTimeout(m.T.Context(), time.Second)
		defer cancel()
		if _, err := m.JS.AccountInfo(ctx); err != nil {
			return false
		}
		found = m.messages()
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

// table prints the results by kind.
func table(out io.Writer, results []*result) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "POWER CUT\tCUTS\tACCEPTED\tSUCCEEDED\tFAILED\tLOST\tDOUBLED\tMISSING\tREPLACED\tLONGEST STALL\tSLOWEST\tDEAD\tSENT AGAIN\tEXITS\tBUS LOST\tFILES LOST\tKIB LOST\tENTRIES LOST\tTORN\tFLIPPED")
	all := &result{kind: "all"}
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
