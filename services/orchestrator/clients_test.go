package orchestrator_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/access"
	"github.com/kyma-project/keb/libs/testkit"
)

func TestClients_LimitReached_Returns429ExceptHealth(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	g.cfg.Access.Clients = access.ClientLimits{Rate: 1, Burst: 3}
	g.cfg.Access.TrustedProxies = []string{"127.0.0.1"}
	g.now = testkit.NewClock(time.Now()).Now // no more than the burst is granted
	g.orchestrator()
	from := func(addr string) caller {
		return func(r *http.Request) {
			bearer(veraToken)(r)
			r.Header.Set("X-Forwarded-For", addr)
		}
	}
	limited := 0
	for range 40 {
		status, header, text := g.send(route{pattern: "GET /me"}, from("192.0.2.1"))
		if status != http.StatusTooManyRequests {
			continue
		}
		limited++
		if header.Get("Retry-After") == "" || !strings.Contains(text, "too many requests from your address") {
			t.Errorf("%v %s", header, text)
		}
	}
	if limited != 37 {
		t.Errorf("%d of 40 requests are rejected, want all except the burst of 3", limited)
	}
	if status, _, _ := g.send(route{pattern: "GET /healthz"}, from("192.0.2.1")); status != http.StatusOK {
		t.Errorf("health: %d", status)
	}
	if status, _, _ := g.send(route{pattern: "GET /me"}, from("192.0.2.2")); status != http.StatusOK {
		t.Errorf("another client: %d", status)
	}
	if counted := int(g.metric("keb_operator_requests_total", "429", "GET /me")); counted != limited {
		t.Errorf("%d rejections are counted, want %d", counted, limited)
	}
}
