//go:build linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/internal/installation"
	"github.com/kyma-project/keb/test/internal/lossyfs"
)

const (
	seedVariable = "KEB_CLUSTER_SEED"
	servers      = 3
	// syncTime is how long a disk takes for a flush.
	syncTime = time.Millisecond
)

// result is the result of a phase.
type result struct {
	installation.Row
	acked, lost int           // messages of the probe that the bus acknowledged, and those of them that it no longer has
	whole       time.Duration // from the end of the fault until each stream and consumer has all replicas
}

// world is an installation with a cluster, on disks that lose what was not synced.
type world struct {
	*installation.World
	rnd     *rand.Rand
	disks   map[string]*lossyfs.FS // by server
	system  *nats.Conn             // of the system account
	renamed int                    // servers that got a new name
}

func TestCluster(t *testing.T) {
	testkit.Suite(t, "cluster")
	seed := testkit.Number(t, seedVariable, uint64(time.Now().UnixNano()%1_000_000), 0)
	t.Logf("%s=%d", seedVariable, seed)
	w := &world{rnd: rand.New(rand.NewPCG(seed, 0))}
	var mount func(name, dir string) bool
	w.disks, mount = installation.LossyDisks(t, func(name string) *lossyfs.Config {
		if name == installation.DiskPostgres {
			return nil
		}
		return &lossyfs.Config{Strict: true, SyncTime: syncTime}
	})
	w.World = installation.New(t, installation.Config{Name: "cluster", Servers: servers, Env: installation.AVSLookUp(), Disk: mount})
	w.system = w.Connect(installation.SystemUser, w.Servers...)
	defer w.system.Close()
	l := installation.NewLoad(w.World, w.rnd)
	var results []result
	t.Cleanup(func() {
		fmt.Printf("\n%s=%d\n", seedVariable, seed)
		table(os.Stdout, results)
	})
	for _, f := range faults() {
		// Draw even if the phase is skipped, so that one phase can be repeated alone.
		victims := w.rnd.Perm(servers)
		rnd := rand.New(rand.NewPCG(w.rnd.Uint64(), 0))
		t.Run(f.name, func(t *testing.T) {
			r := result{}
			r.Row = w.Phase(t, l, installation.Fault{Name: f.name, Do: func() { w.inject(&r, f, victims, rnd) }})
			results = append(results, r)
		})
	}
	w.Settle()
	t.Run("history", w.CheckHistory)
}

// inject injects a fault while the probe publishes, and waits until the cluster is whole.
func (w *world) inject(r *result, f fault, order []int, rnd *rand.Rand) {
	names := make([]string, servers)
	for i, n := range order {
		names[i] = w.Servers[n]
	}
	p := w.startProbe()
	w.Pass(2 * time.Second)
	f.do(w, &victims{a: names[0], b: names[1], c: names[2], rnd: rnd})
	start := time.Now()
	w.awaitWhole()
	r.whole = time.Since(start)
	r.acked, r.lost = p.end()
	w.T.Logf("%s: whole after %.1f s; %d of %d acknowledged messages of the probe are lost", f.name, r.whole.Seconds(), r.lost, r.acked)
}

// awaitWhole waits until every stream and consumer has a leader and two up-to-date followers.
func (w *world) awaitWhole() {
	w.T.Helper()
	limit := time.Now().Add(installation.WaitLimit)
	for problem := w.incomplete(); problem != ""; problem = w.incomplete() {
		if time.Now().After(limit) {
			w.T.Errorf("the cluster is not whole after %s: %s", installation.WaitLimit, problem)
			return
		}
		w.Pass(200 * time.Millisecond)
	}
}

// incomplete returns what is missing; empty if nothing is.
func (w *world) incomplete() string {
	ctx, cancel := context.WithTimeout(w.T.Context(), 10*time.Second)
	defer cancel()
	names := []string{"KV_" + event.StageBucket}
	for _, spec := range event.Streams() {
		names = append(names, string(spec.Name))
	}
	for _, name := range names {
		s, err := w.JS.Stream(ctx, name)
		if err != nil {
			return fmt.Sprintf("stream %s: %v", name, err)
		}
		if problem := incomplete(s.CachedInfo().Cluster); problem != "" {
			return fmt.Sprintf("stream %s: %s", name, problem)
		}
		list := s.ListConsumers(ctx)
		for c := range list.Info() {
			if problem := incomplete(c.Cluster); problem != "" {
				return fmt.Sprintf("consumer %s of stream %s: %s", c.Name, name, problem)
			}
		}
		if err := list.Err(); err != nil {
			return fmt.Sprintf("consumers of stream %s: %v", name, err)
		}
	}
	return ""
}

