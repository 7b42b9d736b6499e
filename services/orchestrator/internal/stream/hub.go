// Package stream tells clients which operations have changed, whichever
// orchestrator has changed them. Orchestrators tell each other with notices on
// the bus that name operations and nothing else; the state is read from the
// database, for all clients together. A notice that is lost is made up for by a
// look at the database: rows know which transaction has written them last.
//
// A slow client loses states in between, but never the last one of an
// operation; one that would need too much memory is told to read again.
package stream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/dispatch"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

const (
	// maxNotice is how many operations a notice names at most, and renderBatch how many are read at once.
	maxNotice   = 1000
	renderBatch = 500
	// maxPending bounds the operations that are to be read, and what a look at the database may find. Beyond, clients read again.
	maxPending = 20_000
	// callLimit bounds a question to the database, and the first flush to the bus.
	callLimit = 10 * time.Second
	// pause is how long nothing is read after the database has failed.
	pause = time.Second
	// liveEvery is the time between two looks at who is alive.
	liveEvery = time.Second
	// share is which part of the time looks at the database may take: one in so many.
	share = 20
	// resumers is how many clients look at the database at the same time after they were away, and resumeWait how long one waits
	// for that.
	resumers   = 2
	resumeWait = 3 * time.Second
	// resumeAge is how long a client may have been away.
	resumeAge = 10 * time.Minute
)

var (
	// ErrFull says that there are too many clients.
	ErrFull = errors.New("too many clients")
	// ErrStopped says that the hub has stopped.
	ErrStopped = errors.New("stopped")
)

// Source finds what has changed.
type Source interface {
	Mark(ctx context.Context) (store.Marker, error)
	Changed(ctx context.Context, since store.Marker, limit int) (changed []store.Version, next store.Marker, err error)
}

// Renderer shows operations and workers as clients get them.
type Renderer interface {
	// Render reads operations; those that do not exist are left out.
	Render(ctx context.Context, ids []string) ([]Rendered, error)
	// Live is who is alive.
	Live() []byte
}

// Rendered is an operation as clients get it.
type Rendered struct {
	ID      string
	Version int
	Data    []byte
}

// Config is how a Hub behaves. All fields are required.
type Config struct {
	// Every is the time between two reads of what has changed, and Reconcile between two looks for changes of which no notice came.
	Every, Reconcile time.Duration
	// Buffer is how many changed operations may wait for a client; MaxClients bounds the clients.
	Buffer, MaxClients int
}

// Hub hands changes from the orchestrators to the clients of this process. While there are no clients it does nothing but tell
// the others.
type Hub struct {
	cfg    Config
	nc     *nats.Conn
	source Source
	log    *slog.Logger
	resume chan struct{}

	mu      sync.Mutex
	clients map[*Client]struct{}
	joined  chan struct{} // has room for one: there are clients
	live    chan struct{} // closed while changes are seen
	isLive  bool
	stopped chan struct{}
	pending map[string]struct{}
	missed  bool // more was told than is kept
	render  Renderer
	marker  store.Marker
	// sent and before are the versions that went to the clients since the last look at the database, and since the one before.
	sent, before map[string]int
}

// New returns a Hub; Run makes it work.
func New(cfg Config, nc *nats.Conn, source Source, log *slog.Logger) *Hub {
	return &Hub{
		cfg: cfg, nc: nc, source: source, log: log, resume: make(chan struct{}, resumers), clients: map[*Client]struct{}{},
		joined: make(chan struct{}, 1), live: make(chan struct{}), stopped: make(chan struct{}), pending: map[string]struct{}{},
	}
}

// Committed implements dispatch.Watcher: it tells all orchestrators which operations have changed.
func (h *Hub) Committed(transitions []dispatch.Transition) {
	for len(transitions) > 0 {
		part := transitions[:min(len(transitions), maxNotice)]
		transitions = transitions[len(part):]
		notice := event.OperationsRequest{IDs: make([]string, len(part))}
		for i := range part {
			notice.IDs[i] = part[i].OperationID
		}
		body, err := json.Marshal(notice)
		if err == nil {
			err = h.nc.Publish(event.NoticeOperations, body)
		}
		if err != nil {
			h.log.Debug("notice not sent", "err", err)
			return
		}
	}
}

// notice reads the ids of a notice.
func notice(data []byte) ([]string, error) {
	var n event.OperationsRequest
	if err := json.Unmarshal(data, &n); err != nil {
		return nil, fmt.Errorf("read notice: %w", err)
	}
	if len(n.IDs) > maxNotice {
		return nil, fmt.Errorf("read notice: ids: %d are named, at most %d are allowed", len(n.IDs), maxNotice)
	}
	return n.IDs, nil
}

