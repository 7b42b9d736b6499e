package tlsfiles

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// handshakeTimeout bounds a handshake of a Transport.
const handshakeTimeout = 10 * time.Second

// Client names the files of whoever connects. The zero value trusts what the system trusts and shows no certificate. The prefix that its
// methods take is that of its variables.
type Client struct {
	// CAFile holds certificates of the authorities whose servers are trusted, in PEM; without it those of the system are.
	CAFile string `env:"CA_FILE"`
	// CertFile holds the certificate that is shown to the server (mutual TLS), in PEM, and those between it and its authority; KeyFile its
	// key. Files that change are read again for the next connection.
	CertFile string `env:"CERT_FILE"`
	KeyFile  string `env:"KEY_FILE"`
}

// Enabled reports whether there is any file: TLS is then meant, and nothing else will do.
func (c Client) Enabled() bool { return c != Client{} }

// Validate reads the files, and names every variable that is missing or whose file cannot be used.
func (c Client) Validate(prefix string) error {
	_, err := c.Config(prefix)
	return err
}

// Config is the configuration of one connection, from what the files hold now. Whoever connects again asks again. The name of the
// server is left to the caller.
func (c Client) Config(prefix string) (*tls.Config, error) {
	cfg, err := c.config(prefix)
	if err != nil {
		return nil, &fileError{cause: err}
	}
	return cfg, nil
}

func (c Client) config(prefix string) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	cert, shown, err := c.certificate(prefix)
	if err != nil {
		return nil, err
	}
	if shown {
		// Not in Certificates: of those none is shown whose authority the server does not name, and the server then only says that there is none.
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
	}
	if cfg.RootCAs, err = c.roots(prefix); err != nil {
		return nil, err
	}
	return cfg, nil
}

// roots is nil for those of the system.
func (c Client) roots(prefix string) (*x509.CertPool, error) {
	if c.CAFile == "" {
		return nil, nil
	}
	return authorities(named{prefix + caSuffix, c.CAFile}, time.Now())
}

func (c Client) certificate(prefix string) (tls.Certificate, bool, error) {
	switch {
	case c.CertFile == "" && c.KeyFile == "":
		return tls.Certificate{}, false, nil
	case c.KeyFile == "":
		return tls.Certificate{}, false, fmt.Errorf("%s: is required with %s", prefix+keySuffix, prefix+certSuffix)
	case c.CertFile == "":
		return tls.Certificate{}, false, fmt.Errorf("%s: is required with %s", prefix+certSuffix, prefix+keySuffix)
	}
	cert, err := pair(named{prefix + certSuffix, c.CertFile}, named{prefix + keySuffix, c.KeyFile}, x509.ExtKeyUsageClientAuth, time.Now())
	return cert, err == nil, err
}

// Transport is http.DefaultTransport with files: certificates come from them, and an error of TLS says which variable to look at.
type Transport struct {
	*http.Transport
	files  Client
	prefix string
	// asked tells that a server has asked for a certificate.
	asked atomic.Bool
}

// Transport is for an http.Client, or in place of http.DefaultTransport. HTTP/2 is offered. Connections that are made later use what the
// files hold then. The caller closes idle connections when it is done.
func (c Client) Transport(prefix string) (*Transport, error) {
	atFirst, err := c.Config(prefix)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: handshakeTimeout, KeepAlive: 30 * time.Second}
	t := &Transport{files: c, prefix: prefix}
	t.Transport = &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
		MaxIdleConns: 100, IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: handshakeTimeout, ExpectContinueTimeout: time.Second,
		TLSClientConfig: atFirst, // behind a proxy, where DialTLSContext is not asked
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return t.dial(ctx, dialer, network, address)
		},
	}
	return t, nil
}

// RoundTrip sends a request. A server tells only after the handshake, in place of the first answer, that it does not take a certificate.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.Transport.RoundTrip(r)
	switch {
	case err == nil:
		return response, nil
	case t.asked.Load() && hungUp(err):
		// It may have hung up before its reason was read.
		return nil, &Error{Cause: err, Cure: "perhaps " + noCertificate(t.files, t.prefix)}
	}
	return nil, t.files.Explain(t.prefix, err)
}

// hungUp reports whether the server has closed the connection without a word that was heard.
func hungUp(err error) bool {
	for _, sign := range []error{syscall.EPIPE, syscall.ECONNRESET, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, sign) {
			return true
		}
	}
	// The client of HTTP/2 has no error for it that can be told by its type.
	return strings.Contains(err.Error(), "http2: client conn")
}

