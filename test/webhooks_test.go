package test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/internal/harness"
)

// listener receives CloudEvents with the SDK.
type listener struct {
	mu     sync.Mutex
	events []cloudevents.Event
}

// listen creates a webhook with the command line, for failed operations and orchestrations.
func listen(t *testing.T, sys *harness.System, format string) *listener {
	t.Helper()
	l := &listener{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e, err := cehttp.NewEventFromHTTPRequest(r)
		if err == nil {
			err = e.Validate()
		}
		if err != nil || r.Header.Get("webhook-signature") == "" {
			t.Errorf("%s: the SDK reads no signed event: %v", format, err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.events = append(l.events, *e)
	}))
	t.Cleanup(server.Close)
	keb(t, sys, nil, 0, "webhooks", "create", format, server.URL, "--format", format, "--kind", "failed,orchestration", "--type", "upgradeKyma")
	return l
}

// await waits for the end of an orchestration and a number of failed operations.
func (l *listener) await(t *testing.T, orchestration, state string, failed int) {
	t.Helper()
	testkit.Eventually(t, limit, "the webhook has everything", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		ended, operations := false, map[string]bool{}
		for _, e := range l.events {
			var data struct{ State, OrchestrationID string }
			if e.DataAs(&data) == nil && data.OrchestrationID == orchestration && data.State == state {
				ended = true
			}
			if e.Extensions()["kind"] == "failed" && e.Extensions()["plan"] == "azure" {
				operations[e.Subject()] = true
			}
		}
		return ended && len(operations) == failed
	})
}
