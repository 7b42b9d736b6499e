package bus_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/testkit"
)

func TestConnect_ServerIsDown_Waits(t *testing.T) {
	t.Parallel()
	s := testkit.NATS(t)
	url := s.URL()
	s.Shutdown()
	type result struct {
		b   *bus.Bus
		err error
	}
	done := make(chan result, 1)
	go func() {
		b, err := bus.Connect(t.Context(), bus.Config{URL: url}, bus.Deps{})
		done <- result{b, err}
	}()
	s.Restart(t)
	r := within(t, done, "connect returns")
	if r.err != nil {
		t.Fatal(r.err)
	}
	r.b.Close()
	r.b.Close()
}

// A proxy whose server is down accepts a connection and closes it.
func TestConnect_ServerBehindProxyIsDown_Waits(t *testing.T) {
	t.Parallel()
	s := testkit.NATS(t)
	address := strings.TrimPrefix(s.URL(), "nats://")
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 2 {
			if in, err := proxy.Accept(); err == nil {
				_ = in.Close()
			}
		}
		in, err := proxy.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", address)
		if err != nil {
			_ = in.Close()
			return
		}
		go func() {
			_, _ = io.Copy(out, in)
			_ = out.Close()
		}()
		_, _ = io.Copy(in, out)
		_ = in.Close()
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b, err := bus.Connect(ctx, bus.Config{URL: "nats://" + proxy.Addr().String()}, bus.Deps{})
	if err != nil {
		_ = proxy.Close()
		t.Fatal(err)
	}
	b.Close()
	_ = proxy.Close()
	<-done
}

// A slow network or a busy server is no reason to end a process that cannot connect.
func TestConnect_ServerRefuses_WaitsUnlessCredentialsAreWrong(t *testing.T) {
	t.Parallel()
	for refusal, waits := range map[string]bool{
		"Authentication Timeout": true, "maximum connections exceeded": true, "Authorization Violation": false,
	} {
		t.Run(refusal, func(t *testing.T) {
			t.Parallel()
			server, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan struct{})
			go func() {
				defer close(done)
				for n := 1; ; n++ {
					c, err := server.Accept()
					if err != nil {
						return
					}
					if n == 3 {
						cancel() // it has waited twice
					}
					_, _ = io.WriteString(c, "INFO {\"max_payload\": 1000}\r\n-ERR '"+refusal+"'\r\n")
					_, _ = c.Read(make([]byte, 1000)) // a close with unread data would lose the answer
					_ = c.Close()
				}
			}()
			_, err = bus.Connect(ctx, bus.Config{URL: "nats://" + server.Addr().String()}, bus.Deps{})
			if errors.Is(err, context.Canceled) != waits {
				t.Errorf("Connect returns %v, want that it waits: %t", err, waits)
			}
			_ = server.Close()
			<-done
		})
	}
}

func TestConnect_ContextEnds_ReturnsError(t *testing.T) {
	t.Parallel()
	s := testkit.NATS(t)
	url := strings.Replace(s.URL(), "nats://", "nats://user:canary@", 1)
	s.Shutdown()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := bus.Connect(ctx, bus.Config{URL: url}, bus.Deps{})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error is %v, want a deadline", err)
	}
	if strings.Contains(fmt.Sprint(err), "canary") {
		t.Errorf("error %q holds the password", err)
	}
}

func TestConnect_InvalidConfig_FailsImmediately(t *testing.T) {
	t.Parallel()
	s := testkit.NATSWith(t, testkit.NATSConfig{User: "keb", Password: "right"})
	if _, err := bus.Connect(t.Context(), bus.Config{URL: s.URL(), User: "keb", Password: "wrong"}, bus.Deps{}); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("wrong password: error is %v", err)
	}
	b, err := bus.Connect(t.Context(), bus.Config{URL: s.URL(), User: "keb", Password: "right"}, bus.Deps{})
	require.NoError(t, err)
	b.Close()
	for _, cfg := range []bus.Config{{}, {URL: "nats://[::1"}, {URL: s.URL(), Timeout: -1}} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := bus.Connect(ctx, cfg, bus.Deps{}); err == nil || ctx.Err() != nil {
			t.Errorf("connect with %+v succeeds", cfg)
		}
	}
}

// dialer stands for a server in this process.
type dialer string

func (d dialer) InProcessConn() (net.Conn, error) { return net.Dial("tcp", string(d)) }

func TestConnect_InProcess_UsesItsConnection(t *testing.T) {
	t.Parallel()
	s := testkit.NATS(t)
	b, err := bus.Connect(t.Context(), bus.Config{}, bus.Deps{InProcess: dialer(strings.TrimPrefix(s.URL(), "nats://"))})
	require.NoError(t, err)
	defer b.Close()
	require.NoError(t, b.EnsureStreams(t.Context()))
	if err := b.Publish(t.Context(), command(t, "a")); err != nil {
		t.Error(err)
	}
}

func TestConfig_LogValue_OmitsPassword(t *testing.T) {
	t.Parallel()
	cfg := bus.Config{URL: "nats://u:canary@h:1,nats://v:canary@h:2", Password: "canary"}
	if got := cfg.LogValue().String(); strings.Contains(got, "canary") || !strings.Contains(got, "h:2") {
		t.Errorf("log value is %s", got)
	}
}
