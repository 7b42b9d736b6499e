package lms

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRegionsOfTenants(t *testing.T) {
	t.Parallel()
	for region, want := range map[string]string{
		"westeurope": "eu", "northeurope": "eu", "westus2": "eu", "uksouth": "eu", "FranceCentral": "eu", "uaenorth": "eu",
		"eastus": "us", "eastus2": "us", "centralus": "us", "EastUS2EUAP": "us", "southeastasia": "aus", "japaneast": "aus",
		// Those that are not in the table.
		"": "eu", "us-east-1": "eu", "australiaeast": "eu", "ap-southeast-1": "eu", "eu-central-1": "eu",
	} {
		if got := tenantRegion(region); got != want {
			t.Errorf("%q is in %s, want %s", region, got, want)
		}
	}
}

func TestCredentialsAreReadBackAndNeverShown(t *testing.T) {
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

// What LMS sends as a certificate may be anything.
func FuzzCertificate(f *testing.F) {
	c, err := newCredentials("ga-1")
	require.NoError(f, err)
	for _, seed := range []string{"", "garbage", c.CSR, "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, certificate string) {
		if c.belongs(certificate) {
			t.Errorf("%q is taken for the certificate of a key that it does not know", certificate)
		}
	})
}
