package lms

import (
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/worker"
)

func TestTenantRegion_HyperscalerRegions_AreMapped(t *testing.T) {
	t.Parallel()
	for region, want := range map[string]string{
		"westeurope": "eu", "northeurope": "eu", "westus2": "eu", "uksouth": "eu", "FranceCentral": "eu", "uaenorth": "eu",
		"eastus": "us", "eastus2": "us", "centralus": "us", "EastUS2EUAP": "us", "southeastasia": "aus", "japaneast": "aus",
		// The following regions are not in the table.
		"": "eu", "us-east-1": "eu", "australiaeast": "eu", "ap-southeast-1": "eu", "eu-central-1": "eu",
	} {
		if got := tenantRegion(region); got != want {
			t.Errorf("%q is in %s, want %s", region, got, want)
		}
	}
}

func TestTenantName_Account_KeepsLettersAndDigits(t *testing.T) {
	t.Parallel()
	for account, want := range map[string]string{"ga-1": "ga1", strings.Repeat("ab-", 40): strings.Repeat("ab", 25), "---": ""} {
		if got := tenantName(account); got != want {
			t.Errorf("%s: %q, want %q", account, got, want)
		}
	}
}

func TestCredentials_RoundTrip_KeepsKeySecret(t *testing.T) {
	t.Parallel()
	c, err := newCredentials("ga-1")
	require.NoError(t, err)
	data, err := c.encode()
	require.NoError(t, err)
	if got, err := decodeCredentials(data); err != nil || got != c {
		t.Errorf("read back with error %v", err)
	}
	if strings.Contains(c.String(), "KEY") || !strings.Contains(c.Key, "PRIVATE KEY") || !strings.Contains(c.CSR, "CERTIFICATE REQUEST") {
		t.Errorf("credentials %s", c)
	}
	for _, bad := range []string{"", "{}", `{"key":"PRIVATE"}`, `{"csr":"x"}`, "PRIVATE"} {
		if _, err := decodeCredentials([]byte(bad)); err == nil || strings.Contains(err.Error(), "PRIVATE") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestKey_IsRSAInPKCS1(t *testing.T) {
	t.Parallel()
	c, err := newCredentials("ga-1")
	require.NoError(t, err)
	block, _ := pem.Decode([]byte(c.Key))
	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	require.NoError(t, err)
	if block.Type != "RSA PRIVATE KEY" || key.N.BitLen() != 2048 {
		t.Errorf("%s with %d bits", block.Type, key.N.BitLen())
	}
}

func TestFluentBitOverrides_AreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	want := []worker.Override{
		{Key: "fluent-bit.conf.Filter.Kubernetes.Merge_Log", Value: "Off"},
		{Key: "fluent-bit.conf.Input.Kubernetes.Exclude_Path", Value: "/var/log/containers/*_dex-*.log,/var/log/containers/*_kcproxy-*.log"},
		{Key: "fluent-bit.conf.Output.forward.enabled", Value: "true"},
		{Key: "fluent-bit.conf.Output.forward.Match", Value: "kube.*"},
		{Key: "fluent-bit.backend.forward.host", Value: "forward.t1.eu.lms.example.com"},
		{Key: "fluent-bit.backend.forward.port", Value: "8443"},
		{Key: "fluent-bit.backend.forward.tls.enabled", Value: "true"},
		{Key: "fluent-bit.backend.forward.tls.verify", Value: "On"},
		{Key: "fluent-bit.backend.forward.tls.ca", Value: "Q0E="},
		{Key: "fluent-bit.backend.forward.tls.cert", Value: "Q0VSVA=="},
		{Key: "fluent-bit.backend.forward.tls.key", Value: "S0VZ"},
		{Key: "fluent-bit.conf.Filter.record_modifier.enabled", Value: "true"},
		{Key: "fluent-bit.conf.Filter.record_modifier.Match", Value: "kube.*"},
		{Key: "fluent-bit.conf.Filter.record_modifier.Key", Value: "subaccount_id"},
		{Key: "fluent-bit.conf.Filter.record_modifier.Value", Value: "SA-1"},
	}
	if diff := cmp.Diff(want, fluentBit("t1.eu.lms.example.com", "CA", "CERT", "KEY", "SA-1")); diff != "" {
		t.Errorf("overrides (-want +got):\n%s", diff)
	}
}

// LMS may send any text as a certificate.
func FuzzCertificate(f *testing.F) {
	c, err := newCredentials("ga-1")
	require.NoError(f, err)
	for _, seed := range []string{"", "garbage", c.CSR, "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, certificate string) {
		if c.belongs(certificate) {
			t.Errorf("%q is accepted as the certificate of another key", certificate)
		}
	})
}
