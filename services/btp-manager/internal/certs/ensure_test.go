package certs_test

import (
	"crypto/x509"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kyma-project/keb/services/btp-manager/internal/certs"
)

func TestEnsure_NoCertificates_CreatesPair(t *testing.T) {
	w := setup(t)
	got := w.ensure("ca", "serving")
	if want := t0.Add(3650 * day); !got.CANotAfter.Equal(want) {
		t.Errorf("the CA ends at %s, want %s", got.CANotAfter, want)
	}
	if want := t0.Add(365 * day); !got.ServingNotAfter.Equal(want) {
		t.Errorf("the serving certificate ends at %s, want %s", got.ServingNotAfter, want)
	}
	if want := t0.Add(358 * day); !got.RenewAt.Equal(want) {
		t.Errorf("renewal at %s, want %s", got.RenewAt, want)
	}
	if s := w.get(certs.ServingSecret); s.Type != corev1.SecretTypeTLS {
		t.Errorf("the type of the serving Secret is %s", s.Type)
	}
	leaf := certificate(t, w.get(certs.ServingSecret).Data["tls.crt"])
	if want := []string{"sap-btp-operator-webhook-service.kyma-system", "sap-btp-operator-webhook-service.kyma-system.svc"}; !slices.Equal(leaf.DNSNames, want) {
		t.Errorf("the names are %v", leaf.DNSNames)
	}
}

// Case F2, and other invalid contents of the CA's Secret.
func TestEnsure_InvalidCA_ReplacesBoth(t *testing.T) {
	w := setup(t)
	w.ensure("ca", "serving")
	good := issue(t, caTemplate(w), nil).data(t)
	template := func(change func(*x509.Certificate)) map[string][]byte {
		c := caTemplate(w)
		change(&c)
		return issue(t, c, nil).data(t)
	}
	tests := map[string]map[string][]byte{
		"another pair":         good,
		"no data":              nil,
		"no ca.crt":            changed(good, "ca.crt", nil),
		"no ca.key":            changed(good, "ca.key", nil),
		"text as certificate":  changed(good, "ca.crt", []byte("garbage")),
		"text as key":          changed(good, "ca.key", []byte("garbage")),
		"certificate of noise": changed(good, "ca.crt", []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")),
		"key of another pair":  changed(good, "ca.key", issue(t, caTemplate(w), nil).pem(t)),
		"key in the bundle":    changed(good, "ca.crt", append(slices.Clone(good["ca.crt"]), good["ca.key"]...)),
		"text in the bundle":   changed(good, "ca.crt", append(slices.Clone(good["ca.crt"]), "garbage"...)),
		"expired":              template(func(c *x509.Certificate) { c.NotAfter = t0.Add(-time.Second) }),
		"not valid yet":        template(func(c *x509.Certificate) { c.NotBefore = t0.Add(time.Second) }),
		"no CA":                {"ca.crt": issue(t, servingTemplate(w), nil).crt(), "ca.key": good["ca.key"]},
		"no right to sign":     template(func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature }),
	}
	for name, data := range tests {
		t.Run(name, func(t *testing.T) {
			w.t = t
			before := w.ensure()
			old := w.get(certs.ServingSecret)
			w.put(certs.CASecret, data)
			after := w.ensure("ca", "serving")
			if slices.Equal(after.CABundle, before.CABundle) || slices.Equal(after.CABundle, data["ca.crt"]) {
				t.Error("the CA is not a new one")
			}
			if countCertificates(after.CABundle) != 1 {
				t.Errorf("the bundle trusts more than the new CA: %s", after.CABundle)
			}
			if slices.Equal(w.get(certs.ServingSecret).Data["tls.key"], old.Data["tls.key"]) {
				t.Error("the serving certificate has its old key")
			}
		})
		w.t = t
	}
	t.Run("deleted", func(t *testing.T) {
		w.t = t
		w.remove(certs.CASecret)
		w.ensure("ca", "serving")
	})
	w.t = t
}

// A CA may be valid and yet sign nothing that a client accepts, with any serving certificate.
func TestEnsure_UnusableCA_IsReplaced(t *testing.T) {
	w := setup(t)
	template := caTemplate(w)
	template.PermittedDNSDomains, template.PermittedDNSDomainsCritical = []string{"example.com"}, true
	ca := issue(t, template, nil)
	w.put(certs.CASecret, ca.data(t))
	w.put(certs.ServingSecret, issue(t, servingTemplate(w), ca).data(t))
	w.ensure("ca", "serving")
}

// Case F3.
func TestEnsure_ValidServing_IsKept(t *testing.T) {
	w := setup(t)
	before := w.ensure("ca", "serving")
	other := issue(t, servingTemplate(w), w.ca())
	w.put(certs.ServingSecret, other.data(t))
	after := w.ensure()
	if !slices.Equal(before.CABundle, after.CABundle) {
		t.Error("another CA")
	}
	if !slices.Equal(w.get(certs.ServingSecret).Data["tls.crt"], other.crt()) {
		t.Error("another serving certificate")
	}
}

