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
)

const (
	seedVariable = "KEB_CHAOS_SEED"
	// combinations is the number of random combinations of faults at the end.
	combinations = 3
)

// diskSizes are the sizes of the disks that can be filled.
var diskSizes = map[string]string{installation.DiskNATS: "256m", installation.DiskPostgres: "1g"}

// world is an installation, and the disks in it that can be filled.
type world struct {
	*installation.World
	full map[string]bool
}

func TestChaos(t *testing.T) {
	testkit.Suite(t, "chaos")
	seed := testkit.Number(t, seedVariable, uint64(time.Now().UnixNano()%1_000_000), 0)
	t.Logf("%s=%d", seedVariable, seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	full := map[string]bool{}
	w := &world{full: full, World: installation.New(t, installation.Config{Name: "chaos", Env: installation.AVSLookUp(), Disk: func(name, dir string) bool {
		err := mount(dir, diskSizes[name])
		if err != nil {
			t.Logf("the disk of %s cannot be filled, so these faults are skipped: %v", name, err)
		}
		full[name] = err == nil
		return full[name]
	}})}
	l := installation.NewLoad(w.World, rnd)
	var rows []installation.Row
	t.Cleanup(func() {
		fmt.Printf("\n%s=%d\n", seedVariable, seed)
		installation.Table(os.Stdout, rows)
	})
	all := faults(w)
	for _, f := range all {
		t.Run(f.name, func(t *testing.T) { rows = append(rows, w.Phase(t, l, f.of(w))) })
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
			r := w.Phase(t, l, both.of(w))
			r.Fault = all[a].name + " + " + all[b].name
			rows = append(rows, r)
		})
	}
	w.Settle()
	t.Run("history", w.CheckHistory)
}
