package tlsfiles_test

import (
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/tlsfiles"
)

func TestTLS_MutualCertificates_Connect(t *testing.T) {
	t.Parallel()
	ca := testkit.NewCA(t, "ours")
	files := serverFiles(ca.Issue(t, testkit.Leaf{Hosts: []string{"127.0.0.1", "localhost"}}))
	shown := ca.Issue(t, testkit.Leaf{Name: "platform"})
	for name, tt := range map[string]struct {
		mutual bool
		client tlsfiles.Client
		want   string
	}{
		"tls":                        {false, tlsfiles.Client{CAFile: ca.File}, "HTTP/2.0 "},
		"mutual tls":                 {true, tlsfiles.Client{CAFile: ca.File, CertFile: shown.CertFile, KeyFile: shown.KeyFile}, "HTTP/2.0 platform"},
		"an unrequested certificate": {false, tlsfiles.Client{CAFile: ca.File, CertFile: shown.CertFile, KeyFile: shown.KeyFile}, "HTTP/2.0 "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := files
			if tt.mutual {
				files.ClientCAFile = ca.File
			}
			s := serve(t, files, tlsfiles.Always, http.HandlerFunc(hello))
			c := client(t, tt.client)
			for _, host := range []string{"127.0.0.1", "localhost"} {
				if got, err := get(t, c, "https://"+host+":"+port(s.addr)); err != nil || got != tt.want {
					t.Errorf("%s: %q, %v; want %q", host, got, err, tt.want)
				}
			}
		})
	}
}

func TestTLS_Rejected_NamesTheVariable(t *testing.T) {
	t.Parallel()
	ca, other := testkit.NewCA(t, "ours"), testkit.NewCA(t, "theirs")
	good := ca.Issue(t, testkit.Leaf{Hosts: []string{"127.0.0.1"}})
	ours, theirs := ca.Issue(t, testkit.Leaf{Name: "ours"}), other.Issue(t, testkit.Leaf{Name: "theirs"})
	mutual := tlsfiles.Server{CertFile: good.CertFile, KeyFile: good.KeyFile, ClientCAFile: ca.File}
	for name, tt := range map[string]struct {
		server        tlsfiles.Server
		client        tlsfiles.Client
		url           string
		says, logSays []string
	}{
		"an authority that the client does not know": {
			server: serverFiles(good), client: tlsfiles.Client{CAFile: other.File},
			says:    []string{"none of the authorities in KEB_CA_FILE"},
			logSays: []string{"does not take the certificate in KEB_TLS_CERT_FILE"},
		},
		"no authority named": {
			server: serverFiles(good), says: []string{"set KEB_CA_FILE"},
		},
		"another host name": {
			server: serverFiles(good), client: tlsfiles.Client{CAFile: ca.File}, url: "https://localhost:",
			says: []string{"localhost", "the server's certificate is not for this name"},
		},
		"no client certificate": {
			server: mutual, client: tlsfiles.Client{CAFile: ca.File},
			says: []string{"the server demands a certificate: set KEB_CERT_FILE and KEB_KEY_FILE"}, logSays: []string{"KEB_TLS_CLIENT_CA_FILE demands one"},
		},
		"a client certificate of another authority": {
			server: mutual, client: tlsfiles.Client{CAFile: ca.File, CertFile: theirs.CertFile, KeyFile: theirs.KeyFile},
			says: []string{"does not take the certificate in KEB_CERT_FILE"}, logSays: []string{"only clients of the authorities in KEB_TLS_CLIENT_CA_FILE"},
		},
		"a server without tls": {
			client: tlsfiles.Client{CAFile: ca.File, CertFile: ours.CertFile, KeyFile: ours.KeyFile},
			says:   []string{"the server at this port does not speak TLS"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, tt.server, tlsfiles.Always, http.HandlerFunc(hello))
			url := tt.url
			if url == "" {
				url = "https://127.0.0.1:"
			}
			got, err := get(t, client(t, tt.client), url+port(s.addr))
			if err == nil {
				t.Fatalf("answered %q", got)
			}
			wantAll(t, err.Error(), tt.says...)
			for _, want := range tt.logSays {
				testkit.Eventually(t, time.Minute, "the log says "+want, func() bool { return strings.Contains(s.log.String(), want) })
			}
		})
	}
}

// The certificate expires while the server runs. Only new connections detect it.
func TestClient_ExpiredCertificate_IsRejected(t *testing.T) {
	t.Parallel()
	err := asked(t, testkit.Leaf{Hosts: []string{"127.0.0.1"}, NotAfter: time.Now().Add(-time.Minute)}, &tls.Config{})
	if err == nil {
		t.Fatal("answered")
	}
	wantAll(t, err.Error(), "expired", "the server's certificate must be renewed")
}

