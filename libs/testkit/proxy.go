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

// TCPProxy forwards connections to a target and simulates network failures. It is safe for concurrent use.
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

// Proxy starts a proxy to target ("host:port") on a loopback port, and stops it when the test ends.
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

// Addr returns the address of the proxy.
func (p *TCPProxy) Addr() string { return p.ln.Addr().String() }

// Cut closes every connection and rejects new ones until Restore.
func (p *TCPProxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	for c := range p.conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // a reset, as after a crash of the machine
		}
		_ = c.Close()
	}
	clear(p.conns)
}

// Stall keeps connections open and forwards nothing until Restore or Cut, like a network that drops packets.
func (p *TCPProxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stalled == nil {
		p.stalled = make(chan struct{})
	}
}

// Silence stops forwarding on the existing connections for good. New connections work, as after a failover of the
// server.
func (p *TCPProxy) Silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.Copy(p.silent, p.conns)
}

// Restore ends Cut, Stall and Delay. Connections that were closed or silenced stay so.
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

// Delay delays every chunk of data by d, in both directions.
func (p *TCPProxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Refused returns the number of connections that Cut has rejected.
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

// track registers a connection for Cut. It returns false if the proxy is cut.
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
			// Forward a regular end as an end, and a lost connection as a lost one.
			if tcp, ok := to.(*net.TCPConn); ok && !errors.Is(err, net.ErrClosed) {
				_ = tcp.CloseWrite()
			} else {
				_ = to.Close()
			}
			return
		}
	}
}

// hold waits as Delay, Stall and Silence require. It returns false if the proxy has ended.
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