func (t *Transport) dial(ctx context.Context, dialer *net.Dialer, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	cfg, err := t.files.Config(t.prefix)
	if err != nil {
		return nil, err
	}
	show := cfg.GetClientCertificate
	cfg.GetClientCertificate = func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		t.asked.Store(true)
		if show == nil {
			return &tls.Certificate{}, nil // none
		}
		return show(info)
	}
	cfg.ServerName, cfg.NextProtos = host, []string{"h2", "http/1.1"}
	plain, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	conn := tls.Client(plain, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, ignoreClosed(plain.Close()))
	}
	return conn, nil
}

// ignoreClosed: a handshake that its context ends closes the connection itself.
func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// remoteAlert begins the text of what the other side says before it hangs up.
const remoteAlert = "remote error: tls: "

// IsTLS reports whether err is about certificates, their files or versions of TLS, which no waiting mends.
func IsTLS(err error) bool {
	if _, ok := errors.AsType[*fileError](err); ok {
		return true
	}
	return cureFor(Client{}, "", err) != ""
}

// fileError is what is wrong with the files of a Client.
type fileError struct{ cause error }

// Error is the cause.
func (e *fileError) Error() string { return e.cause.Error() }

// Unwrap is the cause.
func (e *fileError) Unwrap() error { return e.cause }

// Error is a failed connection of TLS, with what to do about it.
type Error struct {
	Cause error
	Cure  string
}

// Error is the cause, and then the cure.
func (e *Error) Error() string { return e.Cause.Error() + "; " + e.Cure }

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Explain makes an *Error of an error of TLS, which says which variable to look at. Any other error comes back as it is.
func (c Client) Explain(prefix string, err error) error {
	if cure := cureFor(c, prefix, err); cure != "" {
		return &Error{Cause: err, Cure: cure}
	}
	return err
}

func cureFor(c Client, prefix string, err error) string {
	if err == nil {
		return ""
	}
	if cure := untrusted(c, prefix, err); cure != "" {
		return cure
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return "the server at this port does not speak TLS"
	}
	text := err.Error()
	_, alert, ok := strings.Cut(text, remoteAlert)
	if !ok {
		if strings.Contains(text, "tls: server selected unsupported protocol version") || strings.Contains(text, "tls: no supported versions") {
			return "TLS 1.2 is the oldest version that is spoken here"
		}
		return ""
	}
	switch {
	case strings.HasPrefix(alert, "certificate required"):
		return noCertificate(c, prefix)
	case strings.HasPrefix(alert, "bad certificate") && c.CertFile == "":
		return noCertificate(c, prefix)
	case strings.HasPrefix(alert, "bad certificate"), strings.HasPrefix(alert, "unknown certificate"), // also its authority
		strings.HasPrefix(alert, "expired certificate"),
		strings.HasPrefix(alert, "revoked certificate"), strings.HasPrefix(alert, "unsupported certificate"):
		return fmt.Sprintf("the server does not take the certificate in %s: is it still valid, and of an authority that the server knows?", prefix+certSuffix)
	case strings.HasPrefix(alert, "protocol version not supported"):
		return "the server speaks other versions of TLS; 1.2 is the oldest that is spoken here"
	}
	return "the server has refused the TLS connection"
}

func noCertificate(c Client, prefix string) string {
	if c.CertFile != "" {
		return fmt.Sprintf("the server does not take the certificate in %s", prefix+certSuffix)
	}
	return fmt.Sprintf("the server demands a certificate: set %s and %s", prefix+certSuffix, prefix+keySuffix)
}

// untrusted is about the certificate of the server.
func untrusted(c Client, prefix string, err error) string {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		if c.CAFile == "" {
			return fmt.Sprintf("set %s to the certificate of the server's authority", prefix+caSuffix)
		}
		return fmt.Sprintf("the server's certificate is of none of the authorities in %s", prefix+caSuffix)
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "the server's certificate is not for this name: use one of its names in the address, or give the server a certificate for this one"
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		if invalid.Reason == x509.Expired {
			return "the server's certificate must be renewed"
		}
		return "the server's certificate cannot be used"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fmt.Sprintf("the server's certificate cannot be verified with %s", prefix+caSuffix)
	}
	return ""
}
