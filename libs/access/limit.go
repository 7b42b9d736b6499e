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
	// maxFailures is how often an address may fail in a row; after that one more time every failureEvery.
	maxFailures  = 20
	failureEvery = 3 * time.Second
	// maxAddresses bounds the memory; the address that failed longest ago is forgotten first.
	maxAddresses = 4096
)

// limiter counts something by address, of which each may have so many at once, and after that one more every so often. It is a
// leaky bucket: each that is counted puts off by every the time at which the address is clear again. It is safe for concurrent use.
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
	// clear is when all that was counted will be forgotten.
	clear time.Time
	// good is when the address last showed good credentials.
	good time.Time
}

// newLimiter counts failed attempts. What it bounds is work and log lines: whoever has a good token is let in whatever others behind the
// same address do, and tokens are too long to be guessed at any rate.
func newLimiter(now func() time.Time) *limiter { return limit(now, maxFailures, failureEvery) }

// limit allows most at once, and one more after each period every.
func limit(now func() time.Time, most int, every time.Duration) *limiter {
	return &limiter{now: now, most: most, every: every, byAddr: map[string]*list.Element{}, recent: list.New()}
}

// fail counts one more, and returns zero while the address may go on. Else it returns how long the address has to wait, and counts
// nothing, so that nobody keeps himself out for ever by trying.
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

// wait is how long an address has to wait for its next one. The caller holds mu.
func (l *limiter) wait(c *count, now time.Time) time.Duration {
	return max(0, c.clear.Sub(now)-time.Duration(l.most-1)*l.every)
}

// of finds what was counted of an address, and makes it the newest. The address that it pushes out begins anew when it comes back,
// which is what bounded memory costs. The caller holds mu.
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

// address is who is asking: the peer, or whom trusted proxies name. Of an IPv6 address it is the network of 64 bits, of which
// everybody has as many addresses as he likes.
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

// forwarded goes back through the proxies that are trusted, from the nearest on: what stands before them anybody can write.
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
