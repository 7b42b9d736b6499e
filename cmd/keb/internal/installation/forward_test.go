package installation

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kyma-project/keb/libs/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestForward_Connections_AreForwarded(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(append([]byte("got "), body...))
	}))
	defer server.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- forward(ctx, testkit.Logger(t), ln, server.Listener.Addr().String()) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	for range 3 {
		answer, err := client.Post("http://"+ln.Addr().String(), "text/plain", http.NoBody)
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || string(body) != "got " {
			t.Errorf("answer %q, error %v", body, err)
		}
	}
	// An open connection, such as the stream of the console, does not delay the end.
	held, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer held.Close()
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Run does not end")
	}
}

func TestForward_NoReplica_ClosesConnection(t *testing.T) {
	const target = "127.0.0.1:1" // a free port might be taken by another test
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- forward(ctx, testkit.Logger(t), ln, target) }()
	conn, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection is not closed: %v", err)
	}
	_ = conn.Close()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestParseForwardRule_Rules_AreValidated(t *testing.T) {
	for text, want := range map[string]ForwardRule{
		"8080=broker:8080":               {Listen: ":8080", Target: "broker:8080"},
		"127.0.0.1:81=orchestrator:8081": {Listen: "127.0.0.1:81", Target: "orchestrator:8081"},
	} {
		if got, err := ParseForwardRule(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "8080", "8080=", "=broker:8080", "8080=broker"} {
		if _, err := ParseForwardRule(text); err == nil {
			t.Errorf("%q is accepted as a rule", text)
		}
	}
}

// busy is a listener whose first calls of Accept fail.
type busy struct {
	net.Listener
	refused int
	asked   []time.Time
}

func (b *busy) Accept() (net.Conn, error) {
	b.asked = append(b.asked, time.Now())
	if len(b.asked) <= b.refused {
		return nil, errors.New("too many open files")
	}
	return b.Listener.Accept()
}

func TestForward_AcceptFails_IsRetried(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	b := &busy{Listener: ln, refused: 4}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- forward(ctx, testkit.Logger(t), b, "127.0.0.1:1") }()
	c, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	_, _ = io.Copy(io.Discard, c) // the connection is accepted, and closed because there is no replica
	_ = c.Close()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	// 5, 10, 20 and 40 ms.
	if waited := b.asked[4].Sub(b.asked[0]); waited < 75*time.Millisecond {
		t.Errorf("accepted five times within %s", waited)
	}
}
