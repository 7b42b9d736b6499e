package access

import (
	"container/list"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"
)

const (
	// maxFailures is the number of consecutive failures of an address without a wait. After that, one per failureEvery is allowed.
	maxFailures  = 20
	failureEvery = 3 * time.Second
	// maxAddresses limits the memory. The address with the oldest failure is removed first.
	maxAddresses = 4096
)

// limiter counts events by address. Each address may have a number of events at one time, and one more per period. It is a leaky
// bucket: each event delays the time at which the bucket is empty by one period. It is safe for concurrent use.
type limiter struct {
	now   func() time.Time
	most  int
	every time.Duration

	mu     sync.Mutex
	byAddr map[string]*list.Element
	recent *list.List // of *count, the newest first
}

type count struct {
	addr string
	// clear is when the bucket is empty.
	clear time.Time
	// good is when the address last presented correct credentials.
	good time.Time
}

// newLimiter limits failed attempts, to limit work and log lines. Correct tokens are always accepted, also from an address with
// failures, because tokens are too long to be guessed.
func newLimiter(now func() time.Time) *limiter { return limit(now, maxFailures, failureEvery) }

// limit allows most events at one time, and one more per period every.
func limit(now func() time.Time, most int, every time.Duration) *limiter {
	return &limiter{now: now, most: most, every: every, byAddr: map[string]*list.Element{}, recent: list.New()}
}

// fail counts one event, and returns zero if it is allowed. Otherwise it counts nothing and returns the time to wait, so that retries do
// not extend the wait.
func (l *limiter) fail(addr string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	c := l.of(addr)
	if c.clear.Before(now) {
		c.clear = now
	}
	if wait := l.wait(c, now); wait > 0 {
		return wait
	}
	c.clear = c.clear.Add(l.every)
	return 0
}

// wait returns how long an address must wait for its next event. The caller must hold mu.
func (l *limiter) wait(c *count, now time.Time) time.Duration {
	if c.clear.Before(now) { // also the zero time, whose distance from now does not fit into a duration
		return 0
	}
	return max(0, c.clear.Sub(now)-time.Duration(l.most-1)*l.every)
}

// of returns the count of an address, and marks it as the newest. It may remove another address, whose count then starts again from
// zero. The caller must hold mu.
func (l *limiter) of(addr string) *count {
	if e, ok := l.byAddr[addr]; ok {
		l.recent.MoveToFront(e)
		return e.Value.(*count)
	}
	if l.recent.Len() >= maxAddresses {
		oldest := l.recent.Back()
		delete(l.byAddr, oldest.Value.(*count).addr)
		l.recent.Remove(oldest)
	}
	c := &count{addr: addr}
	l.byAddr[addr] = l.recent.PushFront(c)
	return c
}

// address returns the client's address: the peer, or the address that trusted proxies forward. For IPv6 it is the network of 64 bits,
// because a client can use all of its addresses.
func address(r *http.Request, trusted []netip.Prefix) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	peer, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	peer = peer.Unmap().WithZone("")
	if isTrusted(peer, trusted) {
		peer = forwarded(r, peer, trusted)
	}
	if peer.Is6() {
		if network, err := peer.Prefix(64); err == nil {
			return network.String()
		}
	}
	return peer.String()
}

// forwarded follows X-Forwarded-For back through the trusted proxies. Clients can forge all entries before those.
func forwarded(r *http.Request, peer netip.Addr, trusted []netip.Prefix) netip.Addr {
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && isTrusted(peer, trusted); i-- {
		hop, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			break
		}
		peer = hop.Unmap().WithZone("")
	}
	return peer
}

func isTrusted(addr netip.Addr, trusted []netip.Prefix) bool {
	for _, p := range trusted {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}
