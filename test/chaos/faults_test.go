//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
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
}

// faults returns all faults that this installation and this machine support. The first is none.
func faults(w *world) []fault {
	all := []fault{
		{name: "none", do: func(w *world) { w.pass(outage) }, upgrade: true},
		{name: "orchestrators killed", do: func(w *world) { w.killed(0, "orchestrator-") }, upgrade: true},
		{name: "orchestrators killed one after the other, six times", do: func(w *world) {
			for i := range 6 {
				w.killed(0, fmt.Sprintf("orchestrator-%d", i%replicas))
				w.pass(700 * time.Millisecond)
			}
		}},
		{name: "brokers killed one after the other", do: func(w *world) {
			for i := range replicas {
				w.killed(2*time.Second, fmt.Sprintf("broker-%d", i))
			}
		}},
		{name: "a replica of each worker killed", do: func(w *world) { w.killed(outage, w.replicasOf("worker-", 0)...) }},
		{name: "all workers down", do: func(w *world) {
			w.take("worker-")
			w.awaitStuck()
			w.bring("worker-")
		}},
		{name: "NATS killed", do: func(w *world) { w.killed(0, toNATS) }},
		{name: "NATS away", do: func(w *world) { w.killed(outage, toNATS) }},
		{name: "Postgres killed", do: func(w *world) { w.killPostgres(0) }},
		{name: "Postgres away", do: func(w *world) { w.killPostgres(outage) }},
		{name: "an orchestrator frozen", do: func(w *world) { w.frozen("orchestrator-0") }},
		{name: "all orchestrators frozen", do: func(w *world) { w.frozen("orchestrator-") }},
		{name: "a replica of each worker frozen", do: func(w *world) { w.frozen(w.replicasOf("worker-", 0)...) }},
		{name: "a broker frozen", do: func(w *world) { w.frozen("broker-0") }},
		{name: "NATS frozen", do: func(w *world) { w.frozen(toNATS) }},
		{name: "Postgres frozen", do: func(w *world) {
			w.signalPostgres(syscall.SIGSTOP)
			w.pass(silence)
			w.signalPostgres(syscall.SIGCONT)
		}},
	}
	for _, way := range [][2]string{
		{"broker", toNATS}, {"broker", toPostgres}, {"orchestrator", toNATS}, {"orchestrator", toPostgres}, {"worker", toNATS}, {"worker", toLandscape},
	} {
		all = append(all, fault{name: way[0] + " cut from " + way[1], do: func(w *world) { w.cut(outage, way[0], way[1]) }})
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
			w.take("worker-")
			w.pass(2 * time.Second) // until every operation waits for a worker
			w.loseStore(0, "jetstream")
			w.bring("worker-")
		}},
		fault{name: "streams of commands and results deleted by hand", do: func(w *world) { w.deleteStreams(event.StreamCommands, event.StreamResults) }},
		fault{name: "stream of requests deleted by hand", do: func(w *world) { w.deleteStreams(event.StreamRequests) }},
		fault{name: "consumers deleted by hand", do: deleteConsumers},
		fault{name: "max_file_store of JetStream reached", do: func(w *world) {
			w.storeLimit("1KB")
			w.killed(0, toNATS)
			w.pass(outage)
			w.storeLimit(natsFull)
			w.killed(0, toNATS)
		}},
	)
	if w.full["nats"] {
		all = append(all, fault{name: "disk of JetStream full", do: func(w *world) {
			w.fill("nats", outage)
			// After a full disk, the server rejects messages until it is restarted (docs/production.md), and its health check reports that.
			if problem := w.healthOfNATS(); problem != "" {
				w.t.Logf("NATS has space again and reports: %s; restart it", problem)
				w.killed(0, toNATS)
			}
		}})
	}
	if w.full["pg"] {
		all = append(all, fault{name: "disk of Postgres full", do: func(w *world) { w.fill("pg", outage) }})
	}
	return append(all, fault{name: "everything restarted, one after the other", upgrade: true, do: func(w *world) {
		for _, name := range w.names("broker-", "orchestrator-", "worker-", toNATS) {
			w.down[name] = true
			w.programs[name].stop()
			delete(w.down, name)
			w.programs[name].start()
			w.pass(100 * time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(w.t.Context(), waitLimit)
		defer cancel()
		if err := w.postgres.Stop(ctx); err != nil {
			w.t.Errorf("stop Postgres: %v", err)
		}
		w.restartPostgres()
	}})
}

// replicasOf returns one replica of each program whose name has the prefix.
func (w *world) replicasOf(prefix string, replica int) []string {
	var found []string
	for _, name := range w.names(prefix) {
		if strings.HasSuffix(name, fmt.Sprintf("-%d", replica)) {
			found = append(found, name)
		}
	}
	return found
}

// take kills programs and keeps them down.
func (w *world) take(prefix ...string) {
	for _, name := range w.names(prefix...) {
		w.down[name] = true
		w.programs[name].kill()
	}
}

func (w *world) bring(prefix ...string) {
	for _, name := range w.names(prefix...) {
		delete(w.down, name)
		w.programs[name].start()
	}
}

func (w *world) killed(away time.Duration, prefix ...string) {
	w.take(prefix...)
	w.pass(away)
	w.bring(prefix...)
}

func (w *world) frozen(prefix ...string) {
	for _, name := range w.names(prefix...) {
		w.programs[name].freeze()
	}
	w.pass(silence)
	for _, name := range w.names(prefix...) {
		w.programs[name].thaw()
	}
}

func (w *world) killPostgres(away time.Duration) {
	w.signalPostgres(syscall.SIGKILL)
	w.pass(away)
	w.restartPostgres()
}

// cut closes the connections of all replicas, and rejects new ones.
func (w *world) cut(away time.Duration, who, to string) {
	for name, p := range w.proxies {
		if strings.HasPrefix(name, who) && strings.HasSuffix(name, to) {
			p.Stop()
			defer func() {
				require.NoErrorf(w.t, p.Start(), "proxy %s", name)
			}()
		}
	}
	w.pass(away)
}

// toxic adds a toxic to the proxies whose name contains a text, for a time.
func (w *world) toxic(holds, what string, d time.Duration, streams ...string) {
	w.t.Helper()
	for name, p := range w.proxies {
		if !strings.Contains(name, holds) {
			continue
		}
		for i, stream := range streams {
			text := strings.Replace(fmt.Sprintf(what, stream), `", "type"`, fmt.Sprintf(`%d", "type"`, i), 1)
			toxic, err := p.Toxics.AddToxicJson(strings.NewReader(text))
			require.NoErrorf(w.t, err, "proxy %s", name)
			defer func() {
				if err := p.Toxics.RemoveToxic(context.WithoutCancel(w.t.Context()), toxic.Name); err != nil {
					w.t.Errorf("proxy %s: %v", name, err)
				}
			}()
		}
	}
	w.pass(d)
}

// loseStore kills NATS and removes a folder of its store.
func (w *world) loseStore(away time.Duration, folder string) {
	w.take(toNATS)
	if err := os.RemoveAll(filepath.Join(w.dir, "nats", folder)); err != nil {
		w.t.Error(err)
	}
	w.pass(away)
	w.bring(toNATS)
}

func (w *world) deleteStreams(names ...event.Stream) {
	for _, name := range names {
		if err := w.js.DeleteStream(w.t.Context(), string(name)); err != nil {
			w.t.Errorf("delete stream %s: %v", name, err)
		}
	}
}

// deleteConsumers deletes the consumers of commands, results and requests.
func deleteConsumers(w *world) {
	for _, name := range []event.Stream{event.StreamCommands, event.StreamResults, event.StreamRequests} {
		s, err := w.js.Stream(w.t.Context(), string(name))
		if err != nil {
			w.t.Errorf("stream %s: %v", name, err)
			continue
		}
		for consumer := range s.ConsumerNames(w.t.Context()).Name() {
			if err := s.DeleteConsumer(w.t.Context(), consumer); err != nil {
				w.t.Errorf("delete consumer %s of %s: %v", consumer, name, err)
			}
		}
	}
}

// fill fills the disk of a service, for a time.
func (w *world) fill(disk string, d time.Duration) {
	path := filepath.Join(w.dir, disk, "filler")
	f, err := os.Create(path)
	if err != nil {
		w.t.Error(err)
		return
	}
	written, err := io.CopyBuffer(f, zeros{}, make([]byte, 64<<10))
	if !errors.Is(err, syscall.ENOSPC) {
		w.t.Errorf("the disk of %s is not full after %d bytes: %v", disk, written, err)
	}
	w.pass(d)
	if err := errors.Join(f.Close(), os.Remove(path)); err != nil {
		w.t.Error(err)
	}
	// Postgres may have exited.
	select {
	case <-w.postgres.Done():
		w.t.Log("Postgres exited because of the full disk and is restarted")
		w.restartPostgres()
	default:
	}
}

// healthOfNATS returns the problem that the server reports; empty if it is healthy.
func (w *world) healthOfNATS() string {
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.addr["nats-http"]+"/healthz", http.NoBody)
	if err != nil {
		w.t.Error(err)
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

// zeros is an endless source of zeros.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
