package service

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"syscall"
	"time"
)

const (
	maxHeaderBytes = 64 << 10
	// shutdownGrace is the time limit for requests in progress at shutdown.
	shutdownGrace = 10 * time.Second
)

// HTTP limits the clients of a server. Zero means the default of a field, and a negative WriteTimeout means no limit.
type HTTP struct {
	// HeaderTimeout is the time limit for receiving the header of a request, and ReadTimeout for the whole request.
	HeaderTimeout time.Duration `env:"-"`
	ReadTimeout   time.Duration `env:"-"`
	// WriteTimeout is the time limit from the end of a request's header until the client has received the answer. Streams
	// set their own limits.
	WriteTimeout time.Duration `env:"-"`
	// IdleTimeout is how long a connection without a request stays open.
	IdleTimeout time.Duration `env:"-"`
	// MaxConnections is the maximum number of connections. An additional one replaces the connection that has waited longest for a
	// complete request header; if all connections are answering requests, the additional one is closed.
	MaxConnections int `env:"KEB_HTTP_MAX_CONNECTIONS" envDefault:"4000"`
}

func (c HTTP) withDefaults() HTTP {
	for value, fallback := range map[*time.Duration]time.Duration{
		&c.HeaderTimeout: 10 * time.Second, &c.ReadTimeout: 30 * time.Second, &c.WriteTimeout: 90 * time.Second, &c.IdleTimeout: 2 * time.Minute,
	} {
		if *value == 0 {
			*value = fallback
		}
	}
	if c.MaxConnections == 0 {
		c.MaxConnections = 4000
	}
	return c
}

// Validate reports an invalid setting.
func (c HTTP) Validate() error {
	if c.MaxConnections < 0 {
		return fmt.Errorf("KEB_HTTP_MAX_CONNECTIONS: %d: must be at least 1", c.MaxConnections)
	}
	return nil
}

type stoppingKey struct{}

// Stopping returns a channel that is closed when the server of a request begins to stop. A handler
// of an endless stream must then return. It is nil for requests outside of ServeHTTP and HTTP.Serve.
func Stopping(requestContext context.Context) <-chan struct{} {
	ch, _ := requestContext.Value(stoppingKey{}).(<-chan struct{})
	return ch
}

// ServeHTTP serves with the default limits; see HTTP.Serve.
func ServeHTTP(ctx context.Context, ln net.Listener, h http.Handler) error {
	return HTTP{}.Serve(ctx, ln, h)
}

// Serve serves on ln until ctx ends, waits up to ten seconds for requests in progress, and returns nil. It returns an
// error only if serving fails. It closes ln. Connections without a request do not delay the end.
func (c HTTP) Serve(ctx context.Context, ln net.Listener, h http.Handler) error {
	return c.serve(ctx, ln, h, shutdownGrace)
}

func (c HTTP) serve(ctx context.Context, ln net.Listener, h http.Handler, grace time.Duration) error {
	c = c.withDefaults()
	base := context.WithValue(context.WithoutCancel(ctx), stoppingKey{}, ctx.Done())
	conns := newConnections(c.MaxConnections)
	srv := &http.Server{
		Handler:           conns.handler(alone(h)),
		ConnState:         conns.watch,
		ConnContext:       withConn,
		ReadHeaderTimeout: c.HeaderTimeout,
		ReadTimeout:       c.ReadTimeout,
		WriteTimeout:      max(0, c.WriteTimeout),
		IdleTimeout:       c.IdleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return base },
	}
	if l, ok := ln.(interface{ ErrorLog() *log.Logger }); ok {
		srv.ErrorLog = l.ErrorLog()
	}
	srv.RegisterOnShutdown(conns.close)
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
		// Close the connections of unfinished requests.
		_ = srv.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve http on %s: %w", ln.Addr(), err)
	}
	return nil
}

// alone closes the connection after a request whose end a proxy may determine differently. The following bytes
// must not be parsed as another client's request. net/http hides whether a chunked request also had a Content-Length, and ignores
// Transfer-Encoding in HTTP/1.0.
func alone(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 1 && (r.ProtoMinor == 0 || len(r.TransferEncoding) > 0) {
			w.Header().Set("Connection", "close")
		}
		// Browsers must not guess another Content-Type.
		w.Header().Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	})
}

// Listen listens on a TCP address ("host:port"). The error is one line, and for an address in use describes what to do.
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
