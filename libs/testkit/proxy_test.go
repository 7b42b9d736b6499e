package testkit

import (
	"bufio"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// echo starts a server that echoes every line.
func echo(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			})
		}
	})
	t.Cleanup(func() { _ = ln.Close(); serving.Wait() })
	return ln.Addr().String()
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
	return c
}

func say(c net.Conn, line string) (string, error) {
	if _, err := io.WriteString(c, line+"\n"); err != nil {
		return "", err
	}
	answer, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(answer), err
}

func TestProxy_CutAndRestore_BreakConnections(t *testing.T) {
	t.Parallel()
	p := Proxy(t, echo(t))
	c := dial(t, p.Addr())
	if got, err := say(c, "hello"); got != "hello" || err != nil {
		t.Fatalf("got %q, %v", got, err)
	}
	p.Cut()
	if got, err := say(c, "still there?"); err == nil {
		t.Errorf("the connection that was cut answers %q", got)
	}
	if got, err := say(dial(t, p.Addr()), "a new one?"); err == nil {
		t.Errorf("a new connection answers %q", got)
	}
	p.Restore()
	Eventually(t, time.Minute, "a new connection works", func() bool {
		got, err := say(dial(t, p.Addr()), "again")
		return got == "again" && err == nil
	})
}

func TestProxy_Delay_AppliesBothWays(t *testing.T) {
	t.Parallel()
	const delay = 50 * time.Millisecond
	p := Proxy(t, echo(t))
	c := dial(t, p.Addr())
	p.Delay(delay)
	begin := time.Now()
	_, err := say(c, "slow")
	require.NoError(t, err)
	if took := time.Since(begin); took < 2*delay {
		t.Errorf("took %s, want at least %s", took, 2*delay)
	}
}

func TestProxy_Stall_KeepsConnection(t *testing.T) {
	t.Parallel()
	p := Proxy(t, echo(t))
	c := dial(t, p.Addr())
	p.Stall()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	if got, err := say(c, "one"); err == nil {
		t.Fatalf("the stalled proxy passed on %q", got)
	}
	p.Restore()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	if got, err := bufio.NewReader(c).ReadString('\n'); got != "one\n" || err != nil {
		t.Errorf("after Restore: got %q, %v, want what was held back", got, err)
	}
}

func TestProxy_Silence_KeepsNewConnections(t *testing.T) {
	t.Parallel()
	p := Proxy(t, echo(t))
	c := dial(t, p.Addr())
	if got, err := say(c, "hello"); got != "hello" || err != nil {
		t.Fatalf("got %q, %v", got, err)
	}
	p.Silence()
	if got, err := say(dial(t, p.Addr()), "a new one"); got != "a new one" || err != nil {
		t.Errorf("a new connection: got %q, %v", got, err)
	}
	require.NoError(t, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	if got, err := say(c, "still there?"); err == nil {
		t.Errorf("the silenced connection passed on %q", got)
	}
}

func TestProxy_StalledAtTestEnd_Ends(t *testing.T) {
	t.Parallel()
	t.Run("stalled", func(t *testing.T) {
		p := Proxy(t, echo(t))
		c := dial(t, p.Addr())
		p.Stall()
		_, err := io.WriteString(c, "held\n")
		require.NoError(t, err)
	})
}
