package testkit

import (
	"errors"
	"maps"
	"net"
	"sync"
	"testing"
	"time"
)

const (
	proxyDial  = 5 * time.Second
	proxyChunk = 32 << 10
)

// TCPProxy passes connections on to a target and lets a test break them. It may be used from several goroutines.
type TCPProxy struct {
	target string
	ln     net.Listener
	wg     sync.WaitGroup
	done   chan struct{}

	mu      sync.Mutex
	cut     bool
	refused int
	delay   time.Duration
	conns   map[net.Conn]struct{}
	silent  map[net.Conn]struct{} // by Silence
	stalled chan struct{}         // non-nil while stalled; closed by Restore
}

// Proxy starts a proxy to target ("host:port") on a loopback port of its own, and stops it when the test ends.
func Proxy(t testing.TB, target string) *TCPProxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("start proxy: %v", err)
	}
	p := &TCPProxy{target: target, ln: ln, done: make(chan struct{}), conns: map[net.Conn]struct{}{}, silent: map[net.Conn]struct{}{}}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		close(p.done)
		_ = ln.Close()
		p.Cut()
		p.wg.Wait()
	})
	return p
}

// Addr is where the proxy listens.
func (p *TCPProxy) Addr() string { return p.ln.Addr().String() }

// Cut breaks every connection and refuses new ones until Restore.
func (p *TCPProxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	for c := range p.conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // a reset, as from a machine that is gone
		}
		_ = c.Close()
	}
	clear(p.conns)
}

// Stall keeps connections open and passes nothing on, until Restore or Cut: the network that swallows packets.
func (p *TCPProxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stalled == nil {
		p.stalled = make(chan struct{})
	}
}

// Silence makes the connections that are open now pass nothing on for the rest of their lives, while new ones work: the
// peer that moved elsewhere without a word.
func (p *TCPProxy) Silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.Copy(p.silent, p.conns)
}

// Restore ends Cut, Stall and Delay. Connections that were cut or silenced stay so.
func (p *TCPProxy) Restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
	p.delay = 0
	if p.stalled != nil {
		close(p.stalled)
		p.stalled = nil
	}
}

// Delay holds every chunk of data back for d, in both directions.
func (p *TCPProxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Refused is how many connections Cut has refused so far.
func (p *TCPProxy) Refused() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused
}

func (p *TCPProxy) accept() {
	for {
		client, err := p.ln.Accept()
		if err != nil {
			return
		}
		if !p.track(client) {
			_ = client.Close()
			continue
		}
		p.wg.Go(func() { p.serve(client) })
	}
}

// track remembers a connection to cut; it answers false when the proxy is cut.
func (p *TCPProxy) track(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut {
		p.refused++
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *TCPProxy) untrack(c net.Conn) {
	p.mu.Lock()
	delete(p.conns, c)
	delete(p.silent, c)
	p.mu.Unlock()
	_ = c.Close()
}

func (p *TCPProxy) serve(client net.Conn) {
	defer p.untrack(client)
	upstream, err := net.DialTimeout("tcp", p.target, proxyDial)
	if err != nil {
		return
	}
	defer p.untrack(upstream)
	if !p.track(upstream) {
		return
	}
	var pair sync.WaitGroup
	pair.Go(func() { p.copy(upstream, client) })
	pair.Go(func() { p.copy(client, upstream) })
	pair.Wait()
}

func (p *TCPProxy) copy(to, from net.Conn) {
	buf := make([]byte, proxyChunk)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if !p.hold(from) {
				return
			}
			if _, err := to.Write(buf[:n]); err != nil {
				_ = from.Close()
				return
			}
		}
		if err != nil {
			// An end is passed on as an end, a broken connection as a broken one.
			if tcp, ok := to.(*net.TCPConn); ok && !errors.Is(err, net.ErrClosed) {
				_ = tcp.CloseWrite()
			} else {
				_ = to.Close()
			}
			return
		}
	}
}

// hold waits as Delay, Stall and Silence ask; it answers false when the proxy ends.
func (p *TCPProxy) hold(from net.Conn) bool {
	p.mu.Lock()
	delay, stalled := p.delay, p.stalled
	_, silent := p.silent[from]
	p.mu.Unlock()
	if silent {
		<-p.done
		return false
	}
	if delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-p.done:
			return false
		case <-timer.C:
		}
	}
	if stalled != nil {
		select {
		case <-p.done:
			return false
		case <-stalled:
		}
	}
	return true
}
