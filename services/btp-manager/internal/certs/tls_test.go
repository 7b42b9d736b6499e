package certs_test

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/kyma-project/keb/services/btp-manager/internal/certs"
)

// served returns the serving certificate in the cluster, as the operand reads it.
func (w *world) served() tls.Certificate {
	w.t.Helper()
	s := w.get(certs.ServingSecret)
	cert, err := tls.X509KeyPair(s.Data["tls.crt"], s.Data["tls.key"])
	if err != nil {
		w.t.Fatal(err)
	}
	return cert
}

// call connects like the API server: to the webhooks' Service, with a caBundle.
func call(t *testing.T, cert tls.Certificate, bundle []byte, now time.Time) error {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		t.Fatalf("no certificates in the bundle %q", bundle)
	}
	here, there := net.Pipe()
	var server sync.WaitGroup
	server.Go(func() {
		defer there.Close()
		// The client's error contains the reason.
		_ = tls.Server(there, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}).HandshakeContext(t.Context())
	})
	defer server.Wait()
	defer here.Close()
	return tls.Client(here, &tls.Config{
		RootCAs: roots, ServerName: service + "." + namespace + ".svc", Time: func() time.Time { return now }, MinVersion: tls.VersionTLS12,
	}).HandshakeContext(t.Context())
}

func TestEnsure_Serving_IsTrustedWithBundle(t *testing.T) {
	w := setup(t)
	first := w.ensure("ca", "serving")
	if err := call(t, w.served(), first.CABundle, w.now); err != nil {
		t.Error(err)
	}
	if call(t, w.served(), issue(t, caTemplate(w), nil).crt(), w.now) == nil {
		t.Error("trusted with the bundle of another CA")
	}
}

// The operand may still have the old certificate when the API server has the new bundle, and vice versa.
func TestWebhooks_ServingRenewal_KeepWorking(t *testing.T) {
	w := setup(t)
	before := w.ensure("ca", "serving")
	old := w.served()
	w.now = before.RenewAt
	after := w.ensure("serving")
	for _, bundle := range [][]byte{before.CABundle, after.CABundle} {
		for _, cert := range []tls.Certificate{old, w.served()} {
			if err := call(t, cert, bundle, w.now); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestWebhooks_CARenewal_KeepWorking(t *testing.T) {
	w := setup(t)
	before, old := due(w)
	after := w.ensure("ca", "serving")
	renewed := w.served()
	for when, now := range map[string]time.Time{"at once": w.now, "before the previous CA goes": after.RenewAt.Add(-time.Second)} {
		for which, bundle := range map[string][]byte{"old": before.CABundle, "new": after.CABundle} {
			if err := call(t, old, bundle, now); err != nil {
				t.Errorf("%s: old certificate, %s bundle: %v", when, which, err)
			}
			if err := call(t, renewed, bundle, now); err != nil {
				t.Errorf("%s: new certificate, %s bundle: %v", when, which, err)
			}
		}
	}

	w.now = after.RenewAt
	settled := w.ensure()
	if err := call(t, renewed, settled.CABundle, w.now); err != nil {
		t.Errorf("after the previous CA has gone: %v", err)
	}
	if call(t, old, settled.CABundle, w.now) == nil {
		t.Error("what the previous CA signed is still trusted")
	}
}

// due creates a CA in the cluster that must be renewed, with a serving certificate in use.
func due(w *world) (certs.Result, tls.Certificate) {
	w.t.Helper()
	w.cfg.CALifetime, w.cfg.ServingLifetime = 400*day, 390*day
	before := w.ensure("ca", "serving")
	w.now = before.RenewAt
	w.ensure("serving")
	w.now = before.CANotAfter.Add(-w.cfg.RenewBefore)
	return before, w.served()
}
