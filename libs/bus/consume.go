package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kyma-project/keb/libs/event"
)

// errReconnected makes a subscription check its consumer again.
var errReconnected = errors.New("the connection was replaced")

const (
	defaultMaxBatch = 100
	// A pull request outlives a frozen process, and one from another account its subscription. Until it expires, the server may send messages
	// to it, which are redelivered after AckWait. It is less than half of AckWait, so that this happens to a message at most once. The library
	// wants two heartbeats.
	pullExpiry = 2 * pullHeartbeat
	// The server sends a heartbeat every second. A subscription with two missed heartbeats is checked, because a stream can vanish
	// without an error.
	pullHeartbeat   = time.Second
	firstEnsureWait = 50 * time.Millisecond
	maxEnsureWait   = 2 * time.Second
	// unreadableWait is the first delay, and maxUnreadableWait the longest, before an unreadable message is redelivered whose dead letter
	// could not be published.
	unreadableWait    = 5 * time.Second
	maxUnreadableWait = 5 * time.Minute
	maxSessionDrain   = 2 * time.Second
)

// ConsumeConfig configures Consume.
type ConsumeConfig struct {
	Consumer event.ConsumerSpec
	// MaxBatch is the maximum number of messages in one call of the handler; 0 means 100.
	MaxBatch int
	// Handlers is the number of goroutines that call the handler; 0 means 1.
	Handlers int
	// Prefetch is the maximum number of messages that wait in this process for a handler; 0 means twice the number that the handlers can
	// process. The minimum is 1. Waiting messages are not delivered to other processes until AckWait has passed.
	Prefetch int
	// Rank is this process's rank at a ranked consumer, from 1 to Ranks. The process with the lowest rank gets the messages first;
	// processes with equal ranks share them. 0 selects a random rank.
	Rank int
}

// Ranks is the number of ranks of a ranked consumer.
const Ranks = 10

func (c *ConsumeConfig) complete() error {
	switch {
	case c.Rank < 0 || c.Rank > Ranks:
		return fmt.Errorf("rank %d: want 1 to %d, or 0 for any", c.Rank, Ranks)
	case c.Consumer.Stream == "" || c.Consumer.Name == "":
		return errors.New("consumer: stream and name must not be empty")
	case c.MaxBatch < 0 || c.Handlers < 0 || c.Prefetch < 0:
		return fmt.Errorf("max batch %d, handlers %d, prefetch %d: must not be negative", c.MaxBatch, c.Handlers, c.Prefetch)
	}
	if c.MaxBatch == 0 {
		c.MaxBatch = defaultMaxBatch
	}
	if c.Rank == 0 {
		c.Rank = 1 + rand.N(Ranks)
	}
	if c.Handlers == 0 {
		c.Handlers = 1
	}
	if c.Prefetch == 0 {
		c.Prefetch = 2 * c.MaxBatch * c.Handlers
	}
	if c.Consumer.MaxAckPending > 0 {
		c.Prefetch = min(c.Prefetch, c.Consumer.MaxAckPending)
	}
	return nil
}

// consumerMetrics holds the metrics of a consumer with resolved labels.
type consumerMetrics struct {
	consumed, redelivered, recovered prometheus.Counter
	ackTime                          prometheus.Observer
}

type consumption struct {
	bus    *Bus
	cfg    ConsumeConfig
	handle func(context.Context, []*Delivery)
	meter  *consumerMetrics
	msgs   chan arrival
	acks   *acks
	back   *deferredNaks
}

type arrival struct {
	msg jetstream.Msg
	at  time.Time
}

// Consume passes the messages of a consumer to handle in natural batches: a batch starts with the first message and contains all
// others that have arrived, so a single message never waits. The handler must settle each delivery. Consume creates missing streams
// and consumers, also later; a guest waits for them. A message that is not a CloudEvent is moved to the dead letters and does not reach
// the handler.
//
// Consume blocks until ctx ends. It then stops pulling and waits for running handlers, whose context has ended. Once no more messages
// arrive, it returns unhandled messages, and messages that handlers have returned since ctx ended, so that other processes get
// them immediately. It returns nil. Only an invalid configuration is an error.
func (b *Bus) Consume(ctx context.Context, cfg ConsumeConfig, handle func(ctx context.Context, batch []*Delivery)) error {
	if err := cfg.complete(); err != nil {
		return fmt.Errorf("consume: %w", err)
	}
	stream, name := string(cfg.Consumer.Stream), cfg.Consumer.Name
	// One half of the prefetch waits in the channel, the other half is requested from the server.
	c := &consumption{
		bus: b, cfg: cfg, handle: handle, msgs: make(chan arrival, cfg.Prefetch/2), acks: newAcks(cfg.Consumer.Stream, b.log),
		back: &deferredNaks{stopped: ctx.Done(), log: b.log},
		meter: &consumerMetrics{
			consumed:    b.metrics.consumed.WithLabelValues(stream, name),
			redelivered: b.metrics.redelivered.WithLabelValues(stream, name),
			recovered:   b.metrics.recovered.WithLabelValues(stream, name),
			ackTime:     b.metrics.ackTime.WithLabelValues(stream, name),
		},
	}
	var handlers, flusher sync.WaitGroup
	for range cfg.Handlers {
		handlers.Go(func() { c.run(ctx) })
	}
	flusher.Go(c.acks.run)
	c.fetch(ctx)
	c.giveBack()
	c.back.release()
	handlers.Wait()
	c.acks.close()
	flusher.Wait()
	return nil
}

