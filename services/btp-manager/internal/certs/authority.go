package certs

import (
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"time"
)

// errExpiring is the problem of a valid CA that must be renewed.
var errExpiring = errors.New("it expires soon")

// authority is the signing CA.
type authority struct {
	cert   *x509.Certificate
	key    crypto.Signer
	keyPEM []byte
	// previous is the preceding CA, and cross is this CA's certificate signed by previous. Both are nil when previous no longer needs to be
	// trusted.
	previous, cross *x509.Certificate
}

// parseAuthority reads the Secret of the CA. The error describes the problem. With errExpiring it also returns the CA.
func parseAuthority(data map[string][]byte, now time.Time, renewBefore time.Duration) (*authority, error) {
	all, key, err := parsePair(data, KeyCACert, KeyCAKey)
	if err != nil {
		return nil, err
	}
	a := &authority{cert: all[0], key: key, keyPEM: data[KeyCAKey]}
	switch {
	case !a.cert.BasicConstraintsValid || !a.cert.IsCA || a.cert.KeyUsage&x509.KeyUsageCertSign == 0:
		return nil, errors.New("it is not a CA")
	case now.Before(a.cert.NotBefore):
		return nil, fmt.Errorf("it is not valid before %s", a.cert.NotBefore.UTC().Format(time.RFC3339))
	case !now.Before(a.cert.NotAfter):
		return nil, fmt.Errorf("it expired at %s", a.cert.NotAfter.UTC().Format(time.RFC3339))
	}
	if len(all) > 1 {
		a.previous, a.cross = predecessor(a.cert, all[1], data[KeyCross])
	}
	if !now.Before(a.cert.NotAfter.Add(-renewBefore)) {
		return a, errExpiring
	}
	return a, nil
}

// predecessor returns previous only if it signed its successor. Any other certificate in the Secret must not be trusted.
func predecessor(cert, previous *x509.Certificate, rawCross []byte) (*x509.Certificate, *x509.Certificate) {
	all, err := parseCertificates(rawCross)
	if err != nil || !sameKey(all[0], cert) || all[0].CheckSignatureFrom(previous) != nil {
		return nil, nil
	}
	return previous, all[0]
}

// newAuthority creates a CA. If old is not nil, the new CA succeeds it, and old stays trusted for a while.
func newAuthority(old *authority, cfg Config, now time.Time) (*authority, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		// Two trusted CAs must have different names.
		Subject:               pkix.Name{CommonName: "webhook CA " + now.UTC().Format(time.RFC3339Nano)},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(cfg.CALifetime),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	cert, err := sign(template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	a := &authority{cert: cert, key: key, keyPEM: keyPEM}
	if old != nil {
		crossed := *template
		crossed.NotAfter = earlier(template.NotAfter, old.cert.NotAfter)
		crossed.SubjectKeyId = cert.SubjectKeyId
		if a.cross, err = sign(&crossed, old.cert, key.Public(), old.key); err != nil {
			return nil, err
		}
		a.previous = old.cert
	}
	return a, nil
}

// bundle returns the certificates that clients must trust.
func (a *authority) bundle() []byte {
	if a.previous == nil {
		return encode(a.cert)
	}
	return encode(a.cert, a.previous)
}

// data returns the content of the CA's Secret.
func (a *authority) data() map[string][]byte {
	data := map[string][]byte{KeyCACert: a.bundle(), KeyCAKey: a.keyPEM}
	if a.cross != nil {
		data[KeyCross] = encode(a.cross)
	}
	return data
}

// retires returns the time when the previous CA stops being trusted.
func (a *authority) retires(renewBefore time.Duration) time.Time {
	return earlier(a.previous.NotAfter, a.cert.NotBefore.Add(backdate+renewBefore))
}

// overdue reports whether the previous CA must be removed.
func (a *authority) overdue(now time.Time, renewBefore time.Duration) bool {
	return a.previous != nil && !now.Before(a.retires(renewBefore))
}

func (a *authority) withoutPrevious() *authority {
	return &authority{cert: a.cert, key: a.key, keyPEM: a.keyPEM}
}

// renewAt returns the time of the next renewal or removal.
func (a *authority) renewAt(leaf *x509.Certificate, renewBefore time.Duration) time.Time {
	at := earlier(a.cert.NotAfter, leaf.NotAfter).Add(-renewBefore)
	if a.previous != nil {
		at = earlier(at, a.retires(renewBefore))
	}
	return at
}
