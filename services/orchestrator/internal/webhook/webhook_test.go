package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kyma-project/keb/libs/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The example of the Standard Webhooks specification.
func TestSign_Example_MatchesTheSpecification(t *testing.T) {
	t.Parallel()
	key, err := decodeSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	require.NoError(t, err)
	got := sign(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("the signature is %s, want %s", got, want)
	}
}

func TestSubjects_Filters_DoNotOverlap(t *testing.T) {
	t.Parallel()
	got := subjects([]Webhook{
		{Filter: Filter{}},
		{Filter: Filter{Kinds: []Kind{Failed}, Types: []event.OperationType{event.Provision}}},
		{Filter: Filter{Kinds: []Kind{Started, Incomplete, Succeeded}, Types: []event.OperationType{event.Update}}},
		{Filter: Filter{Kinds: []Kind{Orchestration}}},
	})
	want := []string{
		"keb.fact.*.operation-failed", "keb.fact.*.step-finished", "keb.fact.update.operation-started", "keb.fact.update.operation-succeeded",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("subjects (-want +got):\n%s", diff)
	}
}

func TestCheckAddr_InternalAddresses_AreRefused(t *testing.T) {
	t.Parallel()
	for addr, allowed := range map[string]bool{
		"127.0.0.1": false, "::1": false, "::ffff:127.0.0.1": false, "169.254.169.254": false, "fe80::1%eth0": false, "64:ff9b::a9fe:a9fe": false,
		"fd00:ec2::254": false, "100.100.100.200": false, "0.0.0.0": false, "224.0.0.1": false, "10.0.0.1": true, "fd12::1": true, "93.184.216.34": true,
	} {
		if err := checkAddr(netip.MustParseAddr(addr), false); (err == nil) != allowed {
			t.Errorf("%s: %v, allowed must be %t", addr, err, allowed)
		}
	}
}

func testEvent(t *testing.T) string {
	t.Helper()
	e, err := trial("e", &Webhook{ID: "w", Name: "w"}, "jane", time.Now())
	require.NoError(t, err)
	encoded, err := json.Marshal(e)
	require.NoError(t, err)
	return string(encoded)
}

// A name can resolve to another address after the check of the URL, so the address is checked when the connection is made.
func TestSender_Loopback_IsNotConnected(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request arrived") }))
	t.Cleanup(server.Close)
	s := NewSender(false, time.Now)
	t.Cleanup(s.Close)
	target := &Target{URL: strings.Replace(server.URL, "127.0.0.1", "localhost", 1) + "/path-canary", Secret: NewSecret()}
	a := s.Send(t.Context(), CloudEvents, target, "msg_1", testEvent(t))
	if a.err == nil || !strings.Contains(a.err.Error(), "loopback") || strings.Contains(a.err.Error(), "canary") {
		t.Errorf("the error is %v, want a refusal without the URL", a.err)
	}
}

func TestSender_Redirect_IsNotFollowed(t *testing.T) {
	t.Parallel()
	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			t.Error("the redirect is followed")
		}
		http.Redirect(w, r, server.URL+"/elsewhere", http.StatusTemporaryRedirect)
	}))
	t.Cleanup(server.Close)
	s := NewSender(true, time.Now)
	t.Cleanup(s.Close)
	if a := s.Send(t.Context(), Slack, &Target{URL: server.URL, Secret: NewSecret()}, "msg_1", testEvent(t)); a.err == nil || a.status != 307 {
		t.Errorf("the attempt is %+v, want a failure", a)
	}
}

