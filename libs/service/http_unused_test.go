package service

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// Browsers and HTTP clients open connections ahead of need; net/http alone waits five seconds for the first request.
func TestServeHTTPDoesNotWaitForAConnectionThatNobodyHasUsed(t *testing.T) {
	t.Parallel()
	ln, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() { done <- ServeHTTP(ctx, ln, http.NotFoundHandler()) }()
	unused, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unused.Close() }()
	// Connections are accepted in order: this one comes after the unused one.
	res, err := get(t, "http://"+ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	begin := time.Now()
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("the server took %s to stop", took)
	}
	if err := unused.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if n, err := unused.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("the unused connection: %d bytes, %v; want its end", n, err)
	}
}
