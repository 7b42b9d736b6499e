package lms

import (
	"strings"
	"testing"
)

func TestRegionsOfTenants(t *testing.T) {
	t.Parallel()
	for region, want := range map[string]string{
		"westeurope": "eu", "northeurope": "eu", "eu-central-1": "eu", "europe-west3": "eu", "eu-de-1": "eu", "uksouth": "eu", "": "eu",
		"eastus": "us", "westus2": "us", "CentralUS": "us", "us-east-1": "us", "us-central1": "us", "northamerica-northeast1": "us",
		"ca-central-1": "us", "sa-east-1": "us", "brazilsouth": "us",
		"australiaeast": "aus", "southeastasia": "aus", "ap-southeast-1": "aus", "asia-south1": "aus", "japaneast": "aus", "centralindia": "aus",
	} {
		if got := tenantRegion(region); got != want {
			t.Errorf("%q is in %s, want %s", region, got, want)
		}
	}
}

func TestCredentialsAreReadBackAndNeverShown(t *testing.T) {
	t.Parallel()
	c, err := newCredentials()
	if err != nil {
		t.Fatal(err)
	}
	data, err := c.encode()
	if err != nil {
		t.Fatal(err)
	}
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
	c, err := newCredentials()
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{"", "garbage", c.CSR, "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, certificate string) {
		if c.belongs(certificate) {
			t.Errorf("%q is taken for the certificate of a key that it does not know", certificate)
		}
	})
}
