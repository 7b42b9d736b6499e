package certs_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/kyma-project/keb/services/btp-manager/internal/certs"
)

func countCertificates(bundle []byte) int { return bytes.Count(bundle, []byte("BEGIN CERTIFICATE")) }

// Case F7.
func TestEnsure_ServingNearExpiry_KeepsCA(t *testing.T) {
	w := setup(t)
	before := w.ensure("ca", "serving")
	w.now = before.RenewAt.Add(-time.Second)
	w.ensure()
	w.now = before.RenewAt
	after := w.ensure("serving")
	if !slices.Equal(before.CABundle, after.CABundle) {
		t.Error("another CA")
	}
	if want := w.now.Add(365 * day); !after.ServingNotAfter.Equal(want) {
		t.Errorf("the new one ends at %s, want %s", after.ServingNotAfter, want)
	}
}

// Case F8.
func TestEnsure_CANearExpiry_RenewsBoth(t *testing.T) {
	w := setup(t)
	w.cfg.CALifetime, w.cfg.ServingLifetime = 400*day, 390*day
	before := w.ensure("ca", "serving")
	old := w.ca()

	// The serving certificate is renewed shortly before, and then expires with its CA.
	w.now = before.RenewAt
	renewed := w.ensure("serving")
	if !renewed.ServingNotAfter.Equal(before.CANotAfter) {
		t.Errorf("the serving certificate ends at %s, its CA at %s", renewed.ServingNotAfter, before.CANotAfter)
	}
	w.now = renewed.RenewAt
	after := w.ensure("ca", "serving")
	if want := slices.Concat(w.ca().crt(), old.crt()); !slices.Equal(after.CABundle, want) {
		t.Error("the bundle is not the new CA and then the previous one")
	}

	// The previous CA expires in seven days, when it would be removed anyway.
	if want := before.CANotAfter; !after.RenewAt.Equal(want) {
		t.Errorf("the next thing to do is at %s, want %s", after.RenewAt, want)
	}
	w.now = after.RenewAt.Add(-time.Second)
	w.ensure()
	w.now = after.RenewAt
	settled := w.ensure()
	if !slices.Equal(settled.CABundle, w.ca().crt()) {
		t.Error("the previous CA is still trusted")
	}
	if _, ok := w.get(certs.CASecret).Data["cross.crt"]; ok {
		t.Error("the signature of the previous CA is still there")
	}
}

func TestEnsure_PreviousCAUnused_IsRemoved(t *testing.T) {
	w := setup(t)
	before := w.ensure("ca", "serving")
	// With a longer margin, the CA is due long before its expiry.
	w.cfg.RenewBefore, w.cfg.CALifetime = 180*day, 3650*day
	w.now = before.CANotAfter.Add(-179 * day)
	w.put(certs.ServingSecret, issue(t, servingTemplate(w), w.ca()).data(t))
	w.ensure("ca", "serving")
	w.cfg.RenewBefore = 7 * day
	w.now = w.now.Add(7*day - time.Second)
	if got := w.ensure(); countCertificates(got.CABundle) != 2 || !got.RenewAt.Equal(w.now.Add(time.Second)) {
		t.Errorf("%d CAs are trusted, until %s", countCertificates(got.CABundle), got.RenewAt)
	}
	w.now = w.now.Add(time.Second)
	if got := w.ensure(); countCertificates(got.CABundle) != 1 {
		t.Error("the previous CA is still trusted")
	}
}

func TestEnsure_SwappedCA_IsNotTrusted(t *testing.T) {
	w := setup(t)
	w.ensure("ca", "serving")
	template := caTemplate(w)
	template.NotAfter = w.now.Add(day)
	swapped := issue(t, template, nil)
	w.put(certs.CASecret, swapped.data(t))
	if got := w.ensure("ca", "serving"); bytes.Contains(got.CABundle, swapped.crt()) {
		t.Error("the bundle trusts an unused CA")
	}
	w.put(certs.CASecret, swapped.data(t))
	w.remove(certs.ServingSecret)
	if got := w.ensure("ca", "serving"); bytes.Contains(got.CABundle, swapped.crt()) {
		t.Error("the bundle trusts an unused CA, without a serving certificate")
	}
}

func TestConfig_PermanentRenewal_IsRejected(t *testing.T) {
	w := setup(t)
	w.ensure("ca", "serving")
	before := w.versions()
	good := w.cfg
	for name, change := range map[string]func(*certs.Config){
		"margin longer than half of the CA":          func(c *certs.Config) { c.CALifetime = 13 * day },
		"margin longer than half of the certificate": func(c *certs.Config) { c.ServingLifetime = 13 * day },
		"no margin":  func(c *certs.Config) { c.RenewBefore = 0 },
		"no service": func(c *certs.Config) { c.Service = "" },
	} {
		w.cfg = good
		change(&w.cfg)
		if _, err := w.certs().Ensure(t.Context()); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if after := w.versions(); after != before {
		t.Error("the Secrets were written")
	}
}
