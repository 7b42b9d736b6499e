package certs

import (
	"bytes"
	"strings"
	"testing"
)

// The content of a Secret becomes a caBundle unchanged, or an error that contains nothing of it.
func FuzzCertificates(f *testing.F) {
	f.Add([]byte(""), []byte(""))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"), []byte("CANARY-3d"))
	f.Add([]byte("-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n"), []byte("-----BEGIN PRIVATE KEY-----\nCANARY\n-----END PRIVATE KEY-----\n"))
	f.Add([]byte("x\n-----BEGIN CERTIFICATE-----"), []byte{0})
	f.Fuzz(func(t *testing.T, cert, key []byte) {
		all, err := parseCertificates(cert)
		if (len(all) == 0) == (err == nil) {
			t.Fatalf("%d certificates, error %v", len(all), err)
		}
		if err == nil {
			again, err := parseCertificates(encode(all...))
			if err != nil || len(again) != len(all) {
				t.Fatalf("%d certificates became %d: %v", len(all), len(again), err)
			}
			for i := range all {
				if !bytes.Equal(all[i].Raw, again[i].Raw) {
					t.Fatalf("certificate %d has changed", i)
				}
			}
		}
		pair, signer, err := parsePair(map[string][]byte{"ca.crt": cert, "ca.key": key}, "ca.crt", "ca.key")
		switch {
		case err == nil && (signer == nil || len(pair) == 0):
			t.Fatal("neither a pair nor an error")
		case err != nil && (signer != nil || len(pair) > 0):
			t.Fatal("both a pair and an error")
		case err != nil && (strings.Contains(err.Error(), "CANARY") || !strings.HasPrefix(err.Error(), "ca.")):
			t.Fatalf("the error is %q", err)
		}
	})
}
