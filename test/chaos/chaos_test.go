//go:build linux

package chaos

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/internal/installation"
	"github.com/kyma-project/keb/test/internal/lossyfs"
)

const (
	seedVariable = "KEB_CHAOS_SEED"
	// combinations is the number of random combinations of faults at the end.
	combinations = 3
)

// syncTime is how long a disk takes for a flush.
const syncTime = time.Millisecond

// world is an installation on disks that can be filled, and that lose what was not synced when their power is cut.
type world struct {
	*installation.World
	rnd   *rand.Rand
	disks map[string]*lossyfs.FS
}

// random returns the random numbers of a seed.
func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

func newWorld(t *testing.T, name string, seed uint64) *world {
	t.Helper()
	w := &world{rnd: random(seed)}
	var mount func(name, dir string) bool
	w.disks, mount = installation.LossyDisks(t, func(name string) *lossyfs.Config {
		// Postgres never syncs the folder of a new table: it relies on ext4 and XFS, which keep the name of a file that is synced.
		return &lossyfs.Config{Strict: name != installation.DiskPostgres, SyncTime: syncTime}
	})
	w.World = installation.New(t, installation.Config{
		Name: name, Disk: mount,
		// So many pages are written before they are synced, and the log is short.
		Settings: map[string]string{"checkpoint_timeout": "30s", "max_wal_size": "128MB"},
		// A step whose result the bus has lost runs again. The known contract of AvS has no call that finds the evaluation of the first execution
		// (docs/contracts/avs.md#calls), so that a second one would be created.
		Env: installation.AVSLookUp(),
	})
	return w
}

func TestChaos(t *testing.T) {
	testkit.Suite(t, "chaos")
	seed := testkit.Number(t, seedVariable, uint64(time.Now().UnixNano()%1_000_000), 0)
	t.Logf("%s=%d", seedVariable, seed)
	w := newWorld(t, "chaos", seed)
	l := installation.NewLoad(w.World, w.rnd)
	var rows []installation.Row
	t.Cleanup(func() {
		fmt.Printf("\n%s=%d\n", seedVariable, seed)
		installation.Table(os.Stdout, rows)
	})
	all := faults()
	for _, f := range all {
		t.Run(f.name, func(t *testing.T) { rows = append(rows, w.Phase(t, l, f.of(w))) })
	}
	for i := range combinations {
		// Draw even if the phase is skipped, so that one phase can be repeated alone.
		a, b := w.rnd.IntN(len(all)-1)+1, w.rnd.IntN(len(all)-1)+1
		both := fault{name: fmt.Sprintf("combination %d", i+1), do: func(w *world) {
			all[a].do(w)
			all[b].do(w)
		}}
		t.Run(both.name, func(t *testing.T) {
			t.Logf("%s, then immediately %s", all[a].name, all[b].name)
			r := w.Phase(t, l, both.of(w))
			r.Fault = all[a].name + " + " + all[b].name
			rows = append(rows, r)
		})
	}
	w.Settle()
	t.Run("history", w.CheckHistory)
}
