// Package liveness tracks which workers are alive and which steps they serve. A
// worker is a NATS micro service. Liveness requests the service info of all
// workers regularly; there is no registry that could become outdated.
package liveness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
)

// Config is the configuration of a Liveness.
type Config struct {
	// Every is the time between two rounds, Timeout the time in which answers are collected, and Grace the time for which a worker that
	// does not answer still counts as alive. Grace starts again after a reconnect.
	Every, Timeout, Grace time.Duration
}

// Worker describes the live replicas of one worker.
type Worker struct {
	Name string
	// Versions are the versions of the live replicas, sorted, and ByVersion the number of replicas of each.
	Versions  []string
	ByVersion map[string]int
	// Ramped are the number of ramped replicas of each version, which are among ByVersion; nil if there are none.
	Ramped   map[string]int
	Replicas int
	// Steps are the steps that at least one live replica serves, sorted.
	Steps []string
}

type replica struct {
	name, version string
	steps         []string
	ramped        bool
	seen          time.Time
}

// Liveness tracks live workers. It is safe for concurrent use.
type Liveness struct {
	cfg      Config
	nc       *nats.Conn
	now      func() time.Time
	log      *slog.Logger
	mu       sync.RWMutex
	replicas map[string]replica
	// answers is the subscription for answers. Only Round and Run use it.
	answers *nats.Subscription
	// reconnects is the number of reconnects that Round has noticed, and connected the time of the last one. Only Round and Run use them.
	reconnects uint64
	connected  time.Time
	// seen holds the time of the last answer by worker, including workers that are gone.
	seen map[string]time.Time
	// asked is closed after the first round of Run.
	asked chan struct{}
}

// ErrNotConnected means that workers could not be asked because the connection to the bus is lost. All workers are kept.
var ErrNotConnected = errors.New("not connected")

// maxSeen is the maximum size of Liveness.seen, because any client of the bus can answer under any name.
const maxSeen = 1000

// New returns a Liveness without workers.
func New(cfg Config, nc *nats.Conn, now func() time.Time, log *slog.Logger) *Liveness {
	return &Liveness{cfg: cfg, nc: nc, now: now, log: log, replicas: map[string]replica{}, seen: map[string]time.Time{}, asked: make(chan struct{})}
}

// Asked returns a channel that is closed when Run has asked all workers for the first time. Until then a live worker may seem missing.
func (l *Liveness) Asked() <-chan struct{} { return l.asked }

