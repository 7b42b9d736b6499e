package contract

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

const dialTimeout = 5 * time.Second

// door is a proxy between a worker and the bus. It passes each frame to tap before it forwards it, and can be closed.
// The kit observes the worker through it without a subscription, which would be interest for the server.
type door struct {
	ln     net.Listener
	target func() string
	tap    tap
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	shut  bool
	conns map[net.Conn]struct{}
}

// tap receives each frame, and reports whether to forward it.
type tap func(fromWorker bool, f *frame) (pass bool)

// openDoor listens on a loopback port. It calls target for each connection.
func openDoor(port int, target func() string, show tap) (*door, error) {
	ln, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		return nil, fmt.Errorf("listen for the worker: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	d := &door{ln: ln, target: target, tap: show, cancel: cancel, conns: map[net.Conn]struct{}{}}
	d.wg.Go(func() { d.accept(ctx) })
	return d, nil
}

func (d *door) url() string { return "nats://" + d.ln.Addr().String() }

// close closes the door permanently.
func (d *door) close() {
	d.cancel()
	_ = d.ln.Close() // it ends accept
	d.cut()
	d.wg.Wait()
}

// cut breaks every connection and rejects new ones until restore.
func (d *door) cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut = true
	for c := range d.conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // a reset, as from a machine that is gone
		}
		_ = c.Close()
	}
	clear(d.conns)
}

func (d *door) restore() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut = false
}

// keep records a connection for cut. It returns false if the door is closed.
func (d *door) keep(c net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shut {
		return false
	}
	d.conns[c] = struct{}{}
	return true
}

func (d *door) drop(c net.Conn) {
	d.mu.Lock()
	delete(d.conns, c)
	d.mu.Unlock()
	_ = c.Close()
}

// idle reports whether there is no connection and all frames were passed to tap.
func (d *door) idle() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.conns) == 0
}

func (d *door) accept(ctx context.Context) {
	for {
		from, err := d.ln.Accept()
		if err != nil {
			if ctx.Err() != nil || pause(ctx, 100*time.Millisecond) != nil {
				return
			}
			continue
		}
		if !d.keep(from) {
			_ = from.Close()
			continue
		}
		d.wg.Go(func() {
			defer d.drop(from)
			d.pass(ctx, from)
		})
	}
}

func (d *door) pass(ctx context.Context, from net.Conn) {
	dialer := net.Dialer{Timeout: dialTimeout}
	to, err := dialer.DialContext(ctx, "tcp", d.target())
	if err != nil {
		return
	}
	defer d.drop(to)
	if !d.keep(to) {
		return
	}
	var ways sync.WaitGroup
	way := func(to, from net.Conn, fromWorker bool) {
		defer func() { _, _ = to.Close(), from.Close() }() // NATS has no half-open connections
		in := bufio.NewReaderSize(from, 64<<10)
		out := bufio.NewWriterSize(to, 64<<10)
		for {
			f, err := readFrame(in)
			if err != nil {
				return
			}
			if !d.tap(fromWorker, f) {
				continue
			}
			if _, err := out.Write(f.raw); err != nil {
				return
			}
			if in.Buffered() == 0 && out.Flush() != nil {
				return
			}
		}
	}
	ways.Go(func() { way(to, from, true) })
	ways.Go(func() { way(from, to, false) })
	ways.Wait()
}

// pause waits for a time, or for the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
