package certs

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// errForeign is the problem of a serving certificate that was signed neither by our CA nor by the previous one: it is unknown which of
// the two Secrets is wrong.
var errForeign = errors.New("the serving certificate is signed by another CA")

// names returns the DNS names by which the API server calls the webhooks.
func (c Config) names() []string {
	name := c.Service + "." + c.Namespace
	return []string{name, name + ".svc"}
}

// parseServing parses the Secret of the serving certificate. The error describes the problem; errForeign also concerns the CA. It returns
// the certificate if ca has signed it.
func parseServing(data map[string][]byte, ca *authority, cfg Config, now time.Time) (*x509.Certificate, error) {
	all, err := parseCertificates(data[corev1.TLSCertKey])
	if err != nil {
		return nil, fmt.Errorf("%s %w", corev1.TLSCertKey, err)
	}
	leaf := all[0]
	if leaf.CheckSignatureFrom(ca.cert) != nil {
		if ca.previous != nil && leaf.CheckSignatureFrom(ca.previous) == nil {
			return nil, errors.New("the previous CA has signed it")
		}
		return nil, errForeign
	}
	if _, _, err := parsePair(data, corev1.TLSCertKey, corev1.TLSPrivateKeyKey); err != nil {
		return leaf, err
	}
	if err := verify(leaf, ca.cert, cfg.names(), now); err != nil {
		return leaf, err
	}
	if !now.Before(leaf.NotAfter.Add(-cfg.RenewBefore)) {
		return leaf, errExpiring
	}
	return leaf, nil
}

// verify checks a serving certificate as the API server does.
func verify(leaf, ca *x509.Certificate, names []string, now time.Time) error {
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	for _, name := range names {
		_, err := leaf.Verify(x509.VerifyOptions{
			DNSName: name, Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		})
		if err != nil {
			return fmt.Errorf("no client would accept it for %s: %w", name, err)
		}
	}
	return nil
}

// newServing creates a serving certificate, which expires no later than its CA. If the result would be invalid, the CA is at fault, and
// newServing returns an error.
func newServing(ca *authority, cfg Config, now time.Time) (map[string][]byte, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, err
	}
	leaf, err := sign(&x509.Certificate{
		Subject:               pkix.Name{CommonName: "webhook"},
		DNSNames:              cfg.names(),
		NotBefore:             now.Add(-backdate),
		NotAfter:              earlier(now.Add(cfg.ServingLifetime), ca.cert.NotAfter),
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, ca.cert, key.Public(), ca.key)
	if err != nil {
		return nil, err
	}
	if err := verify(leaf, ca.cert, cfg.names(), now); err != nil {
		return nil, err
	}
	chain := encode(leaf)
	if ca.cross != nil {
		chain = encode(leaf, ca.cross)
	}
	return map[string][]byte{corev1.TLSCertKey: chain, corev1.TLSPrivateKeyKey: keyPEM}, nil
}
