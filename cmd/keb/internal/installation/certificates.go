package installation

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// The TLS files of a service, and their folder in containers.
const (
	certFile  = "tls.crt"
	keyFile   = "tls.key"
	caFile    = "ca.crt"
	mountedAt = "/run/keb/"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 365 * 24 * time.Hour
	// renewBefore is the remaining validity below which a certificate is renewed.
	renewBefore = leafLife / 3
	// postgresKeyMode is the widest mode that Postgres accepts for a key owned by root. Its container is in root's group.
	postgresKeyMode = 0o640
)

// pgHBA requires TLS and a client certificate for every connection over the network.
const pgHBA = `local all all trust
hostssl all all all scram-sha-256 clientcert=verify-ca
`

// withCertificates adds a certificate for the name of its folder to every service that listens or connects.
func withCertificates(all []folder) []folder {
	all = append(all, folder{name: "edge"})
	for i := range all {
		name := all[i].name
		if name == "grafana" {
			continue
		}
		key := file{name: keyFile, content: func(s *store) (string, error) {
			_, key, err := s.certificate(name)
			return key, err
		}}
		if name == "postgres" {
			key.mode = postgresKeyMode
			all[i].files = append(all[i].files, file{name: "pg_hba.conf", content: func(*store) (string, error) { return pgHBA, nil }})
		}
		all[i].files = append(all[i].files, key,
			file{name: certFile, content: func(s *store) (string, error) {
				cert, _, err := s.certificate(name)
				return cert, err
			}},
			file{name: caFile, content: func(s *store) (string, error) {
				a, err := s.authority()
				if err != nil {
					return "", err
				}
				return encode("CERTIFICATE", a.Certificate[0]), nil
			}})
	}
	return all
}

// authority returns the certificate authority of the installation. The first call creates it.
func (s *store) authority() (tls.Certificate, error) {
	const name = "ca.pem"
	kept, err := s.get(name, func() (string, error) {
		return issue(&x509.Certificate{
			Subject: pkix.Name{CommonName: "KEB with Docker Compose"}, NotAfter: time.Now().Add(authorityLife),
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		}, nil)
	})
	if err != nil {
		return tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair([]byte(kept), []byte(kept))
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s: %w: remove it to have a new one created", name, err)
	}
	return pair, nil
}

// certificate returns the certificate and the key of a service. It renews a certificate that expires soon or that another authority signed.
func (s *store) certificate(service string) (cert, key string, err error) {
	authority, err := s.authority()
	if err != nil {
		return "", "", err
	}
	name := "tls-" + service + ".pem"
	create := func() (string, error) {
		return issue(&x509.Certificate{
			Subject: pkix.Name{CommonName: service}, NotAfter: time.Now().Add(leafLife), KeyUsage: x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
			DNSNames:    []string{service, "localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		}, &authority)
	}
	kept, err := s.get(name, create)
	if err != nil {
		return "", "", err
	}
	pair, err := tls.X509KeyPair([]byte(kept), []byte(kept))
	if err != nil || time.Until(pair.Leaf.NotAfter) < renewBefore || pair.Leaf.CheckSignatureFrom(authority.Leaf) != nil {
		if kept, err = create(); err != nil {
			return "", "", err
		}
		if err := s.keep(name, kept); err != nil {
			return "", "", err
		}
	}
	block, rest := pem.Decode([]byte(kept))
	if block == nil {
		return "", "", errors.New(name + " contains no certificate: remove it to have a new one created")
	}
	return string(pem.EncodeToMemory(block)), string(rest), nil
}

// issue creates a certificate with a new key, self-signed or signed by an authority. It returns the PEM of both.
func issue(template *x509.Certificate, authority *tls.Certificate) (string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return "", err
	}
	template.NotBefore = time.Now().Add(-time.Hour) // clocks differ
	parent, signer := template, any(key)
	if authority != nil {
		parent, signer = authority.Leaf, authority.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return "", err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", err
	}
	return encode("CERTIFICATE", der) + encode("PRIVATE KEY", private), nil
}

func encode(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}
