package service

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const grace = 100 * time.Millisecond

// serve runs a server and returns its URL, a function that stops it, and its result.
func serve(t *testing.T, grace time.Duration, h http.Handler) (url string, stop context.CancelFunc, result <-chan error) {
	t.Helper()
	ln, err := Listen("127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	done := make(chan error, 1)
	go func() { done <- HTTP{}.serve(ctx, ln, h, grace) }()
	return "http://" + ln.Addr().String(), cancel, done
}

func get(t *testing.T, url string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return client.Do(req)
}

func TestServeHTTP_Shutdown_RequestFinishes(t *testing.T) {
	t.Parallel()
	inside, goOn := make(chan struct{}), make(chan struct{})
	url, stop, result := serve(t, patience, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(inside)
		<-Stopping(r.Context())
		<-goOn
		_, _ = io.WriteString(w, "finished")
	}))
	answer := make(chan string, 1)
	go func() {
		res, err := get(t, url)
		if err != nil {
			answer <- err.Error()
			return
		}
		defer func() { _ = res.Body.Close() }()
		body, _ := io.ReadAll(res.Body)
		answer <- string(body)
	}()
	<-inside
	stop()
	close(goOn)
	if got := <-answer; got != "finished" {
		t.Errorf("the request got %q, want finished", got)
	}
	if err := <-result; err != nil {
		t.Errorf("serve: %v", err)
	}
}

func TestServeHTTP_Shutdown_SlowRequestIsClosed(t *testing.T) {
	t.Parallel()
	inside := make(chan struct{})
	url, stop, result := serve(t, grace, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(inside)
		<-r.Context().Done()
	}))
	answer := make(chan error, 1)
	go func() {
		res, err := get(t, url)
		if err == nil {
			_ = res.Body.Close()
		}
		answer <- err
	}()
	<-inside
	stop()
	if err := <-result; err != nil {
		t.Errorf("serve: %v", err)
	}
	if err := <-answer; err == nil {
		t.Error("the request was answered, want a closed connection")
	}
}

func TestServeHTTP_ClosedListener_ReturnsReason(t *testing.T) {
	t.Parallel()
	ln, err := Listen("127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, ln.Close())
	if err := ServeHTTP(t.Context(), ln, http.NotFoundHandler()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v, want net.ErrClosed", err)
	}
}

func TestListen_AddressInUse_ErrorNamesIt(t *testing.T) {
	t.Parallel()
	ln, err := Listen("127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = ln.Close() }()
	_, err = Listen(ln.Addr().String())
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "choose another address") ||
		!strings.Contains(err.Error(), ln.Addr().String()) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
}

func TestListen_NoPort_Fails(t *testing.T) {
	t.Parallel()
	if _, err := Listen("127.0.0.1"); err == nil || !strings.Contains(err.Error(), `"127.0.0.1"`) {
		t.Errorf("got %v", err)
	}
}
