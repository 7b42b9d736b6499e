package orchestrator_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
)

// webhookSecret is the example of the Standard Webhooks specification.
const webhookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// receiver is a receiver of webhooks, which checks the signatures by the specification alone.
type receiver struct {
	t *testing.T
	*httptest.Server

	mu sync.Mutex
	// answer returns the status for a message; nil is 200.
	answer func(id string, attempt int) int
	ids    []string
	got    []received
}

type received struct {
	ID      string      `json:"-"`
	Status  int         `json:"-"`
	Header  http.Header `json:"-"`
	Body    string      `json:"-"`
	Kind    string      `json:"kind"`
	Type    string      `json:"type"`
	Subject string      `json:"subject"`
	Plan    string      `json:"plan"`
	Data    struct {
		Cursor  int64
		Details json.RawMessage
	} `json:"data"`
}

func newReceiver(t *testing.T, answer func(id string, attempt int) int) *receiver {
	t.Helper()
	r := &receiver{t: t, answer: answer}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return
	}
	id, at := request.Header.Get("webhook-id"), request.Header.Get("webhook-timestamp")
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(webhookSecret, "whsec_"))
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + at + "." + string(body)))
	if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); request.Header.Get("webhook-signature") != want {
		r.t.Errorf("the signature is %q, want %q", request.Header.Get("webhook-signature"), want)
	}
	if seconds, err := strconv.ParseInt(at, 10, 64); err != nil || time.Since(time.Unix(seconds, 0)).Abs() > 5*time.Minute {
		r.t.Errorf("the time of the signature is %q", at)
	}
	message := received{ID: id, Header: request.Header, Body: string(body)}
	_ = json.Unmarshal(body, &message) // messages for Slack have other members
	r.mu.Lock()
	attempt := 1
	for _, known := range r.ids {
		if known == id {
			attempt++
		}
	}
	r.ids = append(r.ids, id)
	answer := r.answer
	r.mu.Unlock()
	message.Status = http.StatusOK
	if answer != nil {
		message.Status = answer(id, attempt)
	}
	r.mu.Lock()
	r.got = append(r.got, message)
	r.mu.Unlock()
	w.WriteHeader(message.Status)
}

// all returns the messages, without those that were not accepted if accepted is set.
func (r *receiver) all(accepted bool) []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.got), func(m received) bool { return accepted && m.Status != http.StatusOK })
}

// webhooks returns a system with webhooks, its orchestrator, and a client of its API.
func webhooks(t *testing.T) (*system, running, *operator.Client) {
	t.Helper()
	s := newSystem(t)
	s.cfg.WebhookKeys, s.cfg.LocalWebhooks, s.cfg.WebhookPause = "k1:"+seal.NewKey(), true, 20*time.Millisecond
	o := s.start()
	client, err := operator.New(s.api.URL, "")
	require.NoError(t, err)
	return s, o, client
}

func (s *system) fails(step, message string) {
	s.script.set(step, func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		return worker.Fail(op, &worker.Error{Component: "edp", Reason: "err_x", Message: message})
	})
}

