package landscape_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

const tenants = "/lms/tenants"

func newTenant(name, region string) map[string]any {
	return map[string]any{
		"name": name, "region": region, "samlGroups": []string{"skr-logging-viewer"}, "clusterType": "ha",
		"datacenter": "all", "environment": "dev", "project": "kyma", "samlTenant": "s", "costcenter": 0, "globalAccountID": "",
	}
}

var lmsToken = header("X-LMS-Token", "keb")

// csr is a signing request with its key.
func csr(t *testing.T, commonName string) (string, *rsa.PrivateKey) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	subject := pkix.Name{CommonName: commonName, Organization: []string{"ga-1"}, OrganizationalUnit: []string{uuid.NewString()}}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})), key
}

func certificate(t *testing.T, text string) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		t.Fatalf("no PEM: %s", text)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	return c
}

func TestLMS_Tenant_IsSharedByNameAndRegion(t *testing.T) {
	t.Parallel()
	w := setup(t)
	first := w.must(200, "POST", tenants, newTenant("ga1", "eu"), lmsToken)
	again := w.must(200, "POST", tenants, newTenant("ga1", "eu"), lmsToken)
	if text(t, first, "id") != text(t, again, "id") {
		t.Errorf("two tenants of one name and region: %v, %v", first, again)
	}
	for _, other := range []map[string]any{newTenant("ga1", "us"), newTenant("ga2", "eu")} {
		if got := w.must(200, "POST", tenants, other, lmsToken); text(t, got, "id") == text(t, first, "id") {
			t.Errorf("%v shares a tenant", other)
		}
	}
	if now, ever := w.held("lms", "tenant"); now != 3 || ever != 3 {
		t.Errorf("LMS holds %d tenants of %d ever created, want 3 of 3", now, ever)
	}
}

func TestLMS_TenantReady_SignsCertificate(t *testing.T) {
	t.Parallel()
	w := setup(t)
	tenant := tenants + "/" + text(t, w.must(200, "POST", tenants, newTenant("ga1", "eu"), lmsToken), "id")
	dns := text(t, w.must(200, "GET", tenant, nil, lmsToken), "dns")
	if !strings.HasSuffix(dns, ".eu.lms.example.com") {
		t.Errorf("dns is %s", dns)
	}
	request, key := csr(t, "fluentbit")
	if got := w.must(200, "GET", tenant+"/status", nil, lmsToken); got["kibanaDNSResolves"] != false || got["elasticsearchDNSResolves"] != false {
		t.Errorf("a new tenant is %v", got)
	}
	w.must(409, "POST", tenant+"/certs", map[string]any{"certId": 0, "csr": request}, lmsToken)

	w.clock.Advance(reconcileTime)
	if got := w.must(200, "GET", tenant+"/status", nil, lmsToken); got["kibanaDNSResolves"] != true || got["elasticsearchDNSResolves"] != true {
		t.Errorf("a tenant that is due is %v", got)
	}
	callback := text(t, w.must(200, "POST", tenant+"/certs", map[string]any{"certId": 0, "csr": request}, lmsToken), "callbackUrl")
	if again := text(t, w.must(200, "POST", tenant+"/certs", map[string]any{"certId": 0, "csr": request}, lmsToken), "callbackUrl"); again != callback {
		t.Errorf("the same request gets another certificate: %s, %s", callback, again)
	}
	path, ours := strings.CutPrefix(callback, w.url)
	if !ours {
		t.Fatalf("callback %s is elsewhere", callback)
	}
	w.must(404, "GET", path, nil, lmsToken)
	w.clock.Advance(reconcileTime)
	got := certificate(t, text(t, w.must(200, "GET", path, nil, lmsToken), "cert"))
	if got.Subject.CommonName != "fluentbit" || !key.PublicKey.Equal(got.PublicKey) {
		t.Errorf("the certificate is of %s with another key", got.Subject)
	}
	authority := certificate(t, text(t, w.must(200, "GET", tenant+"/certs/ca", nil, lmsToken), "cert"))
	if err := got.CheckSignatureFrom(authority); err != nil {
		t.Errorf("the certificate is not of the authority: %v", err)
	}
}

func TestLMS_InvalidRequest_IsRejected(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.must(401, "POST", tenants, newTenant("ga1", "eu"), header("X-LMS-Token", "wrong"))
	for problem, change := range map[string]func(map[string]any){
		"name":        func(b map[string]any) { b["name"] = "ga-1" },
		"name: must":  func(b map[string]any) { b["name"] = strings.Repeat("a", 51) },
		"region":      func(b map[string]any) { b["region"] = "westeurope" },
		"clusterType": func(b map[string]any) { b["clusterType"] = "huge" },
	} {
		body := newTenant("ga1", "eu")
		change(body)
		if got := w.must(400, "POST", tenants, body, lmsToken); !strings.Contains(text(t, got, "message"), problem) {
			t.Errorf("a bad %s is answered with %v", problem, got)
		}
	}
	w.must(404, "GET", tenants+"/unknown", nil, lmsToken)
	w.must(404, "GET", tenants+"/unknown/certs/ca", nil, lmsToken)
	w.must(404, "GET", "/lms/unknown", nil, lmsToken)
	tenant := tenants + "/" + text(t, w.must(200, "POST", tenants, newTenant("ga1", "eu"), lmsToken), "id")
	w.clock.Advance(reconcileTime)
	nameless, _ := csr(t, "")
	for problem, request := range map[string]string{"PEM": "no PEM at all", "CN fluentbit": nameless} {
		got := w.must(400, "POST", tenant+"/certs", map[string]any{"certId": 0, "csr": request}, lmsToken)
		if !strings.Contains(text(t, got, "message"), problem) {
			t.Errorf("a CSR without %s is answered with %v", problem, got)
		}
	}
}
