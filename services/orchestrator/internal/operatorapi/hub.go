package operatorapi

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
	// maxNotice is the maximum number of operations in a notice, and renderBatch in one read.
	maxNotice   = 1000
	renderBatch = 500
	// maxPending limits the number of operations to read, and of operations that one reconciliation returns. Beyond it, clients read
	// everything again.
	maxPending = 20_000
	// callLimit limits a database query, and the first flush to the bus.
	callLimit = 10 * time.Second
	// readPause is the time without reads after the database has failed.
	readPause = time.Second
	// liveEvery is the interval of checks for live workers.
	liveEvery = time.Second
	// share limits reconciliation to one part in share of the time.
	share = 20
	// resumers is the number of clients that may resume at the same time, and resumeWait how long a client waits for its turn.
	resumers   = 2
	resumeWait = 3 * time.Second
	// resumeAge is how long a client may have been away.
	resumeAge = 10 * time.Minute
)

var (
	// ErrFull is returned when there are too many clients.
	ErrFull = errors.New("too many clients")
	// ErrStopped is returned after the hub has stopped.
	ErrStopped = errors.New("stopped")
)

// Source reads changes from the database.
type Source interface {
	Mark(ctx context.Context) (store.Marker, error)
	Changed(ctx context.Context, since store.Marker, limit int) (changed []store.Version, next store.Marker, err error)
}

// Renderer encodes operations and workers for clients.
type Renderer interface {
	// Render reads operations. It omits operations that do not exist.
	Render(ctx context.Context, ids []string) ([]Rendered, error)
	// Live returns the live workers.
	Live() []byte
}

// Rendered is an encoded operation.
type Rendered struct {
	ID      string
	Version int
	Data    []byte
}

// HubConfig contains the settings of a Hub. All fields are required.
type HubConfig struct {
	// Every is the interval of reads of changed operations. Reconcile is the interval of reads that find changes whose notice was lost.
	Every, Reconcile time.Duration
	// Buffer limits the changed operations that wait for one client. MaxClients limits the clients.
	Buffer, MaxClients int
}

// Hub sends the changes of all orchestrators to the clients of this process. Without clients, it only sends notices. A notice contains only the
// IDs of operations; the state is read from the database once for all clients. Reads of the database by transaction ID find changes whose
// notice was lost. A slow client misses intermediate states, but never the last state of an operation. A client that would need too much memory
// is told to read everything again.
type Hub struct {
	cfg    HubConfig
	nc     *nats.Conn
	source Source
	log    *slog.Logger
	resume chan struct{}

	mu      sync.Mutex
	clients map[*Subscriber]struct{}
	joined  chan struct{} // capacity 1: there are clients
	live    chan struct{} // closed while the hub receives changes
	isLive  bool
	stopped chan struct{}
	pending map[string]struct{}
	missed  bool // pending overflowed
	render  Renderer
	marker  store.Marker
	// sent contains the versions sent to clients since the last reconciliation, and before those sent in the interval before.
	sent, before map[string]int
}

// NewHub returns a Hub. Run must be called.
func NewHub(cfg HubConfig, nc *nats.Conn, source Source, log *slog.Logger) *Hub {
	return &Hub{
		cfg: cfg, nc: nc, source: source, log: log, resume: make(chan struct{}, resumers), clients: map[*Subscriber]struct{}{},
		joined: make(chan struct{}, 1), live: make(chan struct{}), stopped: make(chan struct{}), pending: map[string]struct{}{},
	}
}

// Committed implements dispatch.Watcher. It notifies all orchestrators of changed operations.
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

// notice decodes the IDs of a notice.
func notice(data []byte) ([]string, error) {
	var n event.OperationsRequest
	if err := json.Unmarshal(data, &n); err != nil {
		return nil, fmt.Errorf("read notice: %w", err)
	}
	if len(n.IDs) > maxNotice {
		return nil, fmt.Errorf("read notice: ids: got %d, want at most %d", len(n.IDs), maxNotice)
	}
	return n.IDs, nil
}

func (h *Hub) receiveNotice(m *nats.Msg) {
	ids, err := notice(m.Data)
	if err != nil {
		h.log.Warn("notice not understood", "err", err)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.want(ids)
}

// Refresh sends operations to the clients of this process again, because something is shown with them that is not stored.
func (h *Hub) Refresh(operationIDs ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isLive {
		h.want(operationIDs)
	}
}

// want marks operations to be read. h must be locked.
func (h *Hub) want(ids []string) {
	for _, id := range ids {
		if len(h.pending) >= maxPending {
			h.missed = true // reconciliation finds them
			return
		}
		h.pending[id] = struct{}{}
	}
}

// Run serves clients until ctx ends. It then disconnects them.
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
			h.log.Warn("changes are not received", "err", err)
			timer.Reset(readPause)
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
	sub, err := h.nc.Subscribe(event.NoticeOperations, h.receiveNotice)
	if err != nil {
		return fmt.Errorf("subscribe to notices: %w", err)
	}
	defer func() {
		if err := sub.Unsubscribe(); err != nil {
			h.log.Debug("unsubscribe failed", "subject", sub.Subject, "err", err)
		}
	}()
	last := h.render.Live() // clients that begin releases may have read this list
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
				h.each(func(c *Subscriber) { c.putLive(data) })
			}
		}
		if now.Before(paused) {
			continue
		}
		err := h.flush(ctx)
		if err == nil && (now.After(look) || h.takeMissed()) {
			err = h.reconcile(ctx)
			look = time.Now().Add(max(h.cfg.Reconcile, share*time.Since(now)))
		}
		if err != nil && ctx.Err() == nil {
			h.log.Warn("changed operations not read", "err", err)
			paused = time.Now().Add(readPause)
		}
	}
	return nil
}

// begin subscribes to changes and then releases the waiting clients.
func (h *Hub) begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	if h.nc.IsConnected() {
		if err := h.nc.FlushWithContext(ctx); err != nil {
			h.log.Warn("notices may be missed", "err", err) // reconciliation finds their changes
		}
	}
	marker, err := h.source.Mark(ctx)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.marker == (store.Marker{}) {
		h.marker = marker // otherwise clients waited for this session and need the older marker
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

func (h *Hub) takeMissed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	missed := h.missed
	h.missed = false
	return missed
}

func (h *Hub) each(do func(c *Subscriber)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.clients {
		do(c)
	}
}

// flush reads the pending operations and sends them to the clients.
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

// reconcile finds changes whose notice was lost. After it, the clients have all changes up to the marker.
func (h *Hub) reconcile(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	changed, next, err := h.source.Changed(limited, h.marker, maxPending+1)
	if err != nil {
		return err
	}
	if len(changed) > maxPending {
		h.each(func(c *Subscriber) { c.resync("too many operations have changed") })
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
