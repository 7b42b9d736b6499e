package exchange

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/tracing"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// Outbox stores the accepted requests that are not published yet.
type Outbox interface {
	UnpublishedOf(ctx context.Context, instanceIDs []string) ([]store.Publication, error)
	UnpublishedInstances(ctx context.Context, before time.Time, limit int) ([]string, error)
	Published(ctx context.Context, operationIDs []string, at time.Time) error
}

// Publisher publishes messages. It reports rejected messages in a *bus.PublishError.
type Publisher interface {
	Publish(ctx context.Context, msgs ...bus.Message) error
}

// RelayConfig holds the times of the sweep.
type RelayConfig struct {
	// SweepEvery is the interval of the sweep, and Age the minimum age of the requests that it publishes.
	SweepEvery, Age time.Duration
	// Timeout limits one round of publishing.
	Timeout time.Duration
}

// RelayDeps are the dependencies of a Relay.
type RelayDeps struct {
	Outbox    Outbox
	Publisher Publisher
	Log       *slog.Logger
	Now       func() time.Time
	// Waiting is set to the number of requests that the last sweep could not publish.
	Waiting prometheus.Gauge
	// Tracer creates a span for each publication, as a child of the request. Nil creates none.
	Tracer trace.Tracer
}

// sweepLimit is the maximum number of instances in one round; the next sweep continues.
const sweepLimit = 500

// Relay publishes accepted requests on the bus, each directly after its transaction. A sweep publishes requests that a crash or an
// unavailable bus left behind. A repeated publication is harmless, since the event id and the message id are the operation id.
type Relay struct {
	cfg  RelayConfig
	deps RelayDeps
	wake chan struct{}

	mu      sync.Mutex
	pending map[string]bool
}

// NewRelay creates a relay. Run starts it.
func NewRelay(cfg RelayConfig, deps RelayDeps) *Relay {
	return &Relay{cfg: cfg, deps: deps, wake: make(chan struct{}, 1), pending: make(map[string]bool)}
}

// Notify reports that a request for an instance was committed. It does not block. If too many instances are waiting, it drops the
// instance, and a sweep publishes the request.
func (r *Relay) Notify(instanceID string) {
	r.mu.Lock()
	if len(r.pending) < sweepLimit {
		r.pending[instanceID] = true
	}
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *Relay) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := slices.Collect(maps.Keys(r.pending))
	clear(r.pending)
	return ids
}

// Run publishes until ctx ends.
func (r *Relay) Run(ctx context.Context) error {
	tick := time.NewTicker(r.cfg.SweepEvery)
	defer tick.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
			_, err = r.relay(ctx, r.take())
		case <-tick.C:
			err = r.Sweep(ctx)
		}
		if err != nil && ctx.Err() == nil {
			r.deps.Log.Warn("requests not published, trying again", "err", err)
		}
	}
}

// relay publishes the requests of instances, and returns how many are left.
func (r *Relay) relay(ctx context.Context, instanceIDs []string) (left int, err error) {
	if len(instanceIDs) == 0 {
		return 0, nil
	}
	waiting, err := r.deps.Outbox.UnpublishedOf(ctx, instanceIDs)
	if err != nil {
		return 0, err
	}
	published, err := r.publish(ctx, waiting)
	return len(waiting) - published, err
}

// Sweep publishes all requests of the instances that have one left behind: the clocks of brokers differ, so an earlier request of such an
// instance may look too young.
func (r *Relay) Sweep(ctx context.Context) error {
	instanceIDs, err := r.deps.Outbox.UnpublishedInstances(ctx, r.deps.Now().Add(-r.cfg.Age), sweepLimit)
	if err != nil {
		return err
	}
	left, err := r.relay(ctx, instanceIDs)
	r.deps.Waiting.Set(float64(left))
	return err
}

