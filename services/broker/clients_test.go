package broker_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/access"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/broker"
)

func TestClientLimit_TooManyRequests_Returns429(t *testing.T) {
	t.Parallel()
	b := newBenchAt(t, testkit.NewClock(time.Now()).Now, func(c *broker.Config) {
		c.Access.Clients, c.Access.TrustedProxies = access.ClientLimits{Rate: 1, Burst: 3}, []string{"127.0.0.1"}
	})
	limited := 0
	for range 20 {
		for _, path := range []string{"/v2/catalog", "/runtimes"} {
			a := b.send(http.MethodGet, path, nil, "X-Forwarded-For", "192.0.2.1")
			if a.status != http.StatusTooManyRequests {
				continue
			}
			limited++
			if a.header.Get("Retry-After") == "" || !strings.Contains(a.raw, `"description":"too many requests from your address`) {
				t.Errorf("%s: %v %s", path, a.header, a.raw)
			}
		}
	}
	if limited != 37 {
		t.Errorf("%d of 40 requests are refused, want all but 3", limited)
	}
	if a := b.send(http.MethodGet, "/v2/catalog", nil, "X-Forwarded-For", "192.0.2.2"); a.status != http.StatusOK {
		t.Errorf("another platform: %d %s", a.status, a.raw)
	}
}
