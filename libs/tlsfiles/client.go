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

// handshakeTimeout is the timeout of a handshake of a Transport.
const handshakeTimeout = 10 * time.Second

// Client names the TLS files of a client. The zero value trusts the system's authorities and has no certificate. The prefix parameter of
// the methods is the prefix of the variables.
type Client struct {
	// CAFile contains the trusted authorities of servers, in PEM. If it is empty, the system's authorities are trusted.
	CAFile string `env:"CA_FILE"`
	// CertFile contains the client certificate (mutual TLS) and its intermediate certificates in PEM; KeyFile contains its key. Changed files
	// are read again for the next connection.
	CertFile string `env:"CERT_FILE"`
	KeyFile  string `env:"KEY_FILE"`
}

// Enabled reports whether any file is set. TLS is then mandatory.
func (c Client) Enabled() bool { return c != Client{} }

// Validate reads the files. It reports every variable that is missing or whose file is invalid.
func (c Client) Validate(prefix string) error {
	_, err := c.Config(prefix)
	return err
}

// Config returns the configuration of one connection with the current content of the files. Call it for each connection. The caller sets
// the name of the server.
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
		// A certificate in Certificates is sent only if the server names its authority. Otherwise the server reports a missing certificate.
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
	}
	if cfg.RootCAs, err = c.roots(prefix); err != nil {
		return nil, err
	}
	return cfg, nil
}

// roots returns nil for the system's authorities.
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

// Transport is http.DefaultTransport with certificates from files. TLS errors contain the name of the relevant variable.
type Transport struct {
	*http.Transport
	files  Client
	prefix string
	// asked reports whether a server has requested a certificate.
	asked atomic.Bool
}

// Transport returns a transport for an http.Client. It offers HTTP/2. New connections use the current content of the files. The caller must
// close idle connections.
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
		TLSClientConfig: atFirst, // for a proxy, where DialTLSContext is not called
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return t.dial(ctx, dialer, network, address)
		},
	}
	return t, nil
}

// RoundTrip sends a request. A server reports a rejected certificate only after the handshake, in place of the first answer.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.Transport.RoundTrip(r)
	switch {
	case err == nil:
		return response, nil
	case t.asked.Load() && hungUp(err):
		// The server may have closed the connection before its reason was read.
		return nil, &Error{Cause: err, Cure: "perhaps " + noCertificate(t.files, t.prefix)}
	}
	return nil, t.files.Explain(t.prefix, err)
}

// hungUp reports whether the server has closed the connection without a reason.
func hungUp(err error) bool {
	for _, sign := range []error{syscall.EPIPE, syscall.ECONNRESET, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, sign) {
			return true
		}
	}
	// The HTTP/2 client has no error type for it.
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

// ignoreClosed ignores a closed connection: a handshake whose context ends closes the connection itself.
func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// remoteAlert is the prefix of an error that the other side sent before it closed the connection.
const remoteAlert = "remote error: tls: "

// IsTLS reports whether err is about certificates, their files or TLS versions, which a retry cannot resolve.
func IsTLS(err error) bool {
	if _, ok := errors.AsType[*fileError](err); ok {
		return true
	}
	return cureFor(Client{}, "", err) != ""
}

// fileError is an error about the files of a Client.
type fileError struct{ cause error }

// Error returns the text of the cause.
func (e *fileError) Error() string { return e.cause.Error() }

// Unwrap returns the cause.
func (e *fileError) Unwrap() error { return e.cause }

// Error is a failed TLS connection, with advice.
type Error struct {
	Cause error
	Cure  string
}

// Error returns the cause and the advice.
func (e *Error) Error() string { return e.Cause.Error() + "; " + e.Cure }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Explain converts a TLS error to an *Error with the relevant variable. It returns any other error unchanged.
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
	case strings.HasPrefix(alert, "bad certificate"), strings.HasPrefix(alert, "unknown certificate"), // also for its authority
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

// untrusted returns the advice about the server's certificate.
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