// run is the loop of one handler.
func (c *consumption) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case a := <-c.msgs:
			if ctx.Err() != nil {
				c.back.tryAdd(a.msg)
				return
			}
			if batch := c.batch(ctx, a); len(batch) > 0 {
				c.handle(ctx, batch)
			}
		}
	}
}

// batch returns the first message and all others that have arrived.
func (c *consumption) batch(ctx context.Context, first arrival) []*Delivery {
	n := min(c.cfg.MaxBatch, 1+len(c.msgs))
	deliveries := make([]Delivery, n) // one allocation for the batch
	batch := make([]*Delivery, 0, n)
	a, redelivered := first, 0
	connected := c.bus.connectedSince()
	for i := range n {
		if i > 0 {
			select {
			case a = <-c.msgs:
			default:
				n = i
			}
			if n == i {
				break
			}
		}
		d := &deliveries[i]
		*d = Delivery{
			Subject: a.msg.Subject(), bus: c.bus, msg: a.msg, spec: &c.cfg.Consumer, arrived: a.at, meter: c.meter, acks: c.acks, back: c.back,
		}
		d.delivered, d.older = deliveryState(a.msg, connected)
		var err error
		if d.Event, err = Decode(a.msg.Headers(), a.msg.Data()); err != nil {
			c.unreadable(ctx, d, err)
			continue
		}
		if d.NumDelivered() > 1 {
			redelivered++
		}
		batch = append(batch, d)
	}
	c.meter.consumed.Add(float64(len(batch)))
	c.meter.redelivered.Add(float64(redelivered))
	return batch
}

func (c *consumption) unreadable(ctx context.Context, d *Delivery, cause error) {
	err := d.Dead(ctx, cause.Error())
	if err == nil {
		return
	}
	if d.NumDelivered() <= 1 || errors.Is(err, ErrDropped) {
		c.bus.deadLog.Do(func() {
			c.bus.log.Error("unreadable message not moved to the dead letters", "subject", d.Subject, "err", err)
		})
	}
	if !errors.Is(err, ErrDropped) {
		_ = d.Nak(unreadableAgain(d.NumDelivered())) // if this fails, the message is redelivered after AckWait
	}
}

// unreadableAgain returns the delay before a message is redelivered that could not be moved to the dead letters. It grows, because each
// redelivery contains the whole message.
func unreadableAgain(delivered uint64) time.Duration {
	return min(unreadableWait<<min(max(delivered, 1)-1, 10), maxUnreadableWait)
}

// giveBack returns unhandled messages, so that other processes get them before AckWait has passed.
func (c *consumption) giveBack() {
	for {
		select {
		case a := <-c.msgs:
			c.back.tryAdd(a.msg)
		default:
			return
		}
	}
}

// rankGroup is the priority group of a ranked consumer.
const rankGroup = "rank"

