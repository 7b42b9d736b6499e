package console

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/kyma-project/keb/libs/seal"
)

// receiver allows webhooks to this machine, and returns the URL of a receiver that answers with a status.
func (s *system) receiver(status func() int) string {
	s.t.Helper()
	s.Orchestrator.WebhookKeys, s.Orchestrator.LocalWebhooks = "k1:"+seal.NewKey(), true
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status()) }))
	s.t.Cleanup(receiver.Close)
	return receiver.URL
}

func TestConsole_Webhooks_AreCreatedAndChanged(t *testing.T) {
	s := thorough(t)
	viewer, operator := s.protect()
	var status atomic.Int64
	status.Store(http.StatusNoContent)
	url := s.receiver(func() int { return int(status.Load()) })
	s.start()

	p := openTab(t, s)
	p.forgive("401 (Unauthorized)")
	p.forgive("400 (Bad Request)")
	p.open("/console/webhooks")
	p.logIn(operator)
	p.shows("#main", "There are no webhooks.")
	p.click("button", "Create a webhook…")
	p.enter(`dialog input[name="name"]`, "On Call")
	p.enter(`dialog input[name="url"]`, url+"/path-canary")
	p.click("dialog .chip", "orchestration")
	p.enter(`dialog input[name="plans"]`, "azure, aws")
	p.click("dialog button", "Create the webhook")
	p.shows("dialog .refusal", "name")
	p.choose(`dialog input[name="name"]`, "on-call")
	p.click("dialog button", "Create the webhook")
	p.shows(".notice", "on-call is created.")
	p.shows("#main .callout", "The secret of on-call", "whsec_")
	p.click("button", "Hide the secret")
	p.until("the secret is hidden", `!document.querySelector('#main').innerText.includes('whsec_')`)
	p.shows("tbody tr", "on-call", url, "cloudevents", "failing, failed; plan azure or aws", "active", "none")
	if eval[bool](p, `document.documentElement.outerHTML.includes('path-canary')`) {
		t.Error("the path of the URL is shown")
	}

	p.click("tbody button", "Test…")
	p.click("dialog button", "Test")
	p.shows(".notice", "on-call accepted the test event with status 204.")
	status.Store(http.StatusServiceUnavailable)
	p.click("tbody button", "Test…")
	p.click("dialog button", "Test")
	p.shows("dialog .refusal", "The test event was not delivered", "503")
	p.click("dialog button", "Close")
	p.click("tbody button", "Disable…")
	p.click("dialog button", "Disable")
	p.shows("tbody tr", "disabled by olga")
	p.click("tbody button", "Enable…")
	p.click("dialog button", "Enable")
	p.shows("tbody tr", "active")

	p.changeUser(viewer)
	p.shows("#main", "on-call", "You are a viewer")
	if eval[bool](p, `document.querySelector('#main button') !== null`) {
		t.Error("a viewer sees a button")
	}
	p.changeUser(operator)
	p.click("tbody button", "Delete…")
	p.enter(`dialog input[name="typed"]`, "on-call")
	p.click("dialog button", "Delete")
	p.shows("#main", "There are no webhooks.")
	p.click("nav a", "Actions")
	p.shows("tbody tr", "delete_webhook", "enable_webhook", "disable_webhook", "test_webhook", "create_webhook")
}
