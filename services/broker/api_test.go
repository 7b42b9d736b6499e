package broker_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/broker"
)

func with(o map[string]any, member string, value any) map[string]any {
	o[member] = value
	return o
}

func TestOrder_Invalid_IsRejectedAndNotStored(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *broker.Config) { c.EUAccounts = []string{"ga-eu"} })
	european := accountContext()
	european["globalaccount_id"] = "ga-eu"
	for _, tc := range []struct {
		name, prefix string
		body         map[string]any
		status       int
		want         string
	}{
		{"machine type", "", with(order(azure), "parameters", map[string]any{"name": "n", "machineType": "huge"}), 400, "parameters/machineType must be one of Standard_D4_v3"},
		{"region", "", with(order(azure), "parameters", map[string]any{"name": "n", "region": "mars"}), 400, "parameters/region must be one of eastus"},
		{"autoscaler", "", with(order(azure), "parameters", map[string]any{"name": "n", "autoScalerMin": 8, "autoScalerMax": 5}), 400, "/autoScalerMin (8) must not be greater than /autoScalerMax (5)"},
		{"unknown plan", "", order("unknown"), 400, "plan"},
		{"context", "", with(order(azure), "context", map[string]any{"subaccount_id": "s", "user_id": "u"}), 400, "context/globalaccount_id is required"},
		{"EU access", "/oauth/cf-eu11", order(aws), 422, "not allowed to order in a region with EU access"},
		{"kubeconfig", "", with(order(own), "parameters", map[string]any{"name": "n", "shootName": "s", "shootDomain": "d", "kubeconfig": "x"}), 400, "parameters/kubeconfig must be base64-encoded"},
	} {
		a := b.send(http.MethodPut, tc.prefix+"/v2/service_instances/i?accepts_incomplete=true", tc.body)
		if a.status != tc.status || !strings.Contains(a.text("description"), tc.want) {
			t.Errorf("%s: status %d %s, want %d and %q", tc.name, a.status, a.raw, tc.status, tc.want)
		}
	}
	if n := b.count(`SELECT (SELECT count(*) FROM broker.instances) + (SELECT count(*) FROM broker.operations)`); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	a := b.send(http.MethodPut, "/oauth/cf-eu11/v2/service_instances/i?accepts_incomplete=true", with(order(aws), "context", european))
	b.ended("i", b.accepted(a), "succeeded")
	if n := len(b.orch.deliveries()); n != 1 {
		t.Errorf("%d requests were published", n)
	}
}

func TestBearerToken_Valid_IsAccepted(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k"}}})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "keys.json")
	require.NoError(t, os.WriteFile(file, set, 0o600))
	b := newBench(t, func(c *broker.Config) {
		c.JWTIssuer, c.JWTAudience, c.JWTKeySetFile = "https://issuer.example.org", "keb", file
	})
	token := func(audience string) string {
		signed, err := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{
			"iss": "https://issuer.example.org", "aud": audience, "sub": "platform", "scope": "broker:write",
			"exp": time.Now().Add(time.Hour).Unix(),
		}).SignedString(key)
		require.NoError(t, err)
		return "Bearer " + signed
	}
	if a := b.send(http.MethodGet, "/oauth/v2/catalog", nil, "Authorization", token("keb")); a.status != 200 {
		t.Errorf("status %d %s", a.status, a.raw)
	}
	a := b.send(http.MethodGet, "/oauth/v2/catalog", nil, "Authorization", token("other"))
	if a.status != 401 || !strings.Contains(strings.Join(a.header["Www-Authenticate"], " "), "Bearer") {
		t.Errorf("status %d %v", a.status, a.header)
	}
	if a := b.send(http.MethodGet, "/v2/catalog", nil); a.status != 200 {
		t.Errorf("basic credentials: status %d %s", a.status, a.raw)
	}
}

func TestRequestMetrics_EachRequest_CountsRouteAndCode(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("i")
	b.send(http.MethodGet, "/v2/service_instances/unknown", nil)
	families, err := b.registry.Gather()
	require.NoError(t, err)
	got := make(map[string]float64)
	for _, f := range families {
		if f.GetName() == "keb_osb_requests_total" {
			for _, m := range f.GetMetric() {
				got[m.GetLabel()[1].GetValue()+" "+m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	for _, want := range []string{"PUT /v2/service_instances/{instance_id} 202", "GET /v2/service_instances/{instance_id} 404"} {
		if got[want] != 1 {
			t.Errorf("%s: %v, all: %v", want, got[want], got)
		}
	}
	if n, err := testutil.GatherAndCount(b.registry, "keb_osb_request_duration_seconds", "keb_broker_unpublished_requests"); err != nil || n < 3 {
		t.Errorf("%d series, %v", n, err)
	}
}

// Two brokers with one database and one bus behave like one broker.
func TestBroker_TwoReplicas_ShareTheWork(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	stopFirst := b.stop
	b.start()
	stopSecond := b.stop
	b.stop = func() { stopFirst(); stopSecond() }
	for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
		b.provisioned(id)
		b.ended(id, b.accepted(b.delete(id)), "succeeded")
	}
	for id, n := range b.orch.deliveries() {
		if n != 1 {
			t.Errorf("operation %s was requested %d times", id, n)
		}
	}
}

func TestDeprovision_Accepted_AuditsTheCaller(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("i")
	operation := b.accepted(b.delete("i"))
	b.ended("i", operation, "succeeded")
	testkit.Eventually(t, waitTimeout, "audit", func() bool {
		for line := range strings.Lines(b.log.String()) {
			if strings.Contains(line, "msg=audit") && strings.Contains(line, "action=deprovision") &&
				strings.Contains(line, operation) && strings.Contains(line, "principal=keb") {
				return true
			}
		}
		return false
	})
}

// The row of an instance is removed shortly before its deprovisioning ends.
func TestDeprovision_InstanceRemoved_StillRunsUntilEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("i")
	b.orch.set(func() { b.orch.lingering = true })
	operation := b.accepted(b.delete("i"))
	testkit.Eventually(t, waitTimeout, "removal", func() bool { return b.count(`SELECT count(*) FROM broker.instances`) == 0 })
	if a := b.put("i", order(azure)); a.status != 422 || a.text("error") != "ConcurrencyError" {
		t.Errorf("PUT: status %d %s", a.status, a.raw)
	}
	if got := b.accepted(b.delete("i")); got != operation {
		t.Errorf("DELETE: operation %s, want %s", got, operation)
	}
	if a := b.send(http.MethodGet, "/v2/service_instances/i", nil); a.status != 404 {
		t.Errorf("GET: status %d %s", a.status, a.raw)
	}
	if a := b.last("i", ""); a.text("state") != "in progress" {
		t.Errorf("poll: status %d %s", a.status, a.raw)
	}
	b.orch.set(func() { b.orch.lingering = false })
	b.ended("i", operation, "succeeded")
	b.provisioned("i")
}
