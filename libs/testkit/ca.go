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

// CA is a certificate authority of one test.
type CA struct {
	// File holds its certificate in PEM.
	File string

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCA makes an authority. name is what errors call it.
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

// Leaf is a certificate to be made. The zero value is that of a client, good for an hour.
type Leaf struct {
	// Name is its common name.
	Name string
	// Hosts are names and IP addresses of a server; without them it is the certificate of a client.
	Hosts []string
	// NotAfter is when it expires, in an hour if zero.
	NotAfter time.Time
}

// KeyPair is where a certificate and its key are.
type KeyPair struct{ CertFile, KeyFile string }

// Issue makes a certificate in a folder of its own.
func (ca *CA) Issue(t testing.TB, leaf Leaf) KeyPair {
	t.Helper()
	dir := t.TempDir()
	pair := KeyPair{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}
	ca.Renew(t, pair, leaf)
	return pair
}

// Renew writes a new certificate with a new key over an old one, each file as a whole.
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

// Pool is the authority alone.
func (ca *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return pool
}

// NotAfter is when the authority itself expires.
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

// writePEM never leaves half a file to whoever reads meanwhile.
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