func TestWebhook_ReceiverDown_GetsEverythingInOrder(t *testing.T) {
	s, _, client := webhooks(t)
	// The first three attempts fail, whatever they send.
	failed := 0
	var mu sync.Mutex
	r := newReceiver(t, func(string, int) int {
		mu.Lock()
		defer mu.Unlock()
		if failed++; failed <= 3 {
			return http.StatusServiceUnavailable
		}
		return http.StatusOK
	})
	path := "/hook/path-canary"
	hook, _, err := client.CreateWebhook(t.Context(), operator.WebhookRequest{
		Name: "all", URL: r.URL + path, Secret: webhookSecret, Filter: operator.WebhookFilter{
			Kinds: []operator.WebhookKind{operator.WebhookStarted, operator.WebhookFailing, operator.WebhookStep, operator.WebhookFailed}, Plans: []string{"azure"},
		},
	})
	require.NoError(t, err)
	slack := newReceiver(t, nil)
	_, _, err = client.CreateWebhook(t.Context(), operator.WebhookRequest{
		Name: "slack", URL: slack.URL, Secret: webhookSecret, Format: operator.WebhookSlack,
	})
	require.NoError(t, err)
	tries := 0
	s.script.set("First", func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		if tries++; tries <= 3 {
			return worker.Retry(op, time.Millisecond, &worker.Error{Component: "edp", Reason: "err_y", Message: "password=hunter2-canary <later>"})
		}
		return op, 0, op.SaveDetails(map[string]string{"a": "details-canary"})
	})
	s.fails("Second", "broken")
	op, other := operation(event.Provision, "i-1", "azure"), operation(event.Update, "i-2", "gcp")
	s.request(other)
	s.await(other, event.Succeeded)
	s.request(op)
	s.await(op, event.Failed)
	testkit.Eventually(t, patience, "the receiver has accepted the end", func() bool {
		got := r.all(true)
		return len(got) > 0 && got[len(got)-1].Kind == "failed"
	})
	var kinds []string
	var last int64
	for _, m := range r.all(true) {
		kinds = append(kinds, m.Kind)
		if m.Data.Cursor < last || m.Subject != op.ID || m.Plan != "azure" || m.Data.Details != nil {
			t.Errorf("after cursor %d of %s: %s", last, op.ID, m.Body)
		}
		last = m.Data.Cursor
		if strings.Contains(m.Body, "canary") {
			t.Errorf("a secret is in %s", m.Body)
		}
	}
	if want := "started step step step step step step failed"; strings.Join(kinds, " ") != want {
		t.Errorf("kinds are %q, want %q", kinds, want)
	}
	first := r.all(false)
	if first[0].ID != r.all(true)[0].ID {
		t.Errorf("the first attempt had the id %s, and the accepted one %s", first[0].ID, r.all(true)[0].ID)
	}

	testkit.Eventually(t, patience, "Slack has the end", func() bool { return len(slack.all(true)) == 2 })
	var text struct{ Text string }
	require.NoError(t, json.Unmarshal([]byte(slack.all(true)[0].Body), &text))
	if want := ":warning: *provision is failing at First* of runtime *demo* (azure, eastus, c-1234567)\nedp: err_y: password=[redacted] &lt;later&gt;"; text.Text != want {
		t.Errorf("the text is %q, want %q", text.Text, want)
	}

	trial, _, err := client.TestWebhook(t.Context(), hook.ID)
	require.NoError(t, err)
	if trial.State != operator.WebhookDeliveryDelivered || trial.Status != http.StatusOK {
		t.Errorf("the test delivery is %+v", trial)
	}
	// A delivery is recorded after the receiver has answered.
	testkit.Eventually(t, patience, "all deliveries to be recorded", func() bool {
		list, _, err := client.WebhookDeliveries(t.Context(), hook.ID, operator.Page{State: "delivered"})
		return err == nil && list.TotalCount == 9
	})
	list, raw, err := client.WebhookDeliveries(t.Context(), hook.ID, operator.Page{State: "delivered"})
	require.NoError(t, err)
	if list.Data[0].Kind != "test" || list.Data[8].Attempts != 4 {
		t.Errorf("deliveries: %s", raw)
	}
	all := s.tables() + s.body("/webhooks") + s.body("/webhooks/"+hook.ID) + s.body("/actions")
	for _, secret := range []string{path, strings.TrimPrefix(webhookSecret, "whsec_"), "hunter2"} {
		if strings.Contains(all, secret) {
			t.Errorf("%q is stored or shown", secret)
		}
	}
}

// The orchestrator ends after the receiver has the message, and before it stores that.
func TestWebhook_OrchestratorDies_SameMessageComesAgain(t *testing.T) {
	s, o, client := webhooks(t)
	arrived, die := make(chan struct{}), make(chan struct{})
	r := newReceiver(t, func(_ string, attempt int) int {
		if attempt == 1 {
			close(arrived)
			<-die
		}
		return http.StatusOK
	})
	_, _, err := client.CreateWebhook(t.Context(), operator.WebhookRequest{Name: "ends", URL: r.URL, Secret: webhookSecret})
	require.NoError(t, err)
	s.fails("First", "broken")
	op := operation(event.Provision, "i-1", "azure")
	s.request(op)
	<-arrived
	o.stop()
	close(die)
	s.orchestrator()
	testkit.Eventually(t, patience, "the message comes again", func() bool { return len(r.all(true)) == 2 })
	got := r.all(true)
	if got[0].ID != got[1].ID || !strings.HasPrefix(got[0].ID, "msg_") || got[0].Body != got[1].Body {
		t.Errorf("the messages are %s %s and %s %s", got[0].ID, got[0].Body, got[1].ID, got[1].Body)
	}
}