// fetch maintains a pull subscription until ctx ends.
func (c *consumption) fetch(ctx context.Context) {
	wait := firstEnsureWait
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for first := true; ctx.Err() == nil; first = false {
		err := c.session(ctx, first)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			wait = firstEnsureWait
			continue
		}
		level := slog.LevelWarn
		if c.bus.cfg.Guest && wait > firstEnsureWait {
			level = slog.LevelDebug // already logged
		}
		c.bus.log.Log(ctx, level, "consumer is not available", "stream", c.cfg.Consumer.Stream, "consumer", c.cfg.Consumer.Name, "err", err)
		timer.Reset(wait)
		wait = min(2*wait, maxEnsureWait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
}

// session ensures the consumer and pulls from it until the subscription must be replaced. Nil means that it worked for a second or more.
func (c *consumption) session(ctx context.Context, first bool) error {
	reconnected := c.bus.reconnects.next()
	consumer, err := c.ensure(ctx, reconnected)
	if err != nil {
		if isClosed(reconnected) {
			return nil // the request was lost with the old connection: retry immediately
		}
		return err
	}
	if !first {
		c.meter.recovered.Inc()
	}
	broken := make(chan error, 1)
	pull := max(1, c.cfg.Prefetch-c.cfg.Prefetch/2)
	options := []jetstream.PullConsumeOpt{
		jetstream.PullMaxMessages(pull),
		jetstream.PullExpiry(pullExpiry),
		jetstream.PullHeartbeat(pullHeartbeat),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
			if isTransient(err) {
				return
			}
			select {
			case broken <- err:
			default:
			}
		}),
	}
	if c.cfg.Consumer.Ranked {
		options = append(options, jetstream.PullPriorityGroup(rankGroup), jetstream.PullPrioritized(c.cfg.Rank-1)) // the server counts from 0
	}
	cc, err := consumer.Consume(func(m jetstream.Msg) { c.arrive(ctx, m) }, options...)
	if err != nil {
		return fmt.Errorf("consume: %w", err)
	}
	begun := time.Now()
	cause := c.watch(ctx, consumer, reconnected, broken)
	// Stop would discard messages that have arrived, and they would be redelivered only after AckWait.
	cc.Drain()
	drained := time.NewTimer(maxSessionDrain)
	defer drained.Stop()
	select {
	case <-cc.Closed():
	case <-drained.C: // without a connection it takes longer; arrive handles later messages
	}
	if cause != nil && time.Since(begun) < pullHeartbeat {
		return fmt.Errorf("consume: %w", cause) // the next one would probably end as soon, and waits
	}
	return nil
}

// watch returns when ctx ends, or with the cause when the subscription is unusable. It keeps the subscription while the consumer exists: the
// subscription pulls again by itself, and messages that the server sends to a closed subscription are redelivered only after AckWait.
func (c *consumption) watch(ctx context.Context, consumer jetstream.Consumer, reconnected <-chan struct{}, broken <-chan error) error {
	made := consumer.CachedInfo().Created
	clock := time.NewTicker(pulse)
	defer clock.Stop()
	for {
		var cause error
		select {
		case <-ctx.Done():
			return nil
		case <-clock.C:
			c.bus.connectedSince()
			continue
		case <-reconnected:
			// The server may have lost data during its restart: check again.
			reconnected = c.bus.reconnects.next()
			cause = errReconnected
		case cause = <-broken:
		}
		if errors.Is(cause, errReconnected) || errors.Is(cause, jetstream.ErrNoHeartbeat) {
			now, err := c.ensure(ctx, reconnected)
			switch {
			case err == nil && now.CachedInfo().Created.Equal(made):
				continue
			case err != nil && (isClosed(reconnected) || errors.Is(err, nats.ErrDisconnected)):
				continue // the request was lost with the connection: the next one repeats it
			case err != nil:
				cause = err
			}
		}
		if ctx.Err() == nil {
			c.bus.log.Warn("consumer is set up again", "stream", c.cfg.Consumer.Stream, "consumer", c.cfg.Consumer.Name, "err", cause)
		}
		return cause
	}
}

// ensure calls EnsureConsumer and ends early if the connection is replaced.
func (c *consumption) ensure(ctx context.Context, reconnected <-chan struct{}) (consumer jetstream.Consumer, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.bus.cfg.Timeout)
	defer cancel()
	asked := time.Now()
	defer func() { c.bus.leaveIfIsolated(asked, err) }()
	err = untilReconnected(ctx, reconnected, func(ctx context.Context) (err error) {
		consumer, err = c.bus.ensureConsumer(ctx, c.cfg.Consumer)
		return err
	})
	return consumer, err
}

// arrive passes a message to the handlers. It blocks while they are busy, which also delays further pulls.
func (c *consumption) arrive(ctx context.Context, m jetstream.Msg) {
	select {
	case c.msgs <- arrival{msg: m, at: time.Now()}:
		if ctx.Err() != nil {
			c.giveBack() // the handlers may have ended
		}
	case <-ctx.Done():
		c.back.tryAdd(m)
	}
}

// isTransient reports whether Consume handles the error by itself, or whether it is due to a shutdown, which a reconnect follows.
func isTransient(err error) bool {
	return errors.Is(err, jetstream.ErrServerShutdown) || errors.Is(err, jetstream.ErrConsumerLeadershipChanged) || errors.Is(err, nats.ErrTimeout) ||
		errors.Is(err, jetstream.ErrNoMessages) || errors.Is(err, jetstream.ErrBatchCompleted)
}
