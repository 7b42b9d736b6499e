package lms

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/google/uuid"
)

// commonName is the common name of the certificate.
const (
	commonName = "fluentbit"
	keyBits    = 2048
)

// credentials are the private key of Fluent Bit and the request to sign its certificate, both PEM. The key is secret and exists only in
// the stage memory, which both steps share. The request can be sent again, so it is kept with the key.
type credentials struct {
	Key string `json:"key"`
	CSR string `json:"csr"`
}

// String keeps the key out of logs and errors.
func (credentials) String() string { return "[redacted]" }

// newCredentials creates a key and the request for its certificate by the contract of LMS (docs/contracts/lms.md): RSA with
// 2048 bits in PKCS#1, SHA256WithRSA, the account as organization and a random id as organizational unit.
func newCredentials(account string) (credentials, error) {
	key, err := rsa.GenerateKey(rand.Reader, keyBits)
	if err != nil {
		return credentials{}, fmt.Errorf("generate key: %w", err)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{
			CommonName: commonName, Organization: []string{account}, OrganizationalUnit: []string{uuid.NewString()},
		},
		SignatureAlgorithm: x509.SHA256WithRSA,
	}, key)
	if err != nil {
		return credentials{}, fmt.Errorf("create certificate request: %w", err)
	}
	encode := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return credentials{Key: encode("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key)), CSR: encode("CERTIFICATE REQUEST", csr)}, nil
}

func (c credentials) encode() ([]byte, error) { return json.Marshal(c) }

func decodeCredentials(data []byte) (credentials, error) {
	var c credentials
	if json.Unmarshal(data, &c) != nil || c.Key == "" || c.CSR == "" {
		// The decoder's error would contain the secret.
		return c, errors.New("the key in the stage memory cannot be read")
	}
	return c, nil
}

// fingerprint returns a public value that identifies the request.
func (c credentials) fingerprint() string {
	sum := sha256.Sum256([]byte(c.CSR))
	return hex.EncodeToString(sum[:])
}

// belongs reports whether a certificate is one for this key.
func (c credentials) belongs(certificate string) bool {
	block, _ := pem.Decode([]byte(certificate))
	own, _ := pem.Decode([]byte(c.CSR))
	if block == nil || own == nil {
		return false
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return false
	}
	csr, err := x509.ParseCertificateRequest(own.Bytes)
	if err != nil {
		return false
	}
	key, ok := csr.PublicKey.(*rsa.PublicKey)
	return ok && key.Equal(cert.PublicKey)
}
