package exchange_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/broker/internal/exchange"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// fakeOutbox stores requests in memory. Those in young look too young for a sweep.
type fakeOutbox struct {
	waiting   []store.Publication
	published []string
	young     []string
}

func (o *fakeOutbox) UnpublishedOf(_ context.Context, instanceIDs []string) ([]store.Publication, error) {
	return slices.DeleteFunc(slices.Clone(o.waiting), func(p store.Publication) bool { return !slices.Contains(instanceIDs, p.InstanceID) }), nil
}

func (o *fakeOutbox) UnpublishedInstances(context.Context, time.Time, int) ([]string, error) {
	var ids []string
	for _, p := range o.waiting {
		if !slices.Contains(o.young, p.OperationID) {
			ids = append(ids, p.InstanceID)
		}
	}
	return ids, nil
}

func (o *fakeOutbox) Published(_ context.Context, ids []string, _ time.Time) error {
	o.published = append(o.published, ids...)
	o.waiting = slices.DeleteFunc(o.waiting, func(p store.Publication) bool { return slices.Contains(ids, p.OperationID) })
	return nil
}

// fakePublisher rejects some messages.
type fakePublisher struct {
	refuse map[string]bool
	sent   []string
	err    error
}

func (p *fakePublisher) Publish(_ context.Context, msgs ...bus.Message) error {
	if p.err != nil {
		return p.err
	}
	failure := &bus.PublishError{Total: len(msgs)}
	for i, m := range msgs {
		if p.refuse[m.ID] {
			failure.Failures = append(failure.Failures, bus.Failure{Index: i, Subject: m.Subject, EventID: m.ID, Err: errors.New("refused")})
			continue
		}
		p.sent = append(p.sent, m.ID)
	}
	if len(failure.Failures) > 0 {
		return failure
	}
	return nil
}

func request(id, instanceID string) store.Publication {
	return store.Publication{OperationID: id, InstanceID: instanceID, Type: event.Provision, Payload: []byte("{}"), At: time.Now()}
}

func relay(o *fakeOutbox, p *fakePublisher) (*exchange.Relay, prometheus.Gauge) {
	waiting := prometheus.NewGauge(prometheus.GaugeOpts{Name: "waiting"})
	return exchange.NewRelay(exchange.RelayConfig{SweepEvery: time.Hour, Timeout: time.Second}, exchange.RelayDeps{
		Outbox: o, Publisher: p, Log: slog.New(slog.DiscardHandler), Now: time.Now, Waiting: waiting,
	}), waiting
}

func TestRelay_RejectedRequest_BlocksItsInstanceOnly(t *testing.T) {
	t.Parallel()
	o := &fakeOutbox{waiting: []store.Publication{
		request("a1", "a"), request("b1", "b"), request("a2", "a"), request("b2", "b"), request("a3", "a"),
	}}
	p := &fakePublisher{refuse: map[string]bool{"a2": true}}
	r, waiting := relay(o, p)
	if err := r.Sweep(t.Context()); err == nil {
		t.Error("no error")
	}
	want := []string{"a1", "b1", "b2"}
	if diff := cmp.Diff(want, p.sent); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want, o.published); diff != "" {
		t.Error(diff)
	}
	if got := testutil.ToFloat64(waiting); got != 2 {
		t.Errorf("%v requests wait, want 2", got)
	}
	p.refuse = nil
	if err := r.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"a1", "b1", "b2", "a2", "a3"}, p.sent); diff != "" {
		t.Error(diff)
	}
	if got := testutil.ToFloat64(waiting); got != 0 {
		t.Errorf("%v requests wait, want none", got)
	}
}

// The clocks of two brokers differ: the deprovisioning must not overtake the provisioning.
func TestSweep_EarlierRequestLooksYounger_IsPublishedFirst(t *testing.T) {
	t.Parallel()
	o := &fakeOutbox{waiting: []store.Publication{request("a1", "a"), request("a2", "a")}, young: []string{"a1"}}
	p := &fakePublisher{}
	r, _ := relay(o, p)
	if err := r.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"a1", "a2"}, p.sent); diff != "" {
		t.Error(diff)
	}
}

func TestRelay_BusIsDown_MarksNothing(t *testing.T) {
	t.Parallel()
	o := &fakeOutbox{waiting: []store.Publication{request("a1", "a"), request("a2", "a")}}
	r, waiting := relay(o, &fakePublisher{err: errors.New("away")})
	if err := r.Sweep(t.Context()); err == nil || len(o.published) != 0 || testutil.ToFloat64(waiting) != 2 {
		t.Errorf("%v, published %v", err, o.published)
	}
}

func TestRelay_InvalidRequest_DoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	bad := request("a1", "a")
	bad.Extensions = map[string]string{"not allowed": "x"}
	o := &fakeOutbox{waiting: []store.Publication{bad, request("b1", "b")}}
	p := &fakePublisher{}
	r, _ := relay(o, p)
	if err := r.Sweep(t.Context()); err == nil {
		t.Error("no error")
	}
	if diff := cmp.Diff([]string{"b1"}, p.sent); diff != "" {
		t.Error(diff)
	}
}