// Run asks for workers until ctx ends. It must be called once.
func (l *Liveness) Run(ctx context.Context) error {
	defer l.unsubscribe()
	tick := time.NewTicker(l.cfg.Every)
	defer tick.Stop()
	for first := true; ; first = false {
		if err := l.Round(ctx); err != nil && ctx.Err() == nil {
			l.log.Warn("workers not asked", "err", err)
		}
		if first {
			close(l.asked)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Round asks all workers once and collects answers until the timeout. It also accepts late answers to earlier rounds, which busy workers
// send. It is called by Run, or before Run.
func (l *Liveness) Round(ctx context.Context) error {
	subject, err := micro.ControlSubject(micro.InfoVerb, "", "")
	if err != nil {
		return fmt.Errorf("ask for workers: %w", err)
	}
	if l.answers == nil {
		if l.answers, err = l.nc.SubscribeSync(l.nc.NewRespInbox()); err != nil {
			return fmt.Errorf("ask for workers: %w", err)
		}
	}
	if n := l.nc.Stats().Reconnects; n != l.reconnects {
		l.reconnects, l.connected = n, l.now()
	}
	if err := l.ask(subject, l.answers.Subject); err != nil {
		return fmt.Errorf("ask for workers: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	defer cancel()
	for {
		msg, err := l.answers.NextMsgWithContext(ctx)
		if err != nil {
			break // the timeout, or there is no worker
		}
		l.see(msg.Data)
	}
	if !l.nc.IsConnected() || l.nc.Stats().Reconnects != l.reconnects {
		return fmt.Errorf("ask for workers: %w while they were asked", ErrNotConnected)
	}
	l.expire()
	return nil
}

// ask publishes a request. It does not publish while the connection is lost, because a buffered request would be sent too late.
func (l *Liveness) ask(subject, answers string) error {
	if !l.nc.IsConnected() {
		return ErrNotConnected
	}
	return l.nc.PublishRequest(subject, answers, nil)
}

// unsubscribe ends the subscription of Round.
func (l *Liveness) unsubscribe() {
	if l.answers != nil {
		_ = l.answers.Unsubscribe() // the connection is closing if this fails
		l.answers = nil
	}
}

func (l *Liveness) see(data []byte) {
	var info micro.Info
	if err := json.Unmarshal(data, &info); err != nil || info.Metadata[worker.MetadataWorker] == "" {
		return // not a worker
	}
	r := replica{
		name: info.Metadata[worker.MetadataWorker], version: info.Metadata[worker.MetadataVersion], seen: l.now(),
		ramped: info.Metadata[worker.MetadataRamped] == "true",
	}
	for step := range strings.SplitSeq(info.Metadata[worker.MetadataSteps], ",") {
		if step != "" {
			r.steps = append(r.steps, step)
		}
	}
	l.mu.Lock()
	_, known := l.replicas[info.ID]
	l.replicas[info.ID] = r
	names := []string{r.name}
	if r.ramped {
		names = append(names, event.Ramped(r.name))
	}
	for _, name := range names {
		if _, ok := l.seen[name]; ok || len(l.seen) < maxSeen {
			l.seen[name] = r.seen
		}
	}
	l.mu.Unlock()
	if !known {
		l.log.Info("worker appeared", "worker", r.name, "version", r.version, "steps", len(r.steps))
	}
}

func (l *Liveness) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, r := range l.replicas {
		if now := l.now(); now.Sub(r.seen) > l.cfg.Grace && now.Sub(l.connected) > l.cfg.Grace {
			delete(l.replicas, id)
			l.log.Warn("worker disappeared", "worker", r.name, "version", r.version)
		}
	}
}

// Serves reports whether a live replica of the worker serves the step. Ramped replicas do not count.
func (l *Liveness) Serves(name, step string) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, r := range l.replicas {
		if r.name == name && !r.ramped && slices.Contains(r.steps, step) {
			return true
		}
	}
	return false
}

// ServesRamped reports whether a live ramped replica of the version serves the step. Ramped replicas share their commands, so it reports false
// while one of another version lives.
func (l *Liveness) ServesRamped(name, step, version string) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	serves := false
	for _, r := range l.replicas {
		switch {
		case r.name != name || !r.ramped:
		case r.version != version:
			return false
		default:
			serves = serves || slices.Contains(r.steps, step)
		}
	}
	return serves
}

// Seen returns the time of the last answer of the worker, or of its ramped replicas under the name event.Ramped(worker), even if it is gone; zero
// if it has not answered since the start.
func (l *Liveness) Seen(name string) time.Time {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.seen[name]
}

// Workers returns the live workers, sorted by name.
func (l *Liveness) Workers() []Worker {
	l.mu.RLock()
	defer l.mu.RUnlock()
	byName := map[string]*Worker{}
	for _, r := range l.replicas {
		w := byName[r.name]
		if w == nil {
			w = &Worker{Name: r.name, ByVersion: map[string]int{}}
			byName[r.name] = w
		}
		w.Replicas++
		w.ByVersion[r.version]++
		if r.ramped {
			if w.Ramped == nil {
				w.Ramped = map[string]int{}
			}
			w.Ramped[r.version]++
		}
		w.Versions = append(w.Versions, r.version)
		w.Steps = append(w.Steps, r.steps...)
	}
	workers := make([]Worker, 0, len(byName))
	for _, w := range byName {
		slices.Sort(w.Versions)
		w.Versions = slices.Compact(w.Versions)
		slices.Sort(w.Steps)
		w.Steps = slices.Compact(w.Steps)
		workers = append(workers, *w)
	}
	slices.SortFunc(workers, func(a, b Worker) int { return strings.Compare(a.Name, b.Name) })
	return workers
}
