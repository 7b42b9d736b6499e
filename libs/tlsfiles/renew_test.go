package tlsfiles_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/tlsfiles"
)

// shownBy returns the common name of the certificate that a server presents to a new connection.
func shownBy(t *testing.T, ca *testkit.CA, addr string) string {
	t.Helper()
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: ca.Pool()}}
	conn, err := dialer.DialContext(t.Context(), "tcp", addr)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].Subject.CommonName
}

func leaf(name string) testkit.Leaf {
	return testkit.Leaf{Name: name, Hosts: []string{"127.0.0.1"}}
}

// ticks is a stream that lasts until the client or the server ends it.
func ticks(w http.ResponseWriter, r *http.Request) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		if _, err := fmt.Fprintln(w, n); err != nil {
			return
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-service.Stopping(r.Context()):
			return
		case <-tick.C:
		}
	}
}

func TestServer_CertificateRenewed_KeepsStream(t *testing.T) {
	t.Parallel()
	ca := testkit.NewCA(t, "ours")
	pair := ca.Issue(t, leaf("first"))
	mux := http.NewServeMux()
	mux.HandleFunc("/", hello)
	mux.HandleFunc("/ticks", ticks)
	s := serve(t, serverFiles(pair), tlsfiles.Always, mux)

	// Run a stream, and requests with a new connection each.
	stream := client(t, tlsfiles.Client{CAFile: ca.File})
	ctx, stop := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+s.addr+"/ticks", nil)
	require.NoError(t, err)
	res, err := stream.Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	var seen, answered, failed atomic.Int64
	var background sync.WaitGroup
	background.Go(func() {
		lines := bufio.NewScanner(res.Body)
		for lines.Scan() {
			if lines.Text() != fmt.Sprint(seen.Load()) {
				t.Errorf("the stream continues with %q, want %d", lines.Text(), seen.Load())
			}
			seen.Add(1)
		}
		if ctx.Err() == nil {
			t.Errorf("the stream has ended: %v", lines.Err())
		}
	})
	for range 2 {
		background.Go(func() {
			transport, err := tlsfiles.Client{CAFile: ca.File}.Transport("KEB_")
			if err != nil {
				t.Error(err)
				return
			}
			transport.DisableKeepAlives = true
			for ctx.Err() == nil {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+s.addr, nil)
				if err != nil {
					t.Error(err)
					return
				}
				answer, err := (&http.Client{Transport: transport}).Do(req)
				if err == nil {
					_, err = io.Copy(io.Discard, answer.Body)
					_ = answer.Body.Close()
				}
				switch {
				case ctx.Err() != nil:
				case err != nil:
					failed.Add(1)
					t.Errorf("a request failed: %v", err)
				default:
					answered.Add(1)
				}
			}
		})
	}
	for n := range 2 {
		name := fmt.Sprintf("renewed %d", n)
		ca.Renew(t, pair, leaf(name))
		testkit.Eventually(t, time.Minute, "the new certificate is shown", func() bool { return shownBy(t, ca, s.addr) == name })
	}
	before := seen.Load()
	testkit.Eventually(t, time.Minute, "the stream goes on", func() bool { return seen.Load() > before })
	stop()
	background.Wait()
	t.Logf("%d requests answered and %d failed, and %d ticks of a stream, while the certificate was renewed twice", answered.Load(), failed.Load(), seen.Load())
	if answered.Load() == 0 {
		t.Error("no request was made meanwhile")
	}
}

// Kubernetes replaces a folder behind a symbolic link.
func TestServer_FolderReplaced_UsesNewCertificate(t *testing.T) {
	t.Parallel()
	ca := testkit.NewCA(t, "ours")
	dir := t.TempDir()
	link := func(pair testkit.KeyPair) {
		t.Helper()
		require.NoError(t, os.Symlink(filepath.Dir(pair.CertFile), filepath.Join(dir, "new")))
		require.NoError(t, os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "..data")))
	}
	first, second := ca.Issue(t, leaf("first")), ca.Issue(t, leaf("second"))
	// The two versions differ only in their folder.
	when := time.Now().Add(-time.Hour)
	for _, path := range []string{first.CertFile, first.KeyFile, second.CertFile, second.KeyFile} {
		require.NoError(t, os.Chtimes(path, when, when))
	}
	link(first)
	files := tlsfiles.Server{CertFile: filepath.Join(dir, "..data", "tls.crt"), KeyFile: filepath.Join(dir, "..data", "tls.key")}
	s := serve(t, files, tlsfiles.Always, http.HandlerFunc(hello))
	if got := shownBy(t, ca, s.addr); got != "first" {
		t.Fatalf("the server shows %q", got)
	}
	link(second)
	testkit.Eventually(t, time.Minute, "the new certificate is shown", func() bool { return shownBy(t, ca, s.addr) == "second" })
}

func TestServer_InvalidNewFiles_KeepsOldOnes(t *testing.T) {
	t.Parallel()
	ca := testkit.NewCA(t, "ours")
	pair := ca.Issue(t, leaf("first"))
	s := serve(t, serverFiles(pair), tlsfiles.Always, http.HandlerFunc(hello))
	require.NoError(t, os.WriteFile(pair.KeyFile, []byte("half a key"), 0o600))
	testkit.Eventually(t, time.Minute, "the log says what is wrong", func() bool {
		if got := shownBy(t, ca, s.addr); got != "first" {
			t.Fatalf("the server shows %q", got)
		}
		return strings.Contains(s.log.String(), "the old ones stay in use") && strings.Contains(s.log.String(), "KEB_TLS_KEY_FILE")
	})
	ca.Renew(t, pair, leaf("second"))
	testkit.Eventually(t, time.Minute, "good files are taken again", func() bool { return shownBy(t, ca, s.addr) == "second" })
	if n := strings.Count(s.log.String(), "cannot be used"); n != 1 {
		t.Errorf("the log contains it %d times", n)
	}
}

func TestClient_CertificateRenewed_IsUsed(t *testing.T) {
	t.Parallel()
	ca := testkit.NewCA(t, "ours")
	pair := ca.Issue(t, leaf("server"))
	shown := ca.Issue(t, testkit.Leaf{Name: "first"})
	s := serve(t, tlsfiles.Server{CertFile: pair.CertFile, KeyFile: pair.KeyFile, ClientCAFile: ca.File}, tlsfiles.Always, http.HandlerFunc(hello))
	c := client(t, tlsfiles.Client{CAFile: ca.File, CertFile: shown.CertFile, KeyFile: shown.KeyFile})
	for _, name := range []string{"first", "second"} {
		ca.Renew(t, shown, testkit.Leaf{Name: name})
		c.CloseIdleConnections()
		if got, err := get(t, c, "https://"+s.addr); err != nil || got != "HTTP/2.0 "+name {
			t.Errorf("%q, %v; want %s", got, err, name)
		}
	}
}