// asked returns the error of a client for a server that does not belong to the product.
func asked(t *testing.T, leaf testkit.Leaf, server *tls.Config) error {
	t.Helper()
	ca := testkit.NewCA(t, "ours")
	pair := ca.Issue(t, leaf)
	cert, err := tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile)
	require.NoError(t, err)
	server.Certificates = []tls.Certificate{cert}
	ln, err := tls.Listen("tcp", "127.0.0.1:0", server)
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if conn, err := ln.Accept(); err == nil {
			_ = conn.(*tls.Conn).HandshakeContext(t.Context()) // the client's error is checked
			_ = conn.Close()
		}
	}()
	_, err = get(t, client(t, tlsfiles.Client{CAFile: ca.File}), "https://"+ln.Addr().String())
	_ = ln.Close()
	<-ended
	return err
}

func TestServer_NoTLS_ReturnsClearError(t *testing.T) {
	t.Parallel()
	ca := testkit.NewCA(t, "ours")
	s := serve(t, serverFiles(ca.Issue(t, testkit.Leaf{Hosts: []string{"127.0.0.1"}})), tlsfiles.Always, http.HandlerFunc(hello))
	got, err := get(t, client(t, tlsfiles.Client{}), "http://"+s.addr)
	if err != nil || !strings.Contains(got, "HTTP request to an HTTPS server") {
		t.Errorf("got %q, %v", got, err)
	}
	testkit.Eventually(t, time.Minute, "the log says what is wrong", func() bool {
		return strings.Contains(s.log.String(), "HTTP request to an HTTPS server")
	})
}

func TestServer_OtherProtocol_ClosesConnection(t *testing.T) {
	t.Parallel()
	ca := testkit.NewCA(t, "ours")
	s := serve(t, serverFiles(ca.Issue(t, testkit.Leaf{Hosts: []string{"127.0.0.1"}})), tlsfiles.Always, http.HandlerFunc(hello))
	conn, err := net.Dial("tcp", s.addr)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = conn.Write([]byte("CONNECT {}\r\n"))
	require.NoError(t, err)
	testkit.Eventually(t, time.Minute, "the log says what is wrong", func() bool {
		return strings.Contains(s.log.String(), "the client speaks without TLS")
	})
}

func TestServer_OldTLSVersion_IsRejected(t *testing.T) {
	t.Parallel()
	ca := testkit.NewCA(t, "ours")
	s := serve(t, serverFiles(ca.Issue(t, testkit.Leaf{Hosts: []string{"127.0.0.1"}})), tlsfiles.Always, http.HandlerFunc(hello))
	for version, allowed := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		dialer := tls.Dialer{Config: &tls.Config{RootCAs: ca.Pool(), MinVersion: version, MaxVersion: version}}
		conn, err := dialer.DialContext(t.Context(), "tcp", s.addr)
		if err == nil {
			_ = conn.Close()
		}
		if allowed != (err == nil) {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
		if !allowed && !strings.Contains(err.Error(), "protocol version not supported") {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
	}
}

func TestClient_OldTLSVersion_IsRejected(t *testing.T) {
	t.Parallel()
	old := &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	if err := asked(t, testkit.Leaf{Hosts: []string{"127.0.0.1"}}, old); err == nil || !strings.Contains(err.Error(), "1.2 is the oldest") {
		t.Errorf("error %v", err)
	}
}

// The metrics route checks the certificate in the handler, so that health needs none.
func TestServer_WhereAsked_AcceptsNoCertificate(t *testing.T) {
	t.Parallel()
	ca, other := testkit.NewCA(t, "ours"), testkit.NewCA(t, "theirs")
	good := ca.Issue(t, testkit.Leaf{Hosts: []string{"127.0.0.1"}})
	theirs := other.Issue(t, testkit.Leaf{Name: "theirs"})
	s := serve(t, tlsfiles.Server{CertFile: good.CertFile, KeyFile: good.KeyFile, ClientCAFile: ca.File}, tlsfiles.WhereAsked, http.HandlerFunc(hello))
	if got, err := get(t, client(t, tlsfiles.Client{CAFile: ca.File}), "https://"+s.addr); err != nil || got != "HTTP/2.0 " {
		t.Errorf("without: %q, %v", got, err)
	}
	if got, err := get(t, client(t, tlsfiles.Client{CAFile: ca.File, CertFile: theirs.CertFile, KeyFile: theirs.KeyFile}), "https://"+s.addr); err == nil {
		t.Errorf("a certificate of another authority: answered %q", got)
	}
}

func TestListen_NoFiles_ReturnsListener(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = ln.Close() }()
	if got, err := (tlsfiles.Server{}).Listen(ln, "KEB_TLS_", tlsfiles.Always, nil); err != nil || got != ln {
		t.Errorf("%v, %v", got, err)
	}
}
