package replica

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// Follower reads data before the first use, after a notice, and when the sweep sees another version. It is safe for concurrent use.
type Follower struct {
	// what names the data, and notice is the subject on which changes are announced.
	what, notice string
	// reading is held while read runs, so that an older read does not replace a newer one.
	reading sync.Mutex
	read    func(ctx context.Context) error
	nats    *nats.Conn
	log     *slog.Logger
	// stale is signalled when the data may have changed.
	stale chan struct{}
}

// NewFollower returns a Follower of data that read reads. The caller must call Run.
func NewFollower(what, notice string, read func(ctx context.Context) error, nc *nats.Conn, log *slog.Logger) *Follower {
	return &Follower{what: what, notice: notice, read: read, nats: nc, log: log, stale: make(chan struct{}, 1)}
}

func (f *Follower) refresh(ctx context.Context) error {
	f.reading.Lock()
	defer f.reading.Unlock()
	return f.read(ctx)
}

// loadPause is the pause after a failed read at the start.
const loadPause = time.Second

// Load reads the data, again and again while the database is away. It reports false if ctx ends before.
func (f *Follower) Load(ctx context.Context) bool {
	for {
		err := f.refresh(ctx)
		if err == nil {
			return true
		}
		f.log.Warn("settings not read; nothing is sent before", "settings", f.what, "err", err)
		pause := time.NewTimer(loadPause)
		select {
		case <-ctx.Done():
			pause.Stop()
			return false
		case <-pause.C:
		}
	}
}

// Changed applies a change of this orchestrator: it reads the data, and notifies the other orchestrators.
func (f *Follower) Changed(ctx context.Context) error {
	err := f.refresh(ctx)
	if problem := f.nats.Publish(f.notice, nil); problem != nil {
		f.log.Debug("change of settings not announced", "settings", f.what, "err", problem)
	}
	return err
}

// Soon makes Run read the data.
func (f *Follower) Soon() {
	select {
	case f.stale <- struct{}{}:
	default:
	}
}

// Run reads the data after each change until ctx ends.
func (f *Follower) Run(ctx context.Context) error {
	sub, err := f.nats.Subscribe(f.notice, func(*nats.Msg) { f.Soon() })
	if err != nil {
		return fmt.Errorf("subscribe to changes of %s: %w", f.what, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	f.Soon() // the data may have changed between Load and the subscription
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.stale:
		}
		if err := f.refresh(ctx); err != nil && ctx.Err() == nil {
			f.log.Warn("settings not read; the last known ones apply", "settings", f.what, "err", err)
		}
	}
}
