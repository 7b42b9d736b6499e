//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/internal/harness"
	"github.com/kyma-project/keb/test/internal/installation"
)

const (
	// silence exceeds the acknowledgement timeout of the bus (10 s) and the time after which a worker counts as missing (6 s).
	silence = 14 * time.Second
	// outage is the duration of an outage.
	outage = 8 * time.Second
)

// fault is a fault and its repair.
type fault struct {
	name string
	do   func(w *world)
	// upgrade starts an upgrade of all runtimes during the fault.
	upgrade bool
	// harmless means that no message may be redelivered.
	harmless bool
}

func (f fault) of(w *world) installation.Fault {
	return installation.Fault{Name: f.name, Do: func() { f.do(w) }, Upgrade: f.upgrade, Harmless: f.harmless}
}

// faults returns all faults but power cuts. The first is none.
func faults() []fault {
	all := []fault{
		{name: "none", do: func(w *world) { w.Pass(outage) }, upgrade: true, harmless: true},
		{name: "orchestrators killed", do: func(w *world) { w.Killed(0, "orchestrator-") }, upgrade: true},
		{name: "orchestrators killed one after the other, six times", do: func(w *world) {
			for i := range 6 {
				w.Killed(0, fmt.Sprintf("orchestrator-%d", i%installation.Replicas))
				w.Pass(700 * time.Millisecond)
			}
		}},
		{name: "brokers killed one after the other", do: func(w *world) {
			for i := range installation.Replicas {
				w.Killed(2*time.Second, fmt.Sprintf("broker-%d", i))
			}
		}},
		{name: "a replica of each worker killed", do: func(w *world) { w.Killed(outage, w.replicasOf("worker-", 0)...) }},
		{name: "all workers down", do: func(w *world) {
			w.Take("worker-")
			w.awaitStuck()
			w.Bring("worker-")
		}},
		{name: "NATS killed", do: func(w *world) { w.Killed(0, installation.ToNATS) }},
		{name: "NATS away", do: func(w *world) { w.Killed(outage, installation.ToNATS) }},
		{name: "Postgres killed", do: func(w *world) { w.KillPostgres(0) }},
		{name: "Postgres away", do: func(w *world) { w.KillPostgres(outage) }},
		{name: "an orchestrator frozen", do: func(w *world) { w.frozen("orchestrator-0") }},
		{name: "all orchestrators frozen", do: func(w *world) { w.frozen("orchestrator-") }},
		{name: "a replica of each worker frozen", do: func(w *world) { w.frozen(w.replicasOf("worker-", 0)...) }},
		{name: "a broker frozen", do: func(w *world) { w.frozen("broker-0") }},
		{name: "NATS frozen", do: func(w *world) { w.frozen(installation.ToNATS) }},
		{name: "Postgres frozen", do: func(w *world) {
			w.SignalPostgres(syscall.SIGSTOP)
			w.Pass(silence)
			w.SignalPostgres(syscall.SIGCONT)
		}},
	}
	for _, way := range [][2]string{
		{"broker", installation.ToNATS}, {"broker", installation.ToPostgres}, {"orchestrator", installation.ToNATS}, {"orchestrator", installation.ToPostgres}, {"worker", installation.ToNATS}, {"worker", installation.ToLandscape},
	} {
		all = append(all, fault{name: way[0] + " cut from " + way[1], do: func(w *world) { w.Cut(outage, way[0], way[1]) }})
	}
	all = append(all,
		fault{name: "slow network everywhere", do: func(w *world) {
			w.toxic("", `{"name": "slow", "type": "latency", "stream": "%s", "attributes": {"latency": 150, "jitter": 100}}`, 12*time.Second, "upstream", "downstream")
		}},
		fault{name: "narrow network everywhere", do: func(w *world) {
			w.toxic("", `{"name": "narrow", "type": "bandwidth", "stream": "%s", "attributes": {"rate": 24}}`, 12*time.Second, "upstream", "downstream")
		}},
		fault{name: "messages from one replica of each are lost", do: func(w *world) {
			w.toxic("-0 ", `{"name": "half", "type": "timeout", "stream": "%s", "attributes": {"timeout": 0}}`, silence, "upstream")
		}},
		fault{name: "messages to one replica of each are lost", do: func(w *world) {
			w.toxic("-0 ", `{"name": "half", "type": "timeout", "stream": "%s", "attributes": {"timeout": 0}}`, silence, "downstream")
		}},
		fault{name: "store of JetStream deleted, NATS restarted", do: func(w *world) { w.loseStore(0, "jetstream") }},
		fault{name: "store of JetStream deleted while NATS is down", do: func(w *world) { w.loseStore(outage, "jetstream") }},
		fault{name: "store of JetStream deleted with all commands in it", do: func(w *world) {
			w.Take("worker-")
			w.Pass(2 * time.Second) // until every operation waits for a worker
			w.loseStore(0, "jetstream")
			w.Bring("worker-")
		}},
		fault{name: "streams of commands and results deleted by hand", do: func(w *world) { w.deleteStreams(event.StreamCommands, event.StreamResults) }},
		fault{name: "stream of requests deleted by hand", do: func(w *world) { w.deleteStreams(event.StreamRequests) }},
		fault{name: "consumers deleted by hand", do: deleteConsumers},
		fault{name: "max_file_store of JetStream reached", do: func(w *world) {
			w.StoreLimit("1KB")
			w.Killed(0, installation.ToNATS)
			w.Pass(outage)
			w.StoreLimit(installation.FileStore)
			w.Killed(0, installation.ToNATS)
		}},
	)
	all = append(all, fault{name: "twice the load of the machine", do: func(w *world) { w.busy(2*runtime.NumCPU(), 2*silence) }, harmless: true})
	return append(all, fault{name: "disk of JetStream full", do: func(w *world) {
		w.fill(installation.DiskNATS, outage)
		// After a full disk, the server rejects messages until it is restarted (docs/production.md), and its health check reports that.
		if problem := w.healthOfNATS(); problem != "" {
			w.T.Logf("NATS has space again and reports: %s; restart it", problem)
			w.Killed(0, installation.ToNATS)
		}
	}}, fault{name: "disk of Postgres full", do: func(w *world) { w.fill(installation.DiskPostgres, outage) }}, fault{name: "everything restarted, one after the other", upgrade: true, do: func(w *world) {
		for _, name := range w.Names("broker-", "orchestrator-", "worker-", installation.ToNATS) {
			w.Down[name] = true
			w.Programs[name].Stop()
			delete(w.Down, name)
			w.Programs[name].Start()
			w.Pass(100 * time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(w.T.Context(), installation.WaitLimit)
		defer cancel()
		if err := w.Postgres.Stop(ctx); err != nil {
			w.T.Errorf("stop Postgres: %v", err)
		}
		w.RestartPostgres()
	}})
}

// replicasOf returns one replica of each program whose name has the prefix.
func (w *world) replicasOf(prefix string, replica int) []string {
	var found []string
	for _, name := range w.Names(prefix) {
		if strings.HasSuffix(name, fmt.Sprintf("-%d", replica)) {
			found = append(found, name)
		}
	}
	return found
}

// busy lets other processes use the processors for a time.
func (w *world) busy(processes int, d time.Duration) {
	w.T.Helper()
	ctx, cancel := context.WithCancel(w.T.Context())
	var all sync.WaitGroup
	for range processes {
		cmd := exec.CommandContext(ctx, "sh", "-c", "while :; do :; done")
		if err := cmd.Start(); err != nil {
			w.T.Errorf("start a busy process: %v", err)
			continue
		}
		all.Go(func() { _ = cmd.Wait() }) // it was killed
	}
	w.Pass(d)
	cancel()
	all.Wait()
}

func (w *world) frozen(prefix ...string) {
	for _, name := range w.Names(prefix...) {
		w.Programs[name].Freeze()
	}
	w.Pass(silence)
	for _, name := range w.Names(prefix...) {
		w.Programs[name].Thaw()
	}
}

// toxic adds a toxic to the proxies whose name contains a text, for a time.
func (w *world) toxic(holds, what string, d time.Duration, streams ...string) {
	w.T.Helper()
	for name, p := range w.Proxies {
		if !strings.Contains(name, holds) {
			continue
		}
		for i, stream := range streams {
			text := strings.Replace(fmt.Sprintf(what, stream), `", "type"`, fmt.Sprintf(`%d", "type"`, i), 1)
			defer w.Toxic(p, text)()
		}
	}
	w.Pass(d)
}

// loseStore kills NATS and removes a folder of its store.
func (w *world) loseStore(away time.Duration, folder string) {
	w.Take(installation.ToNATS)
	if err := os.RemoveAll(filepath.Join(w.Dir, installation.DiskNATS, folder)); err != nil {
		w.T.Error(err)
	}
	w.Pass(away)
	w.Bring(installation.ToNATS)
}

func (w *world) deleteStreams(names ...event.Stream) {
	for _, name := range names {
		w.stream(name)
		if err := w.JS.DeleteStream(w.T.Context(), string(name)); err != nil {
			w.T.Errorf("delete stream %s: %v", name, err)
		}
	}
}

// stream returns a stream. If an earlier fault has deleted it, stream waits until it is created again.
func (w *world) stream(name event.Stream) (s jetstream.Stream) {
	w.T.Helper()
	testkit.Eventually(w.T, installation.WaitLimit, "the stream "+string(name)+" to exist", func() bool {
		var err error
		s, err = w.JS.Stream(w.T.Context(), string(name))
		return err == nil
	})
	return s
}

// deleteConsumers deletes the consumers of commands, results and requests.
func deleteConsumers(w *world) {
	for _, name := range []event.Stream{event.StreamCommands, event.StreamResults, event.StreamRequests} {
		s := w.stream(name)
		for consumer := range s.ConsumerNames(w.T.Context()).Name() {
			if err := s.DeleteConsumer(w.T.Context(), consumer); err != nil {
				w.T.Errorf("delete consumer %s of %s: %v", consumer, name, err)
			}
		}
	}
}

// fill fills the disk of a service, for a time.
func (w *world) fill(disk string, d time.Duration) {
	w.disks[disk].Fill(true)
	w.Pass(d)
	w.disks[disk].Fill(false)
	// Postgres may have exited.
	select {
	case <-w.Postgres.Done():
		w.T.Log("Postgres exited because of the full disk and is restarted")
		w.RestartPostgres()
	default:
	}
}

// healthOfNATS returns the problem that the server reports; empty if it is healthy.
func (w *world) healthOfNATS() string {
	ctx, cancel := context.WithTimeout(w.T.Context(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.Addr["nats-http"]+"/healthz", http.NoBody)
	if err != nil {
		w.T.Error(err)
		return ""
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode == http.StatusOK {
		return ""
	}
	text, err := io.ReadAll(response.Body)
	return errors.Join(errors.New(string(text)), err).Error()
}

// awaitStuck waits until `keb stuck` and the operator API show all operations in flight with the worker that each waits for.
func (w *world) awaitStuck() {
	w.T.Helper()
	start, named := time.Now(), 0
	testkit.Eventually(w.T, installation.WaitLimit, "keb stuck to show the operations that wait for a worker", func() bool {
		if out, err := w.Run("stuck"); err != nil || !strings.Contains(out, "no_worker") {
			return false
		}
		named = 0
		for _, g := range harness.Get[struct {
			Data []struct {
				Reason, Worker string
				Count          int
			}
		}](w.Sys, "http://"+w.Sys.OperatorAddr+"/stuck").Data {
			if g.Reason == "no_worker" && g.Worker != "" {
				named += g.Count
			}
		}
		return named >= installation.Customers/3
	})
	w.T.Logf("keb stuck shows the workers that %d operations wait for, %.1f s after they were killed", named, time.Since(start).Seconds())
}
