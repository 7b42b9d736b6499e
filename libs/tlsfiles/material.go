package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// maxFile is the maximum size of a file. A bundle of all public authorities is a quarter of it.
const maxFile = 1 << 20

// Suffixes of the variables. Each user of this package has its own prefix.
const (
	certSuffix     = "CERT_FILE"
	keySuffix      = "KEY_FILE"
	caSuffix       = "CA_FILE"
	clientCASuffix = "CLIENT_CA_FILE"
)

// named is a file and its variable.
type named struct{ variable, path string }

// read returns the content. Its errors contain the path only once.
func (n named) read() ([]byte, error) {
	info, err := os.Stat(n.path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %q cannot be read: %w", n.variable, n.path, errors.Unwrap(err))
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: %q is not a file; want a PEM file", n.variable, n.path)
	case info.Size() > maxFile:
		return nil, fmt.Errorf("%s: %q has more than %d bytes; want a PEM file", n.variable, n.path, maxFile)
	}
	content, err := os.ReadFile(n.path)
	if err != nil {
		return nil, fmt.Errorf("%s: %q cannot be read: %w", n.variable, n.path, errors.Unwrap(err))
	}
	return content, nil
}

// pair reads a certificate with its chain, and its key. The certificate must be valid for usage now.
func pair(cert, key named, usage x509.ExtKeyUsage, now time.Time) (tls.Certificate, error) {
	certPEM, err := cert.read()
	if err != nil {
		return tls.Certificate{}, err
	}
	keyPEM, err := key.read()
	if err != nil {
		return tls.Certificate{}, err
	}
	chain, err := certificates(cert, certPEM)
	if err != nil {
		return tls.Certificate{}, err
	}
	if err := valid(cert, chain[0], now); err != nil {
		return tls.Certificate{}, err
	}
	if err := goodFor(cert, chain[0], usage); err != nil {
		return tls.Certificate{}, err
	}
	if err := clear(key, keyPEM); err != nil {
		return tls.Certificate{}, err
	}
	made, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		// The certificate and the key are readable, so the key does not match. The library's error contains no part of the key.
		if strings.Contains(err.Error(), "does not match") {
			return tls.Certificate{}, fmt.Errorf("%s: %q is not the key of the certificate in %s, %q", key.variable, key.path, cert.variable, cert.path)
		}
		return tls.Certificate{}, fmt.Errorf("%s: %q: %w", key.variable, key.path, err)
	}
	return made, nil
}

// clear rejects a file without an unencrypted key.
func clear(key named, keyPEM []byte) error {
	for rest := keyPEM; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return fmt.Errorf("%s: %q holds no private key; want a PEM file with PRIVATE KEY", key.variable, key.path)
		}
		if strings.Contains(block.Type, "ENCRYPTED") || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED") {
			return fmt.Errorf("%s: the key in %q has a passphrase; want one without", key.variable, key.path)
		}
		if strings.HasSuffix(block.Type, "PRIVATE KEY") {
			return nil
		}
	}
}

// authorities returns the certificates of trusted as a pool.
func authorities(file named, now time.Time) (*x509.CertPool, error) {
	good, err := trusted(file, now)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	for _, c := range good {
		pool.AddCert(c)
	}
	return pool, nil
}

// trusted returns the currently valid authorities of a file, at least one.
func trusted(file named, now time.Time) ([]*x509.Certificate, error) {
	content, err := file.read()
	if err != nil {
		return nil, err
	}
	found, err := certificates(file, content)
	if err != nil {
		return nil, err
	}
	var good []*x509.Certificate
	var expired error
	for _, c := range found {
		// A bundle can contain an expired authority in addition to its successor.
		if err := valid(file, c, now); err != nil {
			expired = err
			continue
		}
		good = append(good, c)
	}
	if len(good) == 0 {
		return nil, expired
	}
	return good, nil
}

// certificates returns the certificates of a file, at least one.
func certificates(file named, content []byte) ([]*x509.Certificate, error) {
	var found []*x509.Certificate
	for rest := content; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %q: a certificate cannot be read: %w", file.variable, file.path, err)
		}
		found = append(found, c)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s: %q holds no certificate; want a PEM file with CERTIFICATE", file.variable, file.path)
	}
	return found, nil
}

func valid(file named, c *x509.Certificate, now time.Time) error {
	switch {
	case now.After(c.NotAfter):
		return fmt.Errorf("%s: the certificate in %q expired on %s: renew it", file.variable, file.path, c.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(c.NotBefore):
		return fmt.Errorf("%s: the certificate in %q is valid only from %s: check the clocks", file.variable, file.path, c.NotBefore.UTC().Format(time.RFC3339))
	}
	return nil
}

// goodFor rejects a certificate that the other side would reject. A certificate without extended key usage is valid for all uses.
func goodFor(file named, c *x509.Certificate, usage x509.ExtKeyUsage) error {
	if len(c.ExtKeyUsage)+len(c.UnknownExtKeyUsage) == 0 || slices.Contains(c.ExtKeyUsage, usage) || slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageAny) {
		return nil
	}
	want := "servers (serverAuth)"
	if usage == x509.ExtKeyUsageClientAuth {
		want = "clients (clientAuth)"
	}
	return fmt.Errorf("%s: the certificate in %q is not for %s; check its extended key usage", file.variable, file.path, want)
}
