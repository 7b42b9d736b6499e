package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kyma-project/keb/libs/event"
)

// EnsureStreams creates the streams of the contract and the stage bucket where they are missing, and brings what
// differs in line with the contract. What an operator has set besides (replicas, placement, a limit in bytes) stays.
// It is not for a guest.
func (b *Bus) EnsureStreams(ctx context.Context) error {
	if b.cfg.Guest {
		return errors.New("ensure streams: this connection is a guest, and may make none")
	}
	settled := false
	for _, spec := range event.Streams() {
		if err := b.ensureStream(ctx, spec, &settled); err != nil {
			return fmt.Errorf("ensure stream %s: %w", spec.Name, err)
		}
	}
	if _, err := ensureStageBucket(ctx, b.js, b.cfg.Replicas); err != nil {
		return err
	}
	return nil
}

// ensureStream lets a stream that has vanished settle, once for all streams.
func (b *Bus) ensureStream(ctx context.Context, spec event.StreamSpec, settled *bool) error {
	s, err := b.js.Stream(ctx, string(spec.Name))
	if errors.Is(err, jetstream.ErrStreamNotFound) && b.streams.has(spec.Name) && !*settled {
		if err := settle(ctx); err != nil {
			return err
		}
		*settled = true
		s, err = b.js.Stream(ctx, string(spec.Name))
	}
	b.streams.add(spec.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		cfg := jetstream.StreamConfig{Name: string(spec.Name), Storage: jetstream.FileStorage, Replicas: b.cfg.Replicas, MaxBytes: unbounded}
		apply(&cfg, spec)
		err = b.bounded(&cfg, unbounded, func() error { _, err := b.js.CreateStream(ctx, cfg); return err })
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return nil // another service was faster
		}
		return err
	}
	if err != nil {
		return err
	}
	cfg := s.CachedInfo().Config
	had := cfg.MaxBytes
	if !apply(&cfg, spec) {
		return nil
	}
	return b.bounded(&cfg, had, func() error { _, err := b.js.UpdateStream(ctx, cfg); return err })
}

// unbounded is the MaxBytes of a stream without a bound.
const unbounded = -1

// bounded makes or changes a stream. A server that has less room than the bound of the stream refuses it; then the stream keeps the one
// that it had, for a small server must do as well.
func (b *Bus) bounded(cfg *jetstream.StreamConfig, had int64, change func() error) error {
	err := change()
	if cfg.MaxBytes == had || !isNoRoom(err) {
		return err
	}
	b.roomLog.Do(func() {
		b.log.Warn("the server has less room than a stream may use, which stays without a bound of its own", "stream", cfg.Name, "bytes", cfg.MaxBytes, "err", err)
	})
	cfg.MaxBytes = had
	return change()
}

// isNoRoom reports whether the server or the account has too little storage for the bound of a stream.
func isNoRoom(err error) bool {
	const account, resources, memory, storage = 10002, 10023, 10028, 10047
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && slices.Contains([]jetstream.ErrorCode{account, resources, memory, storage}, api.ErrorCode)
}

// Created is when a stream was made. It changes when a stream was lost and made again.
func (b *Bus) Created(ctx context.Context, name event.Stream) (time.Time, error) {
	s, err := b.js.Stream(ctx, string(name))
	if err != nil {
		return time.Time{}, fmt.Errorf("look at stream %s: %w", name, err)
	}
	return s.CachedInfo().Created, nil
}

// settleTime is how long a stream that was there before stays away before it is made again. The server forgets a
// stream first and removes its files later; a new one made in between loses its files and never answers.
const settleTime = time.Second

// guestWait is the pause before a guest looks again for what somebody else has to make.
const guestWait = 100 * time.Millisecond

func settle(ctx context.Context) error { return pause(ctx, settleTime) }

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// seen is the streams that this connection knows to have existed.
type seen struct {
	mu    sync.Mutex
	names map[event.Stream]bool
}

func (s *seen) has(name event.Stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names[name]
}

func (s *seen) add(name event.Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names == nil {
		s.names = map[event.Stream]bool{}
	}
	s.names[name] = true
}