func (h *Hub) noticed(m *nats.Msg) {
	ids, err := notice(m.Data)
	if err != nil {
		h.log.Warn("notice not understood", "err", err)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.want(ids)
}

// want notes operations that are to be read; h is locked.
func (h *Hub) want(ids []string) {
	for _, id := range ids {
		if len(h.pending) >= maxPending {
			h.missed = true // they are found in the database
			return
		}
		h.pending[id] = struct{}{}
	}
}

// Run serves clients until ctx ends; then all of them are done.
func (h *Hub) Run(ctx context.Context, r Renderer) error {
	h.mu.Lock()
	h.render = r
	h.mu.Unlock()
	defer close(h.stopped)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-h.joined:
		}
		for h.count() > 0 && ctx.Err() == nil {
			err := h.session(ctx)
			if err == nil || ctx.Err() != nil {
				continue
			}
			h.log.Warn("changes cannot be seen", "err", err)
			timer.Reset(pause)
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
		}
	}
}

func (h *Hub) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.clients)
}

// session serves clients until there are none.
func (h *Hub) session(ctx context.Context) error {
	sub, err := h.nc.Subscribe(event.NoticeOperations, h.noticed)
	if err != nil {
		return fmt.Errorf("listen for notices: %w", err)
	}
	defer func() {
		if err := sub.Unsubscribe(); err != nil {
			h.log.Debug("unsubscribe failed", "subject", sub.Subject, "err", err)
		}
	}()
	last := h.render.Live() // what a client that is let go by begin may have read
	if err := h.begin(ctx); err != nil {
		return err
	}
	defer h.end()
	tick := time.NewTicker(h.cfg.Every)
	defer tick.Stop()
	var paused, look, live time.Time
	look = time.Now().Add(h.cfg.Reconcile)
	for h.count() > 0 {
		var now time.Time
		select {
		case <-ctx.Done():
			return nil
		case now = <-tick.C:
		}
		if now.After(live) {
			live = now.Add(liveEvery)
			if data := h.render.Live(); !bytes.Equal(data, last) {
				last = data
				h.each(func(c *Client) { c.putLive(data) })
			}
		}
		if now.Before(paused) {
			continue
		}
		err := h.flush(ctx)
		if err == nil && (now.After(look) || h.overflown()) {
			err = h.reconcile(ctx)
			look = time.Now().Add(max(h.cfg.Reconcile, share*time.Since(now)))
		}
		if err != nil && ctx.Err() == nil {
			h.log.Warn("changed operations not read", "err", err)
			paused = time.Now().Add(pause)
		}
	}
	return nil
}

// begin makes sure that every change from now on is seen, and lets the clients go on.
func (h *Hub) begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	if h.nc.IsConnected() {
		if err := h.nc.FlushWithContext(ctx); err != nil {
			h.log.Warn("notices may be missed", "err", err) // they are made up for
		}
	}
	marker, err := h.source.Mark(ctx)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.marker == (store.Marker{}) {
		h.marker = marker // else clients have waited for this session, and miss what came before
	}
	h.sent, h.before = map[string]int{}, map[string]int{}
	h.isLive = true
	close(h.live)
	for c := range h.clients {
		c.putMarker(h.marker)
	}
	return nil
}

func (h *Hub) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.isLive = false
	h.live = make(chan struct{})
	if len(h.clients) == 0 {
		h.marker, h.sent, h.before, h.missed = store.Marker{}, nil, nil, false
		h.pending = map[string]struct{}{}
	}
}

func (h *Hub) overflown() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	missed := h.missed
	h.missed = false
	return missed
}

func (h *Hub) each(do func(c *Client)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.clients {
		do(c)
	}
}

// flush reads what is pending and hands it to the clients.
func (h *Hub) flush(ctx context.Context) error {
	h.mu.Lock()
	ids := make([]string, 0, len(h.pending))
	for id := range h.pending {
		ids = append(ids, id)
	}
	h.pending = map[string]struct{}{}
	h.mu.Unlock()
	for len(ids) > 0 {
		part := ids[:min(len(ids), renderBatch)]
		rendered, err := h.read(ctx, part)
		if err != nil {
			h.mu.Lock()
			h.want(ids)
			h.mu.Unlock()
			return err
		}
		ids = ids[len(part):]
		h.mu.Lock()
		for i := range rendered {
			h.sent[rendered[i].ID] = rendered[i].Version
		}
		for c := range h.clients {
			c.put(rendered)
		}
		h.mu.Unlock()
	}
	return nil
}

func (h *Hub) read(ctx context.Context, ids []string) ([]Rendered, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	return h.render.Render(ctx, ids)
}

// reconcile makes up for notices that were lost. Once the clients have what it finds, they have everything up to the marker.
func (h *Hub) reconcile(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	changed, next, err := h.source.Changed(limited, h.marker, maxPending+1)
	if err != nil {
		return err
	}
	if len(changed) > maxPending {
		h.each(func(c *Client) { c.resync("more operations have changed than can be told") })
		changed = nil
	}
	h.mu.Lock()
	for _, v := range changed {
		if max(h.sent[v.ID], h.before[v.ID]) < v.Version || v.Version == 0 {
			h.pending[v.ID] = struct{}{}
		}
	}
	h.before, h.sent = h.sent, map[string]int{}
	h.mu.Unlock()
	if err := h.flush(ctx); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.marker = next
	for c := range h.clients {
		c.putMarker(next)
	}
	return nil
}
