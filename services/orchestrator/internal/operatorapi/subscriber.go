package operatorapi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// Subscriber is one listener. Its memory is limited to the newest states of HubConfig.Buffer operations.
type Subscriber struct {
	hub  *Hub
	only string

	mu     sync.Mutex
	ready  chan struct{} // capacity 1: there is something to take
	ids    []string      // in order of arrival
	data   map[string][]byte
	live   []byte
	again  string // why the client must read again
	marker string
}

// News contains the news for a client, to be sent in the order of the fields.
type News struct {
	// Resync is why the client must read everything again; empty if it need not.
	Resync string
	// Operations contains the newest states of the operations that have changed.
	Operations [][]byte
	// Live is the list of live workers; nil if it has not changed.
	Live []byte
	// Marker is the position to resume from after the batch; empty if it has not changed.
	Marker string
}

// Join adds a client for one operation, or for all if only is empty. After it returns, the client receives every change. The error wraps
// ErrFull, ErrStopped or the error of ctx.
func (h *Hub) Join(ctx context.Context, only string) (*Subscriber, error) {
	c := &Subscriber{hub: h, only: only, ready: make(chan struct{}, 1), data: map[string][]byte{}}
	h.mu.Lock()
	if len(h.clients) >= h.cfg.MaxClients {
		h.mu.Unlock()
		return nil, fmt.Errorf("%w: the limit is %d", ErrFull, h.cfg.MaxClients)
	}
	h.clients[c] = struct{}{}
	live := h.live
	if h.isLive {
		c.putMarker(h.marker)
	}
	h.mu.Unlock()
	select {
	case h.joined <- struct{}{}:
	default:
	}
	var err error
	select {
	case <-live:
		return c, nil
	case <-h.stopped:
		err = ErrStopped
	case <-ctx.Done():
		err = fmt.Errorf("changes are not available yet: %w", context.Cause(ctx))
	}
	c.Leave()
	return nil, err
}

// Leave removes the client.
func (c *Subscriber) Leave() {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	delete(c.hub.clients, c)
}

// Stopped is closed when the hub stops.
func (c *Subscriber) Stopped() <-chan struct{} { return c.hub.stopped }

// Ready receives a value when there is something to take.
func (c *Subscriber) Ready() <-chan struct{} { return c.ready }

// Take returns the news since the last call.
func (c *Subscriber) Take() News {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := News{Resync: c.again, Live: c.live, Marker: c.marker, Operations: make([][]byte, len(c.ids))}
	for i, id := range c.ids {
		b.Operations[i] = c.data[id]
	}
	c.again, c.live, c.marker = "", nil, ""
	c.drop()
	return b
}

// Resume sends the client the changes since a marker, or tells it to read everything again. It may take seconds.
func (c *Subscriber) Resume(ctx context.Context, since store.Marker, now time.Time) error {
	if now.Sub(since.At()) > resumeAge {
		c.resync("the client was away for too long")
		return nil
	}
	timer := time.NewTimer(resumeWait)
	defer timer.Stop()
	select {
	case c.hub.resume <- struct{}{}:
		defer func() { <-c.hub.resume }()
	case <-timer.C:
		c.resync("too many clients are resuming at the same time")
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	ids := []string{c.only}
	if c.only == "" {
		changed, _, err := c.hub.source.Changed(ctx, since, c.hub.cfg.Buffer+1)
		if errors.Is(err, store.ErrMarker) {
			c.resync("the database was replaced")
			return nil
		}
		if err != nil {
			return err
		}
		if len(changed) > c.hub.cfg.Buffer {
			c.resync("too many operations have changed")
			return nil
		}
		ids = ids[:0]
		for _, v := range changed {
			ids = append(ids, v.ID)
		}
	}
	for len(ids) > 0 {
		part := ids[:min(len(ids), renderBatch)]
		ids = ids[len(part):]
		rendered, err := c.hub.render.Render(ctx, part)
		if err != nil {
			return err
		}
		c.fill(rendered)
	}
	return nil
}

// fill adds states that were read outside of the hub's loop. The hub may have sent newer ones in the meantime.
func (c *Subscriber) fill(rendered []Rendered) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range rendered {
		if _, newer := c.data[rendered[i].ID]; !newer {
			c.add(&rendered[i])
		}
	}
	c.signal()
}

func (c *Subscriber) put(rendered []Rendered) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range rendered {
		if c.only == "" || c.only == rendered[i].ID {
			c.add(&rendered[i])
			c.signal()
		}
	}
}

// add keeps the newest state of an operation. c must be locked. A client that must read again needs no states.
func (c *Subscriber) add(r *Rendered) {
	if c.again != "" {
		return
	}
	if _, known := c.data[r.ID]; !known {
		if len(c.ids) >= c.hub.cfg.Buffer {
			c.again = fmt.Sprintf("%d changed operations were waiting for the client", len(c.ids))
			c.drop()
			return
		}
		c.ids = append(c.ids, r.ID)
	}
	c.data[r.ID] = r.Data
}

func (c *Subscriber) resync(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.again = why
	c.drop()
	c.signal()
}

func (c *Subscriber) drop() {
	if len(c.ids) > 0 {
		c.ids, c.data = nil, map[string][]byte{}
	}
}

func (c *Subscriber) putLive(data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live = data
	c.signal()
}

func (c *Subscriber) putMarker(m store.Marker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.marker = m.String()
	c.signal()
}

func (c *Subscriber) signal() {
	select {
	case c.ready <- struct{}{}:
	default:
	}
}