func TestConclude_Results_DisableOrDelay(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 18, 0, 0, 0, time.UTC)
	m, err := newMeter(nil)
	require.NoError(t, err)
	s := &Service{cfg: Config{FirstPause: time.Second}, deps: Deps{Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler)}, meter: m}
	failed := func(status int, retryAfter time.Duration) Attempt {
		return Attempt{status: status, retryAfter: retryAfter, err: errors.New("no")}
	}
	for name, c := range map[string]struct {
		webhook  Webhook
		message  Message
		attempt  Attempt
		state    State
		message2 MessageState
		reason   string
		least    time.Duration
	}{
		"success":         {Webhook{Failures: 3}, Message{}, Attempt{status: 204}, Active, Delivered, "", 0},
		"retry after":     {Webhook{}, Message{}, failed(429, time.Minute), Active, Waiting, "", time.Minute},
		"many failures":   {Webhook{Failures: 30}, Message{}, failed(500, 0), Active, Waiting, "", maxPause / 2},
		"rejected":        {Webhook{}, Message{Attempts: 1}, failed(400, 0), Active, Waiting, "", time.Second / 2},
		"rejected often":  {Webhook{}, Message{Attempts: maxRejections - 1}, failed(413, 0), Active, FailedMessage, "", 0},
		"gone":            {Webhook{}, Message{}, failed(410, 0), Disabled, Waiting, "410", 0},
		"down for long":   {Webhook{FailingSince: now.Add(-disableAfter - time.Hour)}, Message{}, failed(503, 0), Disabled, Waiting, "no delivery", 0},
		"too many events": {Webhook{Waiting: MaxWaiting + 1}, Message{}, failed(503, 0), Disabled, Waiting, "events wait", 0},
	} {
		w, message, r := c.webhook, c.message, round{}
		w.State, message.State = Active, Waiting
		s.result(&w, &message, &c.attempt, &r)
		s.conclude(&w, &r)
		if w.State != c.state || message.State != c.message2 || !strings.Contains(w.Reason, c.reason) || w.DueAt.Before(now.Add(c.least)) ||
			w.DueAt.After(now.Add(maxPause)) {
			t.Errorf("%s: the webhook is %+v, the message %s", name, w, message.State)
		}
		if c.attempt.err == nil && (w.Failures != 0 || !w.DeliveredAt.Equal(now)) {
			t.Errorf("%s: the webhook is %+v", name, w)
		}
	}
}

// fakeStore has at most one webhook, and keeps no messages.
type fakeStore struct {
	Store

	hook atomic.Pointer[Webhook]
}

func (f *fakeStore) Webhook(context.Context, string) (*Webhook, error) {
	w := *f.hook.Load()
	return &w, nil
}

func (f *fakeStore) Update(_ context.Context, w *Webhook) error {
	f.hook.Store(w)
	return nil
}

func (f *fakeStore) Record(ctx context.Context, w *Webhook, _ []Message) error {
	return f.Update(ctx, w)
}

func (f *fakeStore) About(_ context.Context, ids []string) (map[string]About, error) {
	found := map[string]About{}
	for _, id := range ids {
		found[id] = About{}
	}
	return found, nil
}

func (f *fakeStore) Queue(_ context.Context, messages []Message) (int, error) {
	return len(messages), nil
}

// failure is the delivery of the fact that an operation failed at a time.
type failure time.Time

func (f failure) Message() (cloudevents.Event, string) {
	e := cloudevents.New()
	e.SetID(uuid.NewString())
	e.SetSource(event.SourceOrchestrator)
	e.SetType(string(event.TypeOperationFailed))
	_ = e.SetData(cloudevents.ApplicationJSON, Fact{OperationID: "op-1", OperationType: event.Provision, OccurredAt: time.Time(f)})
	return e, ""
}

func (failure) Ack() error { return nil }

func (failure) Nak(time.Duration) error { return nil }

func (f *fakeStore) Webhooks(context.Context) ([]Webhook, error) {
	if w := f.hook.Load(); w != nil {
		return []Webhook{*w}, nil
	}
	return nil, nil
}

// fakeConsumer records its calls.
type fakeConsumer chan string

func (f fakeConsumer) Follow(_ context.Context, subjects []string, _ time.Time) error {
	f <- fmt.Sprint("follow ", subjects)
	return nil
}

