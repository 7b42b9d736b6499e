package tlsfiles

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// For any files, an error contains the variable and no part of the key.
func FuzzCertificateAndKey(f *testing.F) {
	now := time.Now()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(f, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "x"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(f, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(f, err)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	private := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	f.Add(certificate, private)
	f.Add(private, certificate)
	f.Add(append(certificate, certificate...), private[:len(private)/2])
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----"), []byte("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAA==\n-----END ENCRYPTED PRIVATE KEY-----"))
	f.Add([]byte{}, []byte("CANARY-8c1d"))
	folder := f.TempDir()
	f.Fuzz(func(t *testing.T, certPEM, keyPEM []byte) {
		cert, own := named{"X_CERT_FILE", filepath.Join(folder, "cert")}, named{"X_KEY_FILE", filepath.Join(folder, "key")}
		for file, content := range map[string][]byte{cert.path: certPEM, own.path: keyPEM} {
			require.NoError(t, os.WriteFile(file, content, 0o600))
		}
		made, err := pair(cert, own, x509.ExtKeyUsageServerAuth, now)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "X_") || strings.Contains(err.Error(), "CANARY") || len(err.Error()) > 2000 {
				t.Errorf("the error is %q", err)
			}
			if made.PrivateKey != nil {
				t.Error("both a key and an error")
			}
		} else if made.PrivateKey == nil || len(made.Certificate) == 0 {
			t.Error("neither a key nor an error")
		}
		if pool, err := authorities(cert, now); err == nil && pool.Equal(x509.NewCertPool()) || err != nil && !strings.HasPrefix(err.Error(), "X_CERT_FILE") {
			t.Errorf("authorities: %v", err)
		}
	})
}
