package testkit

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// CA is a certificate authority for one test.
type CA struct {
	// File contains the authority's certificate in PEM.
	File string

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCA creates an authority. Errors contain its name.
func NewCA(t testing.TB, name string) *CA {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatalf("make a certificate authority: %v", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatalf("make a certificate authority: %v", err)
	}
	ca := &CA{File: filepath.Join(t.TempDir(), "ca.crt"), cert: cert, key: key}
	writePEM(t, ca.File, "CERTIFICATE", der, 0o644)
	return ca
}

// Leaf describes a certificate. The zero value is a client certificate that is valid for an hour.
type Leaf struct {
	// Name is the common name.
	Name string
	// Hosts are the names and IP addresses of a server. A certificate without hosts is for a client.
	Hosts []string
	// NotAfter is the expiry; zero means in an hour.
	NotAfter time.Time
}

// KeyPair contains the paths of a certificate and its key.
type KeyPair struct{ CertFile, KeyFile string }

// Issue creates a certificate in a new folder.
func (ca *CA) Issue(t testing.TB, leaf Leaf) KeyPair {
	t.Helper()
	dir := t.TempDir()
	pair := KeyPair{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}
	ca.Renew(t, pair, leaf)
	return pair
}

// Renew replaces a certificate and its key. It replaces each file atomically.
func (ca *CA) Renew(t testing.TB, pair KeyPair, leaf Leaf) {
	t.Helper()
	key := newKey(t)
	if leaf.NotAfter.IsZero() {
		leaf.NotAfter = time.Now().Add(time.Hour)
	}
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: leaf.Name}, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: leaf.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, host := range leaf.Hosts {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	if err != nil {
		t.Fatalf("make a certificate: %v", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatalf("make a certificate: %v", err)
	}
	writePEM(t, pair.KeyFile, "PRIVATE KEY", private, 0o600)
	writePEM(t, pair.CertFile, "CERTIFICATE", der, 0o644)
}

// Pool returns a pool with only this authority.
func (ca *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return pool
}

// NotAfter returns the expiry of the authority.
func (ca *CA) NotAfter() time.Time { return ca.cert.NotAfter }

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatalf("make a key: %v", err)
	}
	return key
}

func serial(t testing.TB) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		t.Fatalf("make a serial number: %v", err)
	}
	return n
}

// writePEM replaces a file atomically.
func writePEM(t testing.TB, path, kind string, der []byte, mode os.FileMode) {
	t.Helper()
	content := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(path+".new", content, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}
