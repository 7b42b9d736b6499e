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
	b.expect("GET", b.send(http.MethodGet, "/oauth/v2/catalog", nil, "Authorization", token("keb")), 200)
	a := b.send(http.MethodGet, "/oauth/v2/catalog", nil, "Authorization", token("other"))
	if a.status != 401 || !strings.Contains(strings.Join(a.header["Www-Authenticate"], " "), "Bearer") {
		t.Errorf("status %d %v", a.status, a.header)
	}
	b.expect("basic credentials", b.send(http.MethodGet, "/v2/catalog", nil), 200)
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
	b.busy("PUT", b.put("i", order(azure)))
	if got := b.accepted(b.delete("i")); got != operation {
		t.Errorf("DELETE: operation %s, want %s", got, operation)
	}
	b.expect("GET", b.send(http.MethodGet, "/v2/service_instances/i", nil), 404)
	if a := b.last("i", ""); a.text("state") != "in progress" {
		t.Errorf("poll: status %d %s", a.status, a.raw)
	}
	b.orch.set(func() { b.orch.lingering = false })
	b.ended("i", operation, "succeeded")
	b.provisioned("i")
}
