package app_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
)

func certificateSecret(name string) *corev1.Secret {
	o := new(corev1.Secret)
	o.Namespace, o.Name = kymaSystem, name
	return o
}

// bundles reads the caBundle of every webhook of both configurations.
func (s *system) bundles() [][]byte {
	s.t.Helper()
	mutating, validating := new(admissionv1.MutatingWebhookConfiguration), new(admissionv1.ValidatingWebhookConfiguration)
	mutating.Name, validating.Name = "sap-btp-operator-mutating-webhook-configuration", "sap-btp-operator-validating-webhook-configuration"
	if !s.exists(mutating) || !s.exists(validating) {
		return nil
	}
	var all [][]byte
	for _, w := range mutating.Webhooks {
		all = append(all, w.ClientConfig.CABundle)
	}
	for _, w := range validating.Webhooks {
		all = append(all, w.ClientConfig.CABundle)
	}
	return all
}

// certificate reads the first certificate in PEM.
func certificate(t *testing.T, text []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(text)
	if block == nil {
		t.Fatalf("no PEM in %q", text)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	return c
}

// another is an unknown CA.
func another(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// trusted waits until every webhook trusts the CA in the Secret, and that CA has signed the serving certificate.
func (s *system) trusted() (authority, serving *x509.Certificate) {
	s.t.Helper()
	testkit.Eventually(s.t, waitTimeout, "all webhooks trust the CA", func() bool {
		ca, served := certificateSecret("ca-server-cert"), certificateSecret("webhook-server-cert")
		if !s.exists(ca) || !s.exists(served) {
			return false
		}
		all := s.bundles()
		if len(all) != 4 || slices.ContainsFunc(all, func(b []byte) bool { return !bytes.Equal(b, all[0]) }) {
			return false
		}
		block, _ := pem.Decode(ca.Data["ca.crt"])
		if block == nil || !bytes.Contains(all[0], pem.EncodeToMemory(block)) {
			return false
		}
		authority, serving = certificate(s.t, ca.Data["ca.crt"]), certificate(s.t, served.Data["tls.crt"])
		return serving.CheckSignatureFrom(authority) == nil
	})
	for _, b := range s.bundles() {
		if bytes.Contains(b, []byte("PRIVATE")) {
			s.t.Errorf("a caBundle holds a key:\n%s", b)
		}
		for rest := b; len(bytes.TrimSpace(rest)) > 0; {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil || block.Type != "CERTIFICATE" {
				s.t.Fatalf("a caBundle contains more than certificates:\n%s", b)
			}
		}
	}
	for _, name := range []string{"sap-btp-operator-webhook-service.kyma-system", "sap-btp-operator-webhook-service.kyma-system.svc"} {
		if err := serving.VerifyHostname(name); err != nil {
			s.t.Error(err)
		}
	}
	return authority, serving
}

func TestWebhooks_CAChanges_TrustCurrentCA(t *testing.T) {
	s := newSystem(t)
	s.start()
	o := s.provisioned()
	authority, serving := s.trusted()

	t.Run("both are the first ones", func(t *testing.T) {
		s := s.in(t)
		for _, which := range []string{"ca", "serving"} {
			s.awaitMetric(1, "certs_regenerations_total", "certificate", which)
		}
		for which, c := range map[string]*x509.Certificate{"ca": authority, "serving": serving} {
			if got, want := s.metric("certificate_expiry_timestamp_seconds", "certificate", which), float64(c.NotAfter.Unix()); got != want {
				t.Errorf("certificate_expiry_timestamp_seconds of %s is %v, want %v", which, got, want)
			}
		}
	})
	for _, tt := range []struct {
		name string
		do   func(s *system)
		// These report whether the CA and the serving certificate are replaced.
		newCA, newServing bool
	}{
		{"a caBundle of another CA", func(s *system) { s.setBundles(another(s.t)) }, false, false},
		{"a caBundle that is text", func(s *system) { s.setBundles([]byte("no certificate")) }, false, false},
		{"no caBundle", func(s *system) { s.setBundles(nil) }, false, false},
		{"the serving certificate deleted", func(s *system) { s.delete(certificateSecret("webhook-server-cert")) }, false, true},
		{"the CA deleted", func(s *system) { s.delete(certificateSecret("ca-server-cert")) }, true, true},
		{"both deleted", func(s *system) {
			s.delete(certificateSecret("ca-server-cert"))
			s.delete(certificateSecret("webhook-server-cert"))
		}, true, true},
		{"the CA replaced by text", func(s *system) {
			s.patch(certificateSecret("ca-server-cert"), `{"data":{"ca.crt":"dGV4dA==","ca.key":"dGV4dA=="}}`)
		}, true, true},
		{"the serving certificate replaced by text", func(s *system) {
			s.patch(certificateSecret("webhook-server-cert"), `{"data":{"tls.crt":"dGV4dA=="}}`)
		}, false, true},
		{"the CA without its labels", func(s *system) {
			s.patch(certificateSecret("ca-server-cert"), `{"metadata":{"labels":null},"data":{"ca.crt":"dGV4dA=="}}`)
		}, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := s.in(t)
			authority, serving := s.trusted()
			tt.do(s)
			newAuthority, newServing := authority, serving
			testkit.Eventually(t, waitTimeout, "the certificates are as they should be", func() bool {
				ca, served := certificateSecret("ca-server-cert"), certificateSecret("webhook-server-cert")
				if !s.exists(ca) || !s.exists(served) || bytes.HasPrefix(ca.Data["ca.crt"], []byte("text")) || bytes.HasPrefix(served.Data["tls.crt"], []byte("text")) {
					return false
				}
				newAuthority, newServing = s.trusted()
				return newAuthority.Equal(authority) != tt.newCA && newServing.Equal(serving) != tt.newServing
			})
			s.await(o, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
		})
	}
}

// setBundles replaces the CA bundle of all webhooks, like a user with kubectl.
func (s *system) setBundles(bundle []byte) {
	s.t.Helper()
	for _, o := range []client.Object{new(admissionv1.MutatingWebhookConfiguration), new(admissionv1.ValidatingWebhookConfiguration)} {
		kind := "mutating"
		if _, ok := o.(*admissionv1.ValidatingWebhookConfiguration); ok {
			kind = "validating"
		}
		o.SetName("sap-btp-operator-" + kind + "-webhook-configuration")
		var edits []string
		for i := range 2 {
			edits = append(edits, fmt.Sprintf(`{"op":"add","path":"/webhooks/%d/clientConfig/caBundle","value":%q}`, i, base64.StdEncoding.EncodeToString(bundle)))
		}
		patch := client.RawPatch(types.JSONPatchType, []byte("["+strings.Join(edits, ",")+"]"))
		if err := s.Patch(s.t.Context(), o, patch, client.FieldOwner("kubectl-edit")); err != nil {
			s.t.Fatal(err)
		}
	}
}

func TestCertificates_NearExpiry_AreRenewed(t *testing.T) {
	s := newSystem(t)
	forward := s.clock()
	dueIn := func(c *x509.Certificate, left time.Duration) {
		forward(c.NotAfter.Sub(s.now()) - s.settings.ExpirationBoundary - left)
	}
	s.start()
	o := s.provisioned()
	authority, serving := s.trusted()

	// The cluster does not change any more, so this pass must schedule the next one.
	dueIn(serving, 2*time.Second)
	s.poke(o)
	s.awaitMetric(2, "certs_regenerations_total", "certificate", "serving")
	sameAuthority, renewed := s.trusted()
	if !sameAuthority.Equal(authority) || renewed.Equal(serving) || !renewed.NotAfter.After(serving.NotAfter) {
		t.Errorf("CA kept: %v, serving certificate new: %v, ends %s", sameAuthority.Equal(authority), !renewed.Equal(serving), renewed.NotAfter)
	}

	dueIn(authority, -time.Minute)
	s.poke(o)
	s.awaitMetric(2, "certs_regenerations_total", "certificate", "ca")
	newAuthority, last := s.trusted()
	if newAuthority.Equal(authority) || last.Equal(renewed) {
		t.Error("a certificate stayed the same though its CA was about to end")
	}
	s.await(o, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
}
