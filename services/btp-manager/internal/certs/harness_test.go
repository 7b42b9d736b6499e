package certs_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/keb/services/btp-manager/internal/certs"
	"github.com/kyma-project/keb/services/btp-manager/kubetest"
)

var shared kubetest.Shared

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

const (
	namespace = "kyma-system"
	service   = "sap-btp-operator-webhook-service"
	day       = 24 * time.Hour
)

var t0 = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// world is a cluster without certificates, and a clock.
type world struct {
	t      *testing.T
	client client.Client
	cfg    certs.Config
	now    time.Time
}

func setup(t *testing.T) *world {
	t.Helper()
	w := &world{
		t:      t,
		client: shared.Cluster(t).Client(t, client.Options{}),
		cfg: certs.Config{
			Namespace: namespace, Service: service, CALifetime: 3650 * day, ServingLifetime: 365 * day, RenewBefore: 7 * day,
			Labels: map[string]string{"app.kubernetes.io/managed-by": "btp-manager", "kyma-project.io/module": "btp-operator"},
		},
		now: t0,
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := w.client.Create(t.Context(), ns); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	w.remove(certs.CASecret)
	w.remove(certs.ServingSecret)
	return w
}

func (w *world) certs() *certs.Certs {
	return certs.New(w.cfg, certs.Deps{Client: w.client, Now: func() time.Time { return w.now }})
}

// ensure also checks the invariants of every call: the result is that of the Secrets, they match, and another call writes
// nothing.
func (w *world) ensure(regenerated ...string) certs.Result {
	w.t.Helper()
	got, err := w.certs().Ensure(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	if !slices.Equal(got.Regenerated, regenerated) {
		w.t.Errorf("made %v, want %v", got.Regenerated, regenerated)
	}
	w.consistent(got)
	before := w.versions()
	again, err := w.certs().Ensure(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	if len(again.Regenerated) > 0 || !slices.Equal(again.CABundle, got.CABundle) || !again.RenewAt.Equal(got.RenewAt) {
		w.t.Errorf("a second call made %v", again.Regenerated)
	}
	if after := w.versions(); after != before {
		w.t.Errorf("a second call wrote: %v, then %v", before, after)
	}
	return got
}

// consistent checks the pairs in the cluster against the result.
func (w *world) consistent(r certs.Result) {
	w.t.Helper()
	for rest := r.CABundle; len(rest) > 0; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil || block.Type != "CERTIFICATE" {
			w.t.Fatalf("the caBundle contains more than certificates: %q", r.CABundle)
		}
	}
	ca, serving := w.get(certs.CASecret), w.get(certs.ServingSecret)
	if string(ca.Data["ca.crt"]) != string(r.CABundle) {
		w.t.Error("the caBundle is not ca.crt")
	}
	first, leaf := certificate(w.t, r.CABundle), certificate(w.t, serving.Data["tls.crt"])
	if err := leaf.CheckSignatureFrom(first); err != nil {
		w.t.Errorf("the first CA in the bundle has not signed the serving certificate: %v", err)
	}
	if !r.CANotAfter.Equal(first.NotAfter) || !r.ServingNotAfter.Equal(leaf.NotAfter) {
		w.t.Errorf("ends %s and %s, want %s and %s", r.CANotAfter, r.ServingNotAfter, first.NotAfter, leaf.NotAfter)
	}
	for cert, raw := range map[*x509.Certificate][]byte{first: ca.Data["ca.key"], leaf: serving.Data["tls.key"]} {
		key := private(w.t, raw)
		if public, ok := key.Public().(*ecdsa.PublicKey); !ok || !public.Equal(cert.PublicKey) || public.Curve != elliptic.P256() {
			w.t.Errorf("the key of %s is another one, or not of P-256", cert.Subject)
		}
	}
	for _, s := range []*corev1.Secret{ca, serving} {
		for key, value := range w.cfg.Labels {
			if s.Labels[key] != value {
				w.t.Errorf("Secret %s: label %s is %q", s.Name, key, s.Labels[key])
			}
		}
	}
	if !r.RenewAt.After(w.now) {
		w.t.Errorf("renewal at %s, which is not after %s", r.RenewAt, w.now)
	}
}

func (w *world) get(name string) *corev1.Secret {
	w.t.Helper()
	s := new(corev1.Secret)
	if err := w.client.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, s); err != nil {
		w.t.Fatal(err)
	}
	return s
}

// versions reports whether one of the Secrets was written.
func (w *world) versions() [2]string {
	return [2]string{w.get(certs.CASecret).ResourceVersion, w.get(certs.ServingSecret).ResourceVersion}
}

func (w *world) remove(name string) {
	w.t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := w.client.Delete(w.t.Context(), s); err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
}

// put replaces a Secret by one of type Opaque, which can contain any data.
func (w *world) put(name string, data map[string][]byte) {
	w.t.Helper()
	w.remove(name)
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: w.cfg.Labels}, Data: data}
	if err := w.client.Create(w.t.Context(), s); err != nil {
		w.t.Fatal(err)
	}
}

// pair is a certificate with its key, created by the test.
type pair struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// issue creates a certificate. With a nil issuer it is self-signed.
func issue(t *testing.T, template x509.Certificate, issuer *pair) *pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template.BasicConstraintsValid = true
	by := &pair{&template, key}
	if issuer != nil {
		by = issuer
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, by.cert, key.Public(), by.key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &pair{cert, key}
}

// caTemplate is that of a valid CA, servingTemplate that of a valid serving certificate.
func caTemplate(w *world) x509.Certificate {
	return x509.Certificate{
		Subject: pkix.Name{CommonName: "some CA"}, IsCA: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: w.now.Add(-time.Hour), NotAfter: w.now.Add(1000 * day),
	}
}

func servingTemplate(w *world) x509.Certificate {
	return x509.Certificate{
		Subject: pkix.Name{CommonName: "some server"}, DNSNames: []string{service + "." + namespace, service + "." + namespace + ".svc"},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		NotBefore: w.now.Add(-time.Hour), NotAfter: w.now.Add(100 * day),
	}
}

func (p *pair) crt() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.cert.Raw})
}

func (p *pair) pem(t *testing.T) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(p.key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// data returns the content of a Secret of the CA, or of the serving certificate.
func (p *pair) data(t *testing.T) map[string][]byte {
	t.Helper()
	if p.cert.IsCA {
		return map[string][]byte{"ca.crt": p.crt(), "ca.key": p.pem(t)}
	}
	return map[string][]byte{"tls.crt": p.crt(), "tls.key": p.pem(t)}
}

// ca returns the CA in the cluster, to issue certificates with it.
func (w *world) ca() *pair {
	s := w.get(certs.CASecret)
	return &pair{certificate(w.t, s.Data["ca.crt"]), private(w.t, s.Data["ca.key"])}
}

// certificate returns the first certificate in PEM.
func certificate(t *testing.T, raw []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(raw)
	if block == nil {
		t.Fatalf("not PEM: %q", raw)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	return cert
}

func private(t *testing.T, raw []byte) crypto.Signer {
	t.Helper()
	block, _ := pem.Decode(raw)
	if block == nil {
		t.Fatal(errors.New("the key is not PEM"))
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	require.NoError(t, err)
	return key.(crypto.Signer)
}

// changed returns data with other values; nil removes a key.
func changed(data map[string][]byte, key string, value []byte) map[string][]byte {
	data = maps.Clone(data)
	data[key] = value
	if value == nil {
		delete(data, key)
	}
	return data
}