func (f fakeConsumer) Consume(ctx context.Context, subjects []string, _ time.Time, _ func(context.Context, []Delivery)) error {
	f <- fmt.Sprint("consume ", subjects)
	<-ctx.Done()
	f <- "consumed"
	return nil
}

// A running Consume creates a deleted consumer again, which would then collect facts that nothing reads.
func TestFollow_LastWebhookIsGone_ConsumerIsRemovedAfterConsume(t *testing.T) {
	t.Parallel()
	store, calls := &fakeStore{}, make(fakeConsumer)
	store.hook.Store(&Webhook{State: Active, Filter: Filter{Kinds: []Kind{Failed}}})
	s, err := New(Config{}, Deps{Store: store, Consumer: calls, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.follow(ctx) }()
	want := func(call string) {
		t.Helper()
		select {
		case got := <-calls:
			if got != call {
				t.Errorf("call %q, want %q", got, call)
			}
		case <-time.After(time.Minute):
			t.Fatalf("no call %q", call)
		}
	}
	want("consume [keb.fact.*.operation-failed]")
	store.hook.Store(nil)
	s.changed <- struct{}{}
	want("consumed")
	want("follow []")
	cancel()
	require.NoError(t, <-ended)
}

func TestEnable_FactsOfTheMeantime_AreNotQueued(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 18, 0, 0, 0, time.UTC)
	store, calls := &fakeStore{}, make(fakeConsumer, 2)
	store.hook.Store(&Webhook{ID: "w", State: Disabled, CreatedAt: now.Add(-2 * time.Hour), ActiveSince: now.Add(-2 * time.Hour)})
	s, err := New(Config{}, Deps{Store: store, Consumer: calls, Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	enabled, err := s.SetState(t.Context(), "w", Active, "")
	require.NoError(t, err)
	if got, want := since([]Webhook{*enabled}, now), now.Add(-skew); !got.Equal(want) {
		t.Errorf("facts are consumed since %s, want %s", got, want)
	}
	expect := func(at time.Time, want int) {
		t.Helper()
		got, err := s.queue(t.Context(), []Delivery{failure(at)})
		require.NoError(t, err)
		if got != want {
			t.Errorf("a fact of %s makes %d messages, want %d", at, got, want)
		}
	}
	expect(now.Add(-time.Hour), 0)
	expect(now, 1)

	// An active webhook keeps its time, so that facts on the way are not lost.
	now = now.Add(time.Hour)
	_, err = s.SetState(t.Context(), "w", Active, "")
	require.NoError(t, err)
	expect(now.Add(-30*time.Minute), 1)
}

// lostKey is a sealer without the key of the targets.
type lostKey struct{ Sealer }

func (lostKey) Open(string, []byte) ([]byte, error) { return nil, errors.New("unknown key") }

func TestRound_SecretCannotBeOpened_WebhookFailsAndIsDisabled(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)
	store := &fakeStore{}
	store.hook.Store(&Webhook{ID: "w", Name: "chat", State: Active})
	s, err := New(Config{}, Deps{Store: store, Consumer: make(fakeConsumer, 2), Keys: lostKey{}, Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	due, err := s.round(t.Context(), "w")
	require.NoError(t, err)
	w := store.hook.Load()
	if w.Failures != 1 || !strings.Contains(w.Error, "the secret of webhook chat cannot be opened") || !due.After(now) {
		t.Errorf("%d failures, error %q, due at %s", w.Failures, w.Error, due)
	}
	now = now.Add(disableAfter + time.Hour)
	_, err = s.round(t.Context(), "w")
	require.NoError(t, err)
	if w = store.hook.Load(); w.State != Disabled || !strings.Contains(w.Reason, "no delivery has succeeded since") {
		t.Errorf("state %s, reason %q, want it disabled", w.State, w.Reason)
	}
}
