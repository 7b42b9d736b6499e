package installation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/kyma-project/keb/libs/service"
)

// dialTimeout is the time limit for connecting to a replica.
const dialTimeout = 5 * time.Second

// The pause after a failed accept, for example without free file descriptors. It doubles up to a second.
const (
	firstAcceptWait = 5 * time.Millisecond
	maxAcceptWait   = time.Second
)

// ForwardRule forwards connections from a listening address to the name and port of a service.
type ForwardRule struct{ Listen, Target string }

// ParseForwardRule reads "8080=broker:8080".
func ParseForwardRule(text string) (ForwardRule, error) {
	listen, target, ok := strings.Cut(text, "=")
	if _, _, err := net.SplitHostPort(target); !ok || listen == "" || err != nil {
		return ForwardRule{}, fmt.Errorf("%q: want PORT=HOST:PORT, for example 8080=broker:8080", text)
	}
	if !strings.Contains(listen, ":") {
		listen = ":" + listen
	}
	return ForwardRule{Listen: listen, Target: target}, nil
}

// Forward listens for all rules until ctx ends, and then closes open connections. It forwards TCP connections to any available replica of a
// service, so that an address on the host stays the same when containers are replaced.
func Forward(ctx context.Context, log *slog.Logger, rules []ForwardRule) error {
	group := service.NewGroup(log)
	for _, rule := range rules {
		ln, err := service.Listen(rule.Listen)
		if err != nil {
			return err
		}
		defer ln.Close()
		group.Add(rule.Target, func(ctx context.Context) error { return forward(ctx, log, ln, rule.Target) })
	}
	return group.Run(ctx)
}

// forward forwards the connections of ln until ctx ends. It closes ln.
func forward(ctx context.Context, log *slog.Logger, ln net.Listener, target string) error {
	ctx, cancel := context.WithCancel(ctx)
	var open sync.WaitGroup
	defer open.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = ln.Close() }) // Accept returns
	defer stop()
	wait := firstAcceptWait
	for {
		from, err := ln.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("forward to %s: %w", target, err)
		case err != nil:
			log.Warn("connection not accepted", "target", target, "err", err, "wait", wait)
			timer := time.NewTimer(wait)
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
			timer.Stop()
			wait = min(2*wait, maxAcceptWait)
			continue
		}
		wait = firstAcceptWait
		open.Go(func() {
			if err := pass(ctx, from, target); err != nil {
				log.Warn("connection not passed on", "target", target, "err", err)
			}
		})
	}
}

// pass copies in both directions until one side or ctx ends.
func pass(ctx context.Context, from net.Conn, target string) error {
	defer from.Close()
	dialer := net.Dialer{Timeout: dialTimeout}
	to, err := dialer.DialContext(ctx, "tcp", target) // tries each address of the name in turn
	if err != nil {
		return err
	}
	defer to.Close()
	stop := context.AfterFunc(ctx, func() { _, _ = from.Close(), to.Close() })
	defer stop()
	var copies sync.WaitGroup
	for _, way := range [][2]net.Conn{{to, from}, {from, to}} {
		copies.Go(func() {
			_, _ = io.Copy(way[0], way[1]) // an error only ends the copy
			if half, ok := way[0].(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite() // signal the end of the stream to the other side
			}
		})
	}
	copies.Wait()
	return nil
}
