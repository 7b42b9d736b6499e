package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"time"
)

const (
	readHeaderTimeout = 10 * time.Second
	readTimeout       = 30 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
	// shutdownGrace is how long requests in progress may take once the service stops.
	shutdownGrace = 10 * time.Second
)

type stoppingKey struct{}

// Stopping returns a channel that is closed when the server of a request, started by ServeHTTP, begins to stop. A handler
// that streams for as long as its client listens ends then; all others just finish. Outside of ServeHTTP it is nil.
func Stopping(requestContext context.Context) <-chan struct{} {
	ch, _ := requestContext.Value(stoppingKey{}).(<-chan struct{})
	return ch
}

// ServeHTTP serves on ln until ctx ends, lets requests in progress finish for ten seconds, and returns nil; it returns an
// error only when serving fails. It closes ln. Connections without a request do not hold it up. Reading a request is limited to 30 seconds; writing an answer is not, it is
// up to the handler.
func ServeHTTP(ctx context.Context, ln net.Listener, h http.Handler) error {
	return serveHTTP(ctx, ln, h, shutdownGrace)
}

func serveHTTP(ctx context.Context, ln net.Listener, h http.Handler, grace time.Duration) error {
	base := context.WithValue(context.WithoutCancel(ctx), stoppingKey{}, ctx.Done())
	unused := newUnused()
	srv := &http.Server{
		Handler:           h,
		ConnState:         unused.watch,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return base },
	}
	srv.RegisterOnShutdown(unused.close)
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(ln) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve http on %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if err := srv.Shutdown(limit); err != nil {
		// Whoever has not finished by now is cut off.
		_ = srv.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve http on %s: %w", ln.Addr(), err)
	}
	return nil
}

// Listen listens on a TCP address ("host:port"). The error is one line and says what to do about an address in use.
func Listen(addr string) (net.Listener, error) {
	ln, err := net.Listen("tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("listen on %s: %w; stop the program that listens there, or choose another address", addr, syscall.EADDRINUSE)
	case err != nil:
		return nil, fmt.Errorf("listen on %q: %w", addr, err)
	}
	return ln, nil
}
