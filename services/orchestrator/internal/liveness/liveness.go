// Package liveness knows which workers are alive and which steps they serve. A
// worker is a NATS micro service; asking all of them who they are is the whole
// protocol, so there is no registry that could disagree with the truth.
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

	"github.com/kyma-project/keb/libs/worker"
)

// Config is how workers are asked.
type Config struct {
	// Every is the time between two rounds, Patience how long answers are collected, and Grace how long a worker that did not
	// answer still counts as alive; it begins anew when a broken connection is back.
	Every, Patience, Grace time.Duration
}

// Worker is what is known of the replicas of one worker.
type Worker struct {
	Name string
	// Versions are those of the live replicas, sorted.
	Versions []string
	Replicas int
	// Steps are those that at least one live replica serves, sorted.
	Steps []string
}

type replica struct {
	name, version string
	steps         []string
	seen          time.Time
}

// Liveness is safe for concurrent use.
type Liveness struct {
	cfg      Config
	nc       *nats.Conn
	now      func() time.Time
	log      *slog.Logger
	mu       sync.RWMutex
	replicas map[string]replica
	// answers is where workers answer; only Round and Run use it.
	answers *nats.Subscription
	// reconnects counts those that Round has noticed, and connected is when it noticed the last: nobody could answer before. Only
	// Round and Run use them.
	reconnects uint64
	connected  time.Time
	// seen is when a replica of a worker answered last, also of those that are gone.
	seen map[string]time.Time
}

// ErrNotConnected tells that nobody could be asked: the connection to the bus is broken. Nobody is forgotten for that.
var ErrNotConnected = errors.New("not connected")

// maxSeen bounds the workers that are remembered: everybody who may answer can invent names.
const maxSeen = 1000

// New returns a Liveness that knows nobody yet.
func New(cfg Config, nc *nats.Conn, now func() time.Time, log *slog.Logger) *Liveness {
	return &Liveness{cfg: cfg, nc: nc, now: now, log: log, replicas: map[string]replica{}, seen: map[string]time.Time{}}
}

// Run asks for workers until ctx ends.
func (l *Liveness) Run(ctx context.Context) error {
	defer l.deafen()
	tick := time.NewTicker(l.cfg.Every)
	defer tick.Stop()
	for {
		if err := l.Round(ctx); err != nil && ctx.Err() == nil {
			l.log.Warn("workers not asked", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Round asks once and collects the answers that come within the patience, and those to earlier rounds that came later: a busy
// worker is not a dead one. It is called by Run, or before it.
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
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Patience)
	defer cancel()
	for {
		msg, err := l.answers.NextMsgWithContext(ctx)
		if err != nil {
			break // no more answers, or nobody there
		}
		l.see(msg.Data)
	}
	if !l.nc.IsConnected() || l.nc.Stats().Reconnects != l.reconnects {
		return fmt.Errorf("ask for workers: %w while they were asked", ErrNotConnected)
	}
	l.expire()
	return nil
}

// ask puts a question on the bus, but not into the buffer of a connection that is broken: nobody would hear it in time.
func (l *Liveness) ask(subject, answers string) error {
	if !l.nc.IsConnected() {
		return ErrNotConnected
	}
	return l.nc.PublishRequest(subject, answers, nil)
}

// deafen ends the subscription of Round.
func (l *Liveness) deafen() {
	if l.answers != nil {
		_ = l.answers.Unsubscribe() // the connection is closing if this fails
		l.answers = nil
	}
}

func (l *Liveness) see(data []byte) {
	var info micro.Info
	if err := json.Unmarshal(data, &info); err != nil || info.Metadata[worker.MetadataWorker] == "" {
		return // some other service
	}
	r := replica{name: info.Metadata[worker.MetadataWorker], version: info.Metadata[worker.MetadataVersion], seen: l.now()}
	for step := range strings.SplitSeq(info.Metadata[worker.MetadataSteps], ",") {
		if step != "" {
			r.steps = append(r.steps, step)
		}
	}
	l.mu.Lock()
	_, known := l.replicas[info.ID]
	l.replicas[info.ID] = r
	if _, remembered := l.seen[r.name]; remembered || len(l.seen) < maxSeen {
		l.seen[r.name] = r.seen
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

// Serves tells whether a live replica of the worker serves the step.
func (l *Liveness) Serves(name, step string) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, r := range l.replicas {
		if r.name == name && slices.Contains(r.steps, step) {
			return true
		}
	}
	return false
}

// Seen is when a replica of the worker answered last, whether it is alive or not; zero when none has since this Liveness began.
func (l *Liveness) Seen(name string) time.Time {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.seen[name]
}

// Workers lists the live workers by name.
func (l *Liveness) Workers() []Worker {
	l.mu.RLock()
	defer l.mu.RUnlock()
	byName := map[string]*Worker{}
	for _, r := range l.replicas {
		w := byName[r.name]
		if w == nil {
			w = &Worker{Name: r.name}
			byName[r.name] = w
		}
		w.Replicas++
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
