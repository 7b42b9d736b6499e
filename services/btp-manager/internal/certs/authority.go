package certs

import (
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"time"
)

// errExpiring is the problem of a CA that is in order but must be renewed.
var errExpiring = errors.New("it ends soon")

// authority is the CA that signs.
type authority struct {
	cert   *x509.Certificate
	key    crypto.Signer
	keyPEM []byte
	// previous is the CA before this one, and cross this one's certificate that previous has signed. Both are nil once nobody
	// needs to trust previous.
	previous, cross *x509.Certificate
}

// parseAuthority reads the Secret of the CA. An error says what is wrong with it; with errExpiring it answers the CA too.
func parseAuthority(data map[string][]byte, now time.Time, renewBefore time.Duration) (*authority, error) {
	all, key, err := parsePair(data, KeyCACert, KeyCAKey)
	if err != nil {
		return nil, err
	}
	a := &authority{cert: all[0], key: key, keyPEM: data[KeyCAKey]}
	switch {
	case !a.cert.BasicConstraintsValid || !a.cert.IsCA || a.cert.KeyUsage&x509.KeyUsageCertSign == 0:
		return nil, errors.New("it is no CA")
	case now.Before(a.cert.NotBefore):
		return nil, fmt.Errorf("it is not valid before %s", a.cert.NotBefore.UTC().Format(time.RFC3339))
	case !now.Before(a.cert.NotAfter):
		return nil, fmt.Errorf("it ended at %s", a.cert.NotAfter.UTC().Format(time.RFC3339))
	}
	if len(all) > 1 {
		a.previous, a.cross = predecessor(a.cert, all[1], data[KeyCross])
	}
	if !now.Before(a.cert.NotAfter.Add(-renewBefore)) {
		return a, errExpiring
	}
	return a, nil
}

// predecessor answers previous only if it signed the CA that follows it: whatever else stands in the Secret is not to be trusted.
func predecessor(cert, previous *x509.Certificate, rawCross []byte) (*x509.Certificate, *x509.Certificate) {
	all, err := parseCertificates(rawCross)
	if err != nil || !sameKey(all[0], cert) || all[0].CheckSignatureFrom(previous) != nil {
		return nil, nil
	}
	return previous, all[0]
}

// newAuthority makes a CA. With an old one the new one follows it, and old stays trusted for a while; nil: there is none.
func newAuthority(old *authority, cfg Config, now time.Time) (*authority, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		// Two CAs that are trusted at the same time have different names.
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

// bundle is what clients must trust.
func (a *authority) bundle() []byte {
	if a.previous == nil {
		return encode(a.cert)
	}
	return encode(a.cert, a.previous)
}

// data is what the Secret of the CA holds.
func (a *authority) data() map[string][]byte {
	data := map[string][]byte{KeyCACert: a.bundle(), KeyCAKey: a.keyPEM}
	if a.cross != nil {
		data[KeyCross] = encode(a.cross)
	}
	return data
}

// retires is when the previous CA is trusted no longer.
func (a *authority) retires(renewBefore time.Duration) time.Time {
	return earlier(a.previous.NotAfter, a.cert.NotBefore.Add(backdate+renewBefore))
}

// overdue tells whether the previous CA is to be taken away.
func (a *authority) overdue(now time.Time, renewBefore time.Duration) bool {
	return a.previous != nil && !now.Before(a.retires(renewBefore))
}

func (a *authority) withoutPrevious() *authority {
	return &authority{cert: a.cert, key: a.key, keyPEM: a.keyPEM}
}

// renewAt is when the next of the certificates must be looked after.
func (a *authority) renewAt(leaf *x509.Certificate, renewBefore time.Duration) time.Time {
	at := earlier(a.cert.NotAfter, leaf.NotAfter).Add(-renewBefore)
	if a.previous != nil {
		at = earlier(at, a.retires(renewBefore))
	}
	return at
}
