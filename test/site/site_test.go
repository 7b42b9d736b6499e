//go:build linux

package site

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/test/internal/installation"
)

// siteGoal is the longest time from the loss of a site to the next transition of an operation, and until all services are ready at the other
// site.
const siteGoal = time.Minute

// refusals are those that clients may see: a broker that runs answers 503, without one there is no answer, and a repeated request whose first
// answer was lost gets 422 (ConcurrencyError) while its operation runs.
var refusals = regexp.MustCompile(`^(-|((422|503|no answer) x\d+(, )?)+)$`)

func TestSite(t *testing.T) {
	w, rounds := newWorld(t, "site")
	l := installation.NewLoad(w.World, w.rnd)
	var results []result
	t.Cleanup(func() { table(os.Stdout, results) })
	for round := range rounds {
		t.Run(fmt.Sprint(round+1), func(t *testing.T) {
			r := result{}
			r.Row = w.Phase(t, l, installation.Fault{Name: "site with " + w.Primary.Name, Do: func() { w.loseSite(&r) }})
			if !refusals.MatchString(r.Refusals) {
				t.Errorf("clients saw %s, want only 422, 503 and no answer", r.Refusals)
			}
			results = append(results, r)
		})
	}
	w.Settle()
	t.Run("history", w.CheckHistory)
}

// loseSite kills everything but the standby, and does at the other site what docs/production.md says. Then the Postgres server that was lost
// becomes the standby. The processes of both sites have the same addresses, which stand for a load balancer.
func (w *world) loseSite(r *result) {
	old := w.Primary
	w.probe()
	start := time.Now()
	services := []string{"broker-", "orchestrator-", "worker-", installation.ToNATS}
	w.Take(services...)
	w.Kill(old)
	w.Pass(time.Duration(w.rnd.Int64N(int64(longestDetection))))
	// The other site has a NATS of its own, without any message of the lost one.
	require.NoError(w.T, os.RemoveAll(filepath.Join(w.Dir, installation.DiskNATS, "jetstream")))
	promoted := w.promote(r, siteGoal, start, func() { w.Bring(services...) })
	defer func() { _ = promoted.Close() }()
	w.checkProbes(promoted)
	w.Start(old) // pg_rewind needs a server that was shut down
	w.Rejoin()
}
