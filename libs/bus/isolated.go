package bus

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// isolatedAfter is how long JetStream may be unavailable at a server of a cluster before the connection moves to another server. A server that is
// cut off from the others keeps its clients, and can do nothing for them.
const isolatedAfter = 5 * time.Second

// isolation records since when JetStream has been unavailable at the current server. It is safe for concurrent use.
type isolation struct {
	mu    sync.Mutex
	since time.Time // zero: it works
}

// works records that JetStream has answered.
func (i *isolation) works() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.since = time.Time{}
}

// fails records that a request to JetStream failed, and reports whether all have failed for isolatedAfter. The time then starts again.
func (i *isolation) fails(asked, now time.Time) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.since.IsZero() {
		i.since = asked
	}
	if now.Sub(i.since) < isolatedAfter {
		return false
	}
	i.since = time.Time{}
	return true
}

// leaveIfIsolated moves the connection to another server if JetStream has been unavailable for isolatedAfter at this one, and it belongs to a
// cluster. err is the result of a request that was sent at asked.
func (b *Bus) leaveIfIsolated(asked time.Time, err error) {
	if err == nil {
		b.isolation.works()
		return
	}
	if !isUnavailable(err) || b.nc.ConnectedClusterName() == "" || len(b.nc.Servers()) < 2 || !b.isolation.fails(asked, time.Now()) {
		return
	}
	b.log.Warn("JetStream is unavailable at this server; the connection moves to another one", "server", b.nc.ConnectedServerName(), "err", err)
	if err := b.nc.ForceReconnect(); err != nil {
		b.log.Warn("the connection does not move", "err", err)
	}
}

// isUnavailable reports whether a request had no answer, or one that JetStream does not work at this server now.
func isUnavailable(err error) bool {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return api.Code == http.StatusServiceUnavailable
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrNoResponders)
}