// publish publishes the requests of each instance in their order: a deprovisioning that overtakes its provisioning would leave a
// runtime behind. Each round contains one request per instance, and a failed request blocks the instance's later ones.
func (r *Relay) publish(ctx context.Context, waiting []store.Publication) (int, error) {
	var (
		published int
		errs      []error
		blocked   = make(map[string]bool)
	)
	for len(waiting) > 0 && ctx.Err() == nil {
		var round, rest []store.Publication
		seen := make(map[string]bool)
		for _, p := range waiting {
			switch {
			case blocked[p.InstanceID]:
			case seen[p.InstanceID]:
				rest = append(rest, p)
			default:
				seen[p.InstanceID] = true
				round = append(round, p)
			}
		}
		n, err := r.publishRound(ctx, round, blocked)
		published += n
		if err != nil {
			errs = append(errs, err)
		}
		waiting = rest
	}
	return published, errors.Join(errs...)
}

func (r *Relay) publishRound(ctx context.Context, round []store.Publication, blocked map[string]bool) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	var (
		messages []bus.Message
		taken    []store.Publication
		errs     []error
	)
	for _, p := range round {
		m, err := message(p)
		if err != nil {
			// One request that cannot be encoded must not block the others.
			blocked[p.InstanceID] = true
			errs = append(errs, err)
			continue
		}
		messages, taken = append(messages, m), append(taken, p)
	}
	if len(messages) == 0 {
		return 0, errors.Join(errs...)
	}
	start := time.Now()
	err := r.deps.Publisher.Publish(ctx, messages...)
	errs = append(errs, err)
	failed := bus.Unpublished(err, len(messages))
	ids := make([]string, 0, len(taken))
	for i, p := range taken {
		r.trace(ctx, &p, start, failed[i] != nil)
		if failed[i] != nil {
			blocked[p.InstanceID] = true
			continue
		}
		ids = append(ids, p.OperationID)
		r.deps.Log.Info("operation requested", "operation_id", p.OperationID, "instance_id", p.InstanceID, "type", p.Type)
	}
	if len(ids) > 0 {
		if err := r.deps.Outbox.Published(ctx, ids, r.deps.Now()); err != nil {
			// The sweep publishes them again, which is harmless.
			return 0, errors.Join(append(errs, err)...)
		}
	}
	return len(ids), errors.Join(errs...)
}

func message(p store.Publication) (bus.Message, error) {
	e, err := bus.New(event.TypeOperationRequested, p.OperationID, event.SourceBroker, p.OperationID, p.At, p.Payload)
	if err != nil {
		return bus.Message{}, fmt.Errorf("request event of operation %s: %w", p.OperationID, err)
	}
	for name, value := range p.Extensions {
		if err := e.Context.SetExtension(name, value); err != nil {
			return bus.Message{}, fmt.Errorf("request event of operation %s: extension %s: %w", p.OperationID, name, err)
		}
	}
	return bus.Message{Subject: event.RequestSubject(p.Type), ID: p.OperationID, Event: e}, nil
}

// trace creates the span of a publication as a child of the request's span, whatever the age of the request.
func (r *Relay) trace(ctx context.Context, p *store.Publication, start time.Time, failed bool) {
	if r.deps.Tracer == nil {
		return
	}
	parent := tracing.ParseParent(p.Extensions[bus.TraceParent])
	if !parent.IsValid() {
		return
	}
	subject := event.RequestSubject(p.Type)
	span := tracing.Span{
		Parent: parent, Name: "send " + subject, Kind: trace.SpanKindProducer, Start: start, End: time.Now(),
		Attributes: []attribute.KeyValue{
			attribute.String("messaging.system", "nats"), attribute.String("messaging.operation.type", "send"),
			attribute.String("messaging.operation.name", "publish"),
			attribute.String("messaging.destination.name", subject), attribute.String("messaging.message.id", p.OperationID),
			attribute.String("keb.operation.id", p.OperationID), attribute.String("keb.instance.id", p.InstanceID),
		},
	}
	if failed {
		span.Failure = "the bus did not accept the request; the sweep publishes it later"
	}
	tracing.Record(ctx, r.deps.Tracer, span)
}
