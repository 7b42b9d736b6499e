package certs

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

const (
	blockCertificate = "CERTIFICATE"
	blockKey         = "PRIVATE KEY"
	// backdate is added before the start of a certificate's validity, for clocks that are behind.
	backdate = 5 * time.Minute
)

// parseCertificates parses PEM that contains only certificates, because the input becomes a caBundle.
func parseCertificates(raw []byte) ([]*x509.Certificate, error) {
	var all []*x509.Certificate
	for rest := bytes.TrimSpace(raw); len(rest) > 0; rest = bytes.TrimSpace(rest) {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return nil, errors.New("is not PEM")
		}
		if block.Type != blockCertificate {
			return nil, errors.New("contains more than certificates")
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, errors.New("contains an invalid certificate")
		}
		all = append(all, cert)
	}
	if len(all) == 0 {
		return nil, errors.New("is absent")
	}
	return all, nil
}

// parsePair parses certificates and the key of the first one from two keys of a Secret.
func parsePair(data map[string][]byte, certKey, keyKey string) ([]*x509.Certificate, crypto.Signer, error) {
	all, err := parseCertificates(data[certKey])
	if err != nil {
		return nil, nil, fmt.Errorf("%s %w", certKey, err)
	}
	if len(data[keyKey]) == 0 {
		return nil, nil, fmt.Errorf("%s is absent", keyKey)
	}
	// The error is not returned, because it is about the private key.
	pair, err := tls.X509KeyPair(encode(all...), data[keyKey])
	if err != nil {
		return nil, nil, fmt.Errorf("%s is not the key of %s", keyKey, certKey)
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, nil, fmt.Errorf("%s cannot sign", keyKey)
	}
	return all, signer, nil
}

// encode encodes certificates as PEM.
func encode(certs ...*x509.Certificate) []byte {
	var out []byte
	for _, cert := range certs {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: blockCertificate, Bytes: cert.Raw})...)
	}
	return out
}

// newKey generates a key, and its PEM.
func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encode a key: %w", err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: blockKey, Bytes: der}), nil
}

// sign creates a certificate with a random serial number.
func sign(template, parent *x509.Certificate, public crypto.PublicKey, signer crypto.Signer) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read the certificate that was signed: %w", err)
	}
	return cert, nil
}

func sameKey(a, b *x509.Certificate) bool {
	return bytes.Equal(a.RawSubjectPublicKeyInfo, b.RawSubjectPublicKeyInfo)
}

// earlier returns the earlier of two times.
func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
