package lms

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"time"
)

// signer is the certificate authority. Each start creates a new one: its certificates need not be valid longer.
type signer struct {
	key    *ecdsa.PrivateKey
	parent *x509.Certificate
	ca     string
}

func newSigner() (signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return signer{}, fmt.Errorf("lms authority: %w", err)
	}
	parent := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "simulated LMS"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, parent, parent, key.Public(), key)
	if err != nil {
		return signer{}, fmt.Errorf("lms authority: %w", err)
	}
	return signer{key: key, parent: parent, ca: encode(der)}, nil
}

// sign creates the certificate of a CSR, which is valid for a year.
func (s signer) sign(text string, now time.Time) (Certificate, error) {
	csr, err := request(text)
	if err != nil {
		return Certificate{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return Certificate{}, fmt.Errorf("serial number: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: csr.Subject.CommonName},
		NotBefore: now.Add(-time.Minute), NotAfter: now.AddDate(1, 0, 0),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, s.parent, csr.PublicKey, s.key)
	if err != nil {
		return Certificate{}, fmt.Errorf("sign: %w", err)
	}
	return Certificate{CommonName: csr.Subject.CommonName, PEM: encode(der)}, nil
}
