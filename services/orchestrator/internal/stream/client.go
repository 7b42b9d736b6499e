package stream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// Client is one who listens. Its memory is bounded: the newest state of so many operations.
type Client struct {
	hub  *Hub
	only string

	mu     sync.Mutex
	ready  chan struct{} // has room for one: there is something to take
	ids    []string      // in the order in which they came up
	data   map[string][]byte
	live   []byte
	again  string // why the client must read again
	marker string
}

// Batch is what a client is to be told, in this order.
type Batch struct {
	// Resync is why the client must read again what it shows; empty when it need not.
	Resync string
	// Operations are the newest states of operations that have changed.
	Operations [][]byte
	// Live is who is alive; nil when that has not changed.
	Live []byte
	// Marker is where to resume once all of that is told; empty when that has not changed.
	Marker string
}

// Join adds a client, for one operation only unless that is empty. It returns once everything that changes from now on reaches the
// client. The error wraps ErrFull, ErrStopped or that of ctx.
func (h *Hub) Join(ctx context.Context, only string) (*Client, error) {
	c := &Client{hub: h, only: only, ready: make(chan struct{}, 1), data: map[string][]byte{}}
	h.mu.Lock()
	if len(h.clients) >= h.cfg.MaxClients {
		h.mu.Unlock()
		return nil, fmt.Errorf("%w: there are %d already", ErrFull, h.cfg.MaxClients)
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
		err = fmt.Errorf("changes cannot be seen yet: %w", context.Cause(ctx))
	}
	c.Leave()
	return nil, err
}

// Leave ends the client.
func (c *Client) Leave() {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	delete(c.hub.clients, c)
}

// Stopped is closed when the hub stops.
func (c *Client) Stopped() <-chan struct{} { return c.hub.stopped }

// Ready receives when there is something to take.
func (c *Client) Ready() <-chan struct{} { return c.ready }

// Take returns what has come since the last call.
func (c *Client) Take() Batch {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := Batch{Resync: c.again, Live: c.live, Marker: c.marker, Operations: make([][]byte, len(c.ids))}
	for i, id := range c.ids {
		b.Operations[i] = c.data[id]
	}
	c.again, c.live, c.marker = "", nil, ""
	c.drop()
	return b
}

// Resume tells the client what has changed while it was away, or that it must read again. It may take seconds.
func (c *Client) Resume(ctx context.Context, since store.Marker, now time.Time) error {
	if now.Sub(since.At()) > resumeAge {
		c.resync("it was too long ago")
		return nil
	}
	timer := time.NewTimer(resumeWait)
	defer timer.Stop()
	select {
	case c.hub.resume <- struct{}{}:
		defer func() { <-c.hub.resume }()
	case <-timer.C:
		c.resync("many clients come back at the same time")
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
			c.resync("the database is another one")
			return nil
		}
		if err != nil {
			return err
		}
		if len(changed) > c.hub.cfg.Buffer {
			c.resync("more operations have changed than can be told")
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

// fill adds states that were read beside the hub, which may have told a newer one meanwhile.
func (c *Client) fill(rendered []Rendered) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range rendered {
		if _, newer := c.data[rendered[i].ID]; !newer {
			c.add(&rendered[i])
		}
	}
	c.signal()
}

func (c *Client) put(rendered []Rendered) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range rendered {
		if c.only == "" || c.only == rendered[i].ID {
			c.add(&rendered[i])
			c.signal()
		}
	}
}

// add keeps the newest state of an operation; c is locked. A client that must read again anyway needs none.
func (c *Client) add(r *Rendered) {
	if c.again != "" {
		return
	}
	if _, known := c.data[r.ID]; !known {
		if len(c.ids) >= c.hub.cfg.Buffer {
			c.again = fmt.Sprintf("%d changed operations were waiting to be told", len(c.ids))
			c.drop()
			return
		}
		c.ids = append(c.ids, r.ID)
	}
	c.data[r.ID] = r.Data
}

func (c *Client) resync(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.again = why
	c.drop()
	c.signal()
}

func (c *Client) drop() {
	if len(c.ids) > 0 {
		c.ids, c.data = nil, map[string][]byte{}
	}
}

func (c *Client) putLive(data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live = data
	c.signal()
}

func (c *Client) putMarker(m store.Marker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.marker = m.String()
	c.signal()
}

func (c *Client) signal() {
	select {
	case c.ready <- struct{}{}:
	default:
	}
}