func TestEnsure_InvalidServing_KeepsCA(t *testing.T) {
	w := setup(t)
	first := w.ensure("ca", "serving")
	ca := w.ca()
	good := issue(t, servingTemplate(w), ca).data(t)
	template := func(change func(*x509.Certificate)) map[string][]byte {
		c := servingTemplate(w)
		change(&c)
		return issue(t, c, ca).data(t)
	}
	tests := map[string]map[string][]byte{
		"no data":             nil,
		"no tls.crt":          changed(good, "tls.crt", nil),
		"no tls.key":          changed(good, "tls.key", nil),
		"text as certificate": changed(good, "tls.crt", []byte("garbage")),
		"text as key":         changed(good, "tls.key", []byte("garbage")),
		"key of another pair": changed(good, "tls.key", issue(t, servingTemplate(w), ca).pem(t)),
		"key in tls.crt":      changed(good, "tls.crt", append(slices.Clone(good["tls.crt"]), good["tls.key"]...)),
		"expired":             template(func(c *x509.Certificate) { c.NotAfter = t0.Add(-time.Second) }),
		"not valid yet":       template(func(c *x509.Certificate) { c.NotBefore = t0.Add(time.Second) }),
		"for another service": template(func(c *x509.Certificate) { c.DNSNames = []string{"other." + namespace, "other." + namespace + ".svc"} }),
		"without .svc":        template(func(c *x509.Certificate) { c.DNSNames = []string{service + "." + namespace} }),
		"without names":       template(func(c *x509.Certificate) { c.DNSNames = nil }),
		"for clients":         template(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }),
	}
	for name, data := range tests {
		t.Run(name, func(t *testing.T) {
			w.t = t
			w.put(certs.ServingSecret, data)
			after := w.ensure("serving")
			if !slices.Equal(after.CABundle, first.CABundle) {
				t.Error("another CA")
			}
		})
		w.t = t
	}
	t.Run("deleted", func(t *testing.T) {
		w.t = t
		w.remove(certs.ServingSecret)
		w.ensure("serving")
	})
	w.t = t
}

// Case F4.
func TestEnsure_ServingOfForeignCA_ReplacesBoth(t *testing.T) {
	w := setup(t)
	before := w.ensure("ca", "serving")
	foreign := issue(t, caTemplate(w), nil)
	for name, data := range map[string]map[string][]byte{
		"signed by another CA": issue(t, servingTemplate(w), foreign).data(t),
		"signed by itself":     issue(t, servingTemplate(w), nil).data(t),
	} {
		w.put(certs.ServingSecret, data)
		after := w.ensure("ca", "serving")
		if slices.Equal(after.CABundle, before.CABundle) || countCertificates(after.CABundle) != 1 {
			t.Errorf("%s: the old CA is still trusted", name)
		}
		before = after
	}
}

func TestEnsure_CAWithOtherName_IsNotTrusted(t *testing.T) {
	w := setup(t)
	before := w.ensure("ca", "serving")
	s := w.get(certs.CASecret)
	foreign := issue(t, caTemplate(w), nil)
	w.put(certs.CASecret, changed(s.Data, "ca.crt", append(slices.Clone(s.Data["ca.crt"]), foreign.crt()...)))
	after := w.ensure()
	if !slices.Equal(after.CABundle, before.CABundle) {
		t.Errorf("the bundle trusts what was added to ca.crt: %s", after.CABundle)
	}
}

func TestEnsure_Labels_AreSetAndOthersKept(t *testing.T) {
	w := setup(t)
	before := w.ensure("ca", "serving")
	for _, name := range []string{certs.CASecret, certs.ServingSecret} {
		s := w.get(name)
		s.Labels = map[string]string{"team": "a", "kyma-project.io/module": "other"}
		require.NoError(t, w.client.Update(t.Context(), s))
	}
	after := w.ensure()
	if !slices.Equal(before.CABundle, after.CABundle) || !before.ServingNotAfter.Equal(after.ServingNotAfter) {
		t.Error("certificates were replaced")
	}
	for _, name := range []string{certs.CASecret, certs.ServingSecret} {
		if got := w.get(name).Labels["team"]; got != "a" {
			t.Errorf("Secret %s: label team is %q", name, got)
		}
	}
}

func TestEnsure_ImmutableSecret_IsRecreated(t *testing.T) {
	w := setup(t)
	w.ensure("ca", "serving")
	immutable := true
	s := w.get(certs.ServingSecret)
	s.Immutable = &immutable
	require.NoError(t, w.client.Update(t.Context(), s))
	w.ensure()
	w.remove(certs.CASecret)
	other := &corev1.Secret{Type: "example.com/other", Data: map[string][]byte{"a": []byte("b")}}
	other.Name, other.Namespace = certs.CASecret, namespace
	require.NoError(t, w.client.Create(t.Context(), other))
	w.ensure("ca", "serving")
	if s := w.get(certs.ServingSecret); s.Immutable != nil || s.Type != corev1.SecretTypeTLS {
		t.Errorf("the serving Secret is immutable (%v), or of type %s", s.Immutable, s.Type)
	}
}
