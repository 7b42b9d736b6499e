package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"
)

// lookEvery is the minimum interval of the checks for changed files, which new connections trigger.
const lookEvery = time.Second

// Server names the TLS files of an address. The zero value disables TLS. The prefix parameter of the methods is the prefix of the variables.
type Server struct {
	// CertFile contains the certificate and its intermediate certificates in PEM; KeyFile contains its key. Without them TLS is off.
	// Changed files are read again.
	CertFile string `env:"CERT_FILE"`
	KeyFile  string `env:"KEY_FILE"`
	// ClientCAFile contains authorities. A client must then present a certificate of one of them (mutual TLS).
	ClientCAFile string `env:"CLIENT_CA_FILE"`
}

// Enabled reports whether the address has TLS.
func (s Server) Enabled() bool { return s.CertFile != "" }

// Mutual reports whether clients need a certificate.
func (s Server) Mutual() bool { return s.ClientCAFile != "" }

// Validate reads the files. It reports every variable that is missing or whose file is invalid.
func (s Server) Validate(prefix string) error {
	if err := s.complete(prefix); err != nil || !s.Enabled() {
		return err
	}
	_, err := s.load(prefix, tls.RequireAndVerifyClientCert, time.Now())
	return err
}

func (s Server) complete(prefix string) error {
	switch {
	case s.CertFile != "" && s.KeyFile == "":
		return fmt.Errorf("%s: is required with %s", prefix+keySuffix, prefix+certSuffix)
	case s.CertFile == "" && s.KeyFile != "":
		return fmt.Errorf("%s: is required with %s", prefix+certSuffix, prefix+keySuffix)
	case s.CertFile == "" && s.ClientCAFile != "":
		return fmt.Errorf("%s: has no effect without %s and %s", prefix+clientCASuffix, prefix+certSuffix, prefix+keySuffix)
	}
	return nil
}

// Demand determines which connections need a client certificate if Mutual is true.
type Demand int

const (
	// Always rejects a connection without a certificate.
	Always Demand = iota
	// WhereAsked accepts connections without a certificate. The handler decides where one is required (http.Request.TLS.VerifiedChains).
	// A presented certificate must be valid.
	WhereAsked
)

func (d Demand) clientAuth() tls.ClientAuthType {
	if d == WhereAsked {
		return tls.VerifyClientCertIfGiven
	}
	return tls.RequireAndVerifyClientCert
}

// Listen returns a TLS listener on ln; without files it returns ln itself. New connections use changed files within a second. While those are
// invalid, Listen logs the error and uses the previous content. HTTP/2 is offered.
func (s Server) Listen(ln net.Listener, prefix string, demand Demand, log *slog.Logger) (net.Listener, error) {
	if err := s.complete(prefix); err != nil || !s.Enabled() {
		return ln, err
	}
	c := &current{files: s, prefix: prefix, auth: demand.clientAuth(), log: log, now: time.Now}
	if err := c.start(); err != nil {
		return nil, err
	}
	// The configuration of a connection comes from current. MinVersion is only for tools that inspect this one.
	outer := &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: c.config}
	return &listener{Listener: tls.NewListener(ln, outer), refusals: &refusals{prefix: prefix, log: log, now: time.Now}}, nil
}

// load creates the configuration of connections from the current content of the files.
func (s Server) load(prefix string, auth tls.ClientAuthType, now time.Time) (*tls.Config, error) {
	cert, err := pair(named{prefix + certSuffix, s.CertFile}, named{prefix + keySuffix, s.KeyFile}, x509.ExtKeyUsageServerAuth, now)
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"}}
	if s.Mutual() {
		cfg.ClientAuth = auth
		if cfg.ClientCAs, err = authorities(named{prefix + clientCASuffix, s.ClientCAFile}, now); err != nil {
			return nil, err
		}
	}
	return cfg, nil
}

// current is the configuration of new connections.
type current struct {
	files  Server
	prefix string
	auth   tls.ClientAuthType
	log    *slog.Logger
	now    func() time.Time

	mu      sync.Mutex
	cfg     *tls.Config
	marks   [3]mark
	looked  time.Time
	refused string // the last logged error
}

func (c *current) start() error {
	c.marks, c.looked = c.files.marks(), c.now()
	cfg, err := c.files.load(c.prefix, c.auth, c.looked)
	if err != nil {
		return err
	}
	c.cfg = cfg
	c.log.Info("tls is on", "variable", c.prefix+certSuffix, "not_after", cfg.Certificates[0].Leaf.NotAfter, "client_certificates", c.files.Mutual())
	return nil
}

// config returns the configuration of a connection.
func (c *current) config(*tls.ClientHelloInfo) (*tls.Config, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if now.Sub(c.looked) < lookEvery {
		return c.cfg, nil
	}
	c.looked = now
	// Take the marks before reading the files, so that a change in between is detected the next time.
	marks := c.files.marks()
	if marks == c.marks && c.refused == "" {
		return c.cfg, nil
	}
	cfg, err := c.files.load(c.prefix, c.auth, now)
	if err != nil {
		if c.refused != err.Error() {
			c.refused = err.Error()
			c.log.Error("tls files have changed and cannot be used, the old ones stay in use", "err", err)
		}
		return c.cfg, nil
	}
	c.cfg, c.marks, c.refused = cfg, marks, ""
	c.log.Info("tls files read again", "variable", c.prefix+certSuffix, "not_after", cfg.Certificates[0].Leaf.NotAfter)
	return c.cfg, nil
}

// mark distinguishes two contents of a file without reading it.
type mark struct {
	real     string
	modified time.Time
	size     int64
}

func (s Server) marks() (all [3]mark) {
	for i, path := range []string{s.CertFile, s.KeyFile, s.ClientCAFile} {
		all[i] = markOf(path)
	}
	return all
}

// markOf returns the zero mark for a missing file. Kubernetes replaces a folder behind a symbolic link. The real path detects that, even if
// the new file has the same size and time.
func markOf(path string) mark {
	info, err := os.Stat(path)
	if path == "" || err != nil {
		return mark{}
	}
	return mark{real: realPath(path), modified: info.ModTime(), size: info.Size()}
}