func incomplete(c *jetstream.ClusterInfo) string {
	if c == nil || c.Leader == "" {
		return "no leader"
	}
	if len(c.Replicas) != servers-1 {
		return fmt.Sprintf("%d followers", len(c.Replicas))
	}
	for _, r := range c.Replicas {
		if !r.Current || r.Offline {
			return fmt.Sprintf("%s lags by %d or is offline (%t)", r.Name, r.Lag, r.Offline)
		}
	}
	return ""
}

// leader returns the server that leads the stream of commands.
func (w *world) leader() (name string) {
	w.T.Helper()
	w.Await("a leader of the commands", func() bool {
		s, err := w.JS.Stream(w.T.Context(), string(event.StreamCommands))
		if err != nil || s.CachedInfo().Cluster == nil {
			return false
		}
		i := slices.IndexFunc(w.Servers, func(server string) bool { return strings.HasPrefix(s.CachedInfo().Cluster.Leader, server) })
		if i >= 0 {
			name = w.Servers[i]
		}
		return i >= 0
	})
	return name
}

// probeStream is a stream of the suite that is as those of KEB.
const probeStream = "PROBE"

// probe publishes numbered messages through each server.
type probe struct {
	w     *world
	stop  context.CancelFunc
	acked chan []string // of one server
}

func (w *world) startProbe() *probe {
	w.T.Helper()
	w.Await("the stream of the probe", func() bool {
		if err := w.JS.DeleteStream(w.T.Context(), probeStream); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return false
		}
		_, err := w.JS.CreateStream(w.T.Context(), jetstream.StreamConfig{Name: probeStream, Subjects: []string{"probe"}, Replicas: servers})
		return err == nil
	})
	ctx, stop := context.WithCancel(w.T.Context())
	p := &probe{w: w, stop: stop, acked: make(chan []string, servers)}
	for _, name := range w.Servers {
		nc := w.Connect(installation.AdminUser, name)
		js, err := jetstream.New(nc)
		require.NoError(w.T, err)
		go func() {
			defer nc.Close()
			p.acked <- publish(ctx, js, name)
		}()
	}
	return p
}

// publish publishes until ctx ends, and returns what was acknowledged.
func publish(ctx context.Context, js jetstream.JetStream, server string) (acked []string) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return acked
		case <-tick.C:
		}
		id := fmt.Sprintf("%s %d", server, n)
		once, cancel := context.WithTimeout(ctx, time.Second)
		if _, err := js.Publish(once, "probe", []byte(id)); err == nil {
			acked = append(acked, id)
		}
		cancel()
	}
}

// end returns the number of acknowledged messages, and of those that the stream no longer has.
func (p *probe) end() (acked, lost int) {
	p.w.T.Helper()
	p.stop()
	missing := map[string]bool{}
	for range servers {
		for _, id := range <-p.acked {
			missing[id] = true
		}
	}
	acked = len(missing)
	p.w.Await("the messages of the probe", func() bool {
		s, err := p.w.JS.Stream(p.w.T.Context(), probeStream)
		if err != nil {
			return errors.Is(err, jetstream.ErrStreamNotFound)
		}
		c, err := s.CreateConsumer(p.w.T.Context(), jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1})
		if err != nil {
			return false
		}
		for left := 1; left > 0; {
			batch, err := c.Fetch(1000, jetstream.FetchMaxWait(time.Second))
			if err != nil {
				return false
			}
			left = 0
			for m := range batch.Messages() {
				delete(missing, string(m.Data()))
				left++
			}
			if batch.Error() != nil {
				return false
			}
		}
		return true
	})
	return acked, len(missing)
}

func table(out io.Writer, results []result) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "FAULT\tACCEPTED\tSUCCEEDED\tFAILED\tLOST\tDOUBLED\tMISSING\tREPLACED\tLATE\tLONGEST STALL\tSLOWEST\tWHOLE AFTER\tSENT AGAIN\tDEAD\tEXITS\tBUS LOST\tREQUESTS REFUSED")
	all := result{Row: installation.Row{Fault: "all", Refusals: "-"}}
	for _, r := range results {
		all.Add(r.Row)
		all.acked += r.acked
		all.lost += r.lost
		all.whole = max(all.whole, r.whole)
	}
	for _, r := range append(results, all) {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.1f s\t%.1f s\t%.1f s\t%d\t%d\t%d\t%d of %d\t%s\n", r.Fault, r.Accepted, r.Succeeded, r.Failed, r.Lost, r.Doubled, r.Missing,
			r.Replaced, r.Late, r.Stall.Seconds(), r.Slowest.Seconds(), r.whole.Seconds(), r.SentAgain, r.Dead, r.Exits, r.lost, r.acked, r.Refusals)
	}
	_ = w.Flush() // to a terminal or a file
}
