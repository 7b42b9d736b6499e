package service

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener without a network. Tests provide its connections.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	conn, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (p pipes) Close() error {
	close(p)
	return nil
}

func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// Browsers and HTTP clients open unused connections. net/http would wait five seconds for their first request.
func TestServeHTTP_UnusedConnection_DoesNotDelayStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ln := make(pipes)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		done := make(chan error, 1)
		go func() { done <- ServeHTTP(ctx, ln, http.NotFoundHandler()) }()
		unused, served := net.Pipe()
		defer func() { _ = unused.Close() }()
		ln <- served
		synctest.Wait() // until the server waits for the first request
		begin := time.Now()
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("the server took %s to stop", took)
		}
		if n, err := unused.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("the unused connection: %d bytes, %v; want its end", n, err)
		}
	})
}
