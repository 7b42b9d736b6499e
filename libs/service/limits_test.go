package service

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience is the time limit for expected events.
const patience = time.Minute

func serveWith(t *testing.T, c HTTP, h http.Handler) (address string) {
	t.Helper()
	ln, err := Listen("127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.serve(ctx, ln, h, grace) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	return conn
}

func write(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	_, err := io.WriteString(conn, text)
	require.NoError(t, err)
}

// ended reads a connection until its end.
func ended(t *testing.T, conn net.Conn) {
	t.Helper()
	_, err := io.Copy(io.Discard, conn)
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		t.Error("the connection is still open")
	}
}

func TestHTTP_Full_ClosesLongestWaiting(t *testing.T) {
	t.Parallel()
	inside, goOn := make(chan struct{}), make(chan struct{})
	address := serveWith(t, HTTP{MaxConnections: 3}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(inside)
			<-goOn
		}
	}))
	busy := dial(t, address)
	write(t, busy, "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
	<-inside
	half := dial(t, address)
	write(t, half, "GET / HTTP/1.1\r\nHost: x\r\n") // an incomplete header
	idle := dial(t, address)
	write(t, idle, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	answer, err := http.ReadResponse(bufio.NewReader(idle), nil)
	require.NoError(t, err)
	_ = answer.Body.Close()

	// Each new connection replaces the longest waiting one, and never the answering one.
	for _, oldest := range []net.Conn{half, idle} {
		fresh := dial(t, address)
		ended(t, oldest)
		write(t, fresh, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		answer, err := http.ReadResponse(bufio.NewReader(fresh), nil)
		require.NoError(t, err)
		_ = answer.Body.Close()
	}
	close(goOn)
	answer, err = http.ReadResponse(bufio.NewReader(busy), nil)
	require.NoError(t, err)
	_ = answer.Body.Close()
}

func TestHTTP_AllBusy_RejectsConnection(t *testing.T) {
	t.Parallel()
	inside, goOn := make(chan struct{}), make(chan struct{})
	address := serveWith(t, HTTP{MaxConnections: 1}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(inside)
		<-goOn
	}))
	busy := dial(t, address)
	write(t, busy, "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
	<-inside
	ended(t, dial(t, address))
	close(goOn)
	answer, err := http.ReadResponse(bufio.NewReader(busy), nil)
	require.NoError(t, err)
	_ = answer.Body.Close()
}

func TestHTTP_SlowClients_AreDisconnected(t *testing.T) {
	t.Parallel()
	const limit = 200 * time.Millisecond
	written := make(chan error, 1)
	address := serveWith(t, HTTP{HeaderTimeout: limit, ReadTimeout: 2 * limit, WriteTimeout: 3 * limit, IdleTimeout: limit},
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err != nil || r.URL.Path != "/big" {
				return
			}
			piece := make([]byte, 1<<20)
			for {
				if _, err := w.Write(piece); err != nil {
					written <- err
					return
				}
			}
		}))
	for name, sent := range map[string]string{
		"that sends nothing":           "",
		"that sends half a header":     "GET / HTTP/1.1\r\nHost: x\r\n",
		"that sends half a body":       "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n{",
		"that sends no second request": "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := dial(t, address)
			write(t, conn, sent)
			ended(t, conn)
		})
	}
	t.Run("that does not read", func(t *testing.T) {
		t.Parallel()
		write(t, dial(t, address), "GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
		select {
		case <-written:
		case <-time.After(patience):
			t.Error("the answer is still being written")
		}
	})
}

// A proxy that uses the other header would have forwarded the second request as a part of the first.
func TestHTTP_AmbiguousLength_ClosesConnection(t *testing.T) {
	t.Parallel()
	const hidden = "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"
	for name, sent := range map[string]string{
		"chunked with a length":     "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 45\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"chunked":                   "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
		"HTTP/1.0 that stays":       "POST / HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx",
		"HTTP/1.0 that has chunks":  "POST / HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\nx",
		"two lengths":               "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\n",
		"a space before the colon":  "POST / HTTP/1.1\r\nHost: x\r\nContent-Length : 5\r\n\r\n",
		"a coding that is not ours": "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\nContent-Length: 0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen atomic.Int32
			address := serveWith(t, HTTP{}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if strings.Contains(r.URL.Path, "hidden") {
					seen.Add(1)
				}
			}))
			conn := dial(t, address)
			write(t, conn, sent+hidden)
			ended(t, conn)
			if seen.Load() != 0 {
				t.Error("the second request was parsed")
			}
		})
	}
	t.Run("and one of a certain length is followed by another", func(t *testing.T) {
		t.Parallel()
		seen := make(chan struct{})
		address := serveWith(t, HTTP{}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/hidden" {
				close(seen)
			}
		}))
		write(t, dial(t, address), "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx"+hidden)
		select {
		case <-seen:
		case <-time.After(patience):
			t.Error("the second request was not parsed")
		}
	})
}

func TestHTTP_InvalidLimits_AreReported(t *testing.T) {
	t.Parallel()
	if err := (HTTP{MaxConnections: -1}).Validate(); err == nil || !strings.Contains(err.Error(), "KEB_HTTP_MAX_CONNECTIONS") {
		t.Errorf("KEB_HTTP_MAX_CONNECTIONS is not named: %v", err)
	}
	if err := (HTTP{}).Validate(); err != nil {
		t.Error(err)
	}
}