// apply puts the contract into cfg and reports whether that changed anything.
func apply(cfg *jetstream.StreamConfig, spec event.StreamSpec) bool {
	retention := jetstream.LimitsPolicy
	if spec.WorkQueue {
		retention = jetstream.WorkQueuePolicy
	}
	discard := jetstream.DiscardOld
	if spec.WorkQueue {
		discard = jetstream.DiscardNew
	}
	same := slices.Equal(cfg.Subjects, spec.Subjects) && cfg.Retention == retention && cfg.MaxAge == spec.MaxAge &&
		cfg.Duplicates == spec.Duplicates && (spec.MaxPerSubject == 0 || cfg.MaxMsgsPerSubject == spec.MaxPerSubject) &&
		cfg.Discard == discard && (spec.MaxBytes == 0 || cfg.MaxBytes > 0) && (cfg.AllowMsgTTL || !spec.Expiring)
	if spec.MaxPerSubject > 0 {
		cfg.MaxMsgsPerSubject = spec.MaxPerSubject
	}
	if spec.MaxBytes > 0 && cfg.MaxBytes <= 0 {
		cfg.MaxBytes = spec.MaxBytes
	}
	cfg.Discard, cfg.AllowMsgTTL = discard, cfg.AllowMsgTTL || spec.Expiring
	cfg.Subjects, cfg.Retention, cfg.MaxAge, cfg.Duplicates = spec.Subjects, retention, spec.MaxAge, spec.Duplicates
	return !same
}

// AwaitStageBucket opens the bucket of the stage memory, and waits for it until ctx ends when it is missing. It makes nothing.
func AwaitStageBucket(ctx context.Context, js jetstream.JetStream) (jetstream.KeyValue, error) {
	for {
		kv, err := js.KeyValue(ctx, event.StageBucket)
		if err == nil {
			return kv, nil
		}
		if !errors.Is(err, jetstream.ErrBucketNotFound) || pause(ctx, guestWait) != nil {
			return nil, fmt.Errorf("open bucket %s: %w", event.StageBucket, err)
		}
	}
}

// EnsureStageBucket opens the bucket of the stage memory. It creates it if it is missing, and takes roll-ups away from one that was
// made with them.
func EnsureStageBucket(ctx context.Context, js jetstream.JetStream) (jetstream.KeyValue, error) {
	return ensureStageBucket(ctx, js, 0)
}

func ensureStageBucket(ctx context.Context, js jetstream.JetStream, replicas int) (jetstream.KeyValue, error) {
	kv, err := js.KeyValue(ctx, event.StageBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		cfg := stageStream(replicas)
		if _, err = js.CreateStream(ctx, cfg); isNoRoom(err) {
			cfg.MaxBytes = unbounded
			_, err = js.CreateStream(ctx, cfg)
		}
		if err == nil || errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			kv, err = js.KeyValue(ctx, event.StageBucket)
		}
	}
	if err == nil {
		err = adjustStage(ctx, js)
	}
	if err != nil {
		return nil, fmt.Errorf("ensure bucket %s: %w", event.StageBucket, err)
	}
	return kv, nil
}

// adjustStage takes roll-ups away and bounds a bucket without a bound. It changes nothing else: replicas and limits are the operator's.
func adjustStage(ctx context.Context, js jetstream.JetStream) error {
	s, err := js.Stream(ctx, stageStreamName)
	if err != nil {
		return err
	}
	cfg := s.CachedInfo().Config
	if !cfg.AllowRollup && cfg.MaxBytes > 0 {
		return nil
	}
	bound := cfg
	bound.AllowRollup = false
	if bound.MaxBytes <= 0 {
		bound.MaxBytes = event.StageMemoryBytes
	}
	if _, err = js.UpdateStream(ctx, bound); isNoRoom(err) && cfg.AllowRollup {
		bound.MaxBytes = cfg.MaxBytes
		_, err = js.UpdateStream(ctx, bound)
	}
	if isNoRoom(err) {
		return nil // a small server must do as well
	}
	return err
}

const stageStreamName = "KV_" + event.StageBucket

