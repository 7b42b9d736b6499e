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

// lookEvery is how often files are looked at, when somebody connects.
const lookEvery = time.Second

// Server names the files of an address. The zero value has no TLS. The prefix that its methods take is that of its variables.
type Server struct {
	// CertFile holds the certificate in PEM, and those between it and its authority; KeyFile its key. Without them there is no TLS.
	// Files that change are read again.
	CertFile string `env:"CERT_FILE"`
	KeyFile  string `env:"KEY_FILE"`
	// ClientCAFile holds certificates of authorities: a client must then show a certificate that one of them has signed (mutual TLS).
	ClientCAFile string `env:"CLIENT_CA_FILE"`
}

// Enabled reports whether the address has TLS.
func (s Server) Enabled() bool { return s.CertFile != "" }

// Mutual reports whether clients need a certificate.
func (s Server) Mutual() bool { return s.ClientCAFile != "" }

// Validate reads the files, and names every variable that is missing or whose file cannot be used.
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
		return fmt.Errorf("%s: means nothing without %s and %s", prefix+clientCASuffix, prefix+certSuffix, prefix+keySuffix)
	}
	return nil
}

// Demand says what a client must show where Mutual is on.
type Demand int

const (
	// Always refuses a connection without a certificate.
	Always Demand = iota
	// WhereAsked lets connections without one in, and leaves it to the handler who needs one (http.Request.TLS.VerifiedChains).
	// A certificate that is shown must be good.
	WhereAsked
)

func (d Demand) clientAuth() tls.ClientAuthType {
	if d == WhereAsked {
		return tls.VerifyClientCertIfGiven
	}
	return tls.RequireAndVerifyClientCert
}

// Listen makes ln speak TLS; without files it returns ln as it is. Files that have changed are used for new connections, within a second;
// while they cannot be used the old ones are, and log says why. HTTP/2 is offered.
func (s Server) Listen(ln net.Listener, prefix string, demand Demand, log *slog.Logger) (net.Listener, error) {
	if err := s.complete(prefix); err != nil || !s.Enabled() {
		return ln, err
	}
	c := &current{files: s, prefix: prefix, auth: demand.clientAuth(), log: log, now: time.Now}
	if err := c.start(); err != nil {
		return nil, err
	}
	// The configuration of a connection comes from current; the version here is for those that look at this one.
	outer := &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: c.config}
	return &listener{Listener: tls.NewListener(ln, outer), refusals: &refusals{prefix: prefix, log: log, now: time.Now}}, nil
}

// load makes the configuration of connections from what the files hold now.
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

// current is what new connections get.
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
	refused string // the last problem that was logged
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

// config is asked once for each connection.
func (c *current) config(*tls.ClientHelloInfo) (*tls.Config, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if now.Sub(c.looked) < lookEvery {
		return c.cfg, nil
	}
	c.looked = now
	// Marks are taken before the files are read: a change in between is seen the next time.
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

// mark tells one content of a file from the next without reading it.
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

// markOf is zero for a file that is not there. Kubernetes exchanges a folder behind a symbolic link, which the real path shows even where
// the new file is as long and as old as the one before.
func markOf(path string) mark {
	info, err := os.Stat(path)
	if path == "" || err != nil {
		return mark{}
	}
	return mark{real: realPath(path), modified: info.ModTime(), size: info.Size()}
}