// stageStream is the stream behind the bucket of the stage memory: that of a key-value bucket, but without roll-ups, with which one
// message could empty the bucket for all.
func stageStream(replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: stageStreamName, Subjects: []string{"$KV." + event.StageBucket + ".>"}, Storage: jetstream.MemoryStorage,
		MaxMsgsPerSubject: 1, MaxAge: event.StageMemoryTTL, MaxBytes: event.StageMemoryBytes, Discard: jetstream.DiscardNew, DenyDelete: true, AllowDirect: true, Replicas: replicas,
	}
}

// EnsureConsumer creates a durable consumer, or brings it in line with spec. A missing stream is created first. A
// consumer that stands ahead of its stream, as after a power loss of the server, is made anew: it would never
// deliver anything (docs/contracts/nats.md#nats-jetstream). A consumer whose file the server cannot read is kept in its memory until it
// restarts: the stream still has every message that was not acknowledged.
func (b *Bus) EnsureConsumer(ctx context.Context, spec event.ConsumerSpec) error {
	_, err := b.ensureConsumer(ctx, spec)
	return err
}

func (b *Bus) ensureConsumer(ctx context.Context, spec event.ConsumerSpec) (jetstream.Consumer, error) {
	if b.cfg.Guest {
		c, err := b.js.Consumer(ctx, string(spec.Stream), spec.Name)
		if err != nil {
			return nil, fmt.Errorf("look for consumer %s of stream %s: %w", spec.Name, spec.Stream, err)
		}
		return c, nil
	}
	c, err := b.consumer(ctx, spec)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if err := b.EnsureStreams(ctx); err != nil {
			return nil, err
		}
		c, err = b.consumer(ctx, spec)
	}
	if err != nil {
		return nil, fmt.Errorf("ensure consumer %s of stream %s: %w", spec.Name, spec.Stream, err)
	}
	return c, nil
}

func (b *Bus) consumer(ctx context.Context, spec event.ConsumerSpec) (jetstream.Consumer, error) {
	want := jetstream.ConsumerConfig{
		Durable: spec.Name, FilterSubject: spec.Filter, AckPolicy: jetstream.AckExplicitPolicy, AckWait: spec.AckWait,
		MaxAckPending: spec.MaxAckPending, MaxDeliver: -1,
	}
	if spec.Ranked {
		want.PriorityPolicy, want.PriorityGroups = jetstream.PriorityPolicyPrioritized, []string{rankGroup}
	}
	c, err := b.js.Consumer(ctx, string(spec.Stream), spec.Name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return b.makeConsumer(ctx, spec, want)
	}
	if err != nil {
		return nil, err
	}
	info := c.CachedInfo()
	s, err := b.js.Stream(ctx, string(spec.Stream))
	if err != nil {
		return nil, err
	}
	if info.AckFloor.Stream > s.CachedInfo().State.LastSeq {
		b.log.Warn("consumer is ahead of its stream and is made anew", "stream", spec.Stream, "consumer", spec.Name)
		if err := b.js.DeleteConsumer(ctx, string(spec.Stream), spec.Name); err != nil &&
			!errors.Is(err, jetstream.ErrConsumerNotFound) {
			return nil, err
		}
		return b.makeConsumer(ctx, spec, want)
	}
	have := info.Config
	if have.FilterSubject == want.FilterSubject && have.AckWait == want.AckWait &&
		have.MaxAckPending == want.MaxAckPending && have.AckPolicy == want.AckPolicy && have.PriorityPolicy == want.PriorityPolicy {
		return c, nil
	}
	return b.js.CreateOrUpdateConsumer(ctx, string(spec.Stream), want)
}

func (b *Bus) makeConsumer(ctx context.Context, spec event.ConsumerSpec, want jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	c, err := b.js.CreateOrUpdateConsumer(ctx, string(spec.Stream), want)
	api, ok := errors.AsType[*jetstream.APIError](err)
	if !ok || api.ErrorCode != jetstream.JSErrCodeConsumerCreate {
		return c, err
	}
	b.log.Error("the server cannot make or read the file of a consumer, which is kept in memory until the server restarts; if that happens again, remove the folder obs/<consumer> of the stream from its store while it is stopped",
		"stream", spec.Stream, "consumer", spec.Name, "err", err)
	want.MemoryStorage = true
	return b.js.CreateOrUpdateConsumer(ctx, string(spec.Stream), want)
}
