package bus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kyma-project/keb/libs/event"
)

// EnsureStreams creates missing streams of the contract and the stage bucket, and updates existing ones to the contract. It keeps other
// settings of an operator (replicas, placement, a limit in bytes). A guest must not call it.
func (b *Bus) EnsureStreams(ctx context.Context) error {
	if b.cfg.Guest {
		return errors.New("ensure streams: this connection is a guest, and may create none")
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

// ensureStream waits for the removal of a vanished stream to settle, once for all streams.
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
		err = replicated(b.js, b.cfg.Replicas, func(replicas int, metadata map[string]string) error {
			cfg := jetstream.StreamConfig{Name: string(spec.Name), Storage: jetstream.FileStorage, Replicas: replicas, MaxBytes: unbounded, Metadata: metadata}
			apply(&cfg, spec)
			return b.bounded(&cfg, unbounded, func() error { _, err := b.js.CreateStream(ctx, cfg); return err })
		})
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return nil // another service has created it
		}
		return err
	}
	if err != nil {
		return err
	}
	cfg := s.CachedInfo().Config
	if cfg, err = extended(ctx, b.js, cfg); err != nil {
		return err
	}
	had := cfg.MaxBytes
	if !apply(&cfg, spec) {
		return nil
	}
	return b.bounded(&cfg, had, func() error { _, err := b.js.UpdateStream(ctx, cfg); return err })
}

// clusterReplicas is the number of replicas of a new stream in a cluster: the loss of one server then interrupts nothing.
const clusterReplicas = 3

// noPeers is the code of the server's error if the cluster has too few servers, or too little storage, for a stream.
const noPeers jetstream.ErrorCode = 10005

// lacksReplicas is in the metadata of a stream for which the cluster had too few servers when it was created, for example because they had
// just started.
const lacksReplicas = "keb-lacks-replicas"

// replicated creates a stream with the configured number of replicas. 0 means one without a cluster, and three in a cluster. If that has too
// few servers, the stream has one replica, and extended tries again.
func replicated(js jetstream.JetStream, configured int, create func(replicas int, metadata map[string]string) error) error {
	if configured > 0 || js.Conn().ConnectedClusterName() == "" {
		return create(configured, nil)
	}
	err := create(clusterReplicas, nil)
	if hasNoPeers(err) {
		return create(1, map[string]string{lacksReplicas: "true"})
	}
	return err
}

// extended gives a stream that lacks replicas all of them, if the cluster has enough servers now. It returns the configuration of the stream.
func extended(ctx context.Context, js jetstream.JetStream, cfg jetstream.StreamConfig) (jetstream.StreamConfig, error) {
	if cfg.Metadata[lacksReplicas] == "" {
		return cfg, nil
	}
	more := cfg
	more.Replicas, more.Metadata = clusterReplicas, maps.Clone(cfg.Metadata)
	delete(more.Metadata, lacksReplicas)
	_, err := js.UpdateStream(ctx, more)
	switch {
	case hasNoPeers(err):
		return cfg, nil
	case err != nil:
		return cfg, fmt.Errorf("extend stream %s to %d replicas: %w", cfg.Name, clusterReplicas, err)
	}
	return more, nil
}

func hasNoPeers(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && api.ErrorCode == noPeers
}

// unbounded is the MaxBytes of a stream without a limit.
const unbounded = -1

// bounded creates or changes a stream. A server with less storage than the stream's limit rejects it. The stream then keeps its previous
// limit, because a small server must work, too.
func (b *Bus) bounded(cfg *jetstream.StreamConfig, had int64, change func() error) error {
	err := change()
	if cfg.MaxBytes == had || !isNoRoom(err) {
		return err
	}
	b.roomLog.Do(func() {
		b.log.Warn("the server has less storage than a stream may use; the stream has no limit of its own", "stream", cfg.Name, "bytes", cfg.MaxBytes, "err", err)
	})
	cfg.MaxBytes = had
	return change()
}

// isNoRoom reports whether the server or the account has too little storage for a stream's limit.
func isNoRoom(err error) bool {
	const account, resources, memory, storage = 10002, 10023, 10028, 10047
	api, ok := errors.AsType[*jetstream.APIError](err)
	if !ok {
		return false
	}
	return slices.Contains([]jetstream.ErrorCode{account, resources, memory, storage}, api.ErrorCode) ||
		api.ErrorCode == noPeers && strings.Contains(api.Description, "insufficient storage")
}

// maxIDs is the highest number of messages whose ids MessageIDs reads.
const maxIDs = 20_000

// MessageIDs returns the ids of all messages that a stream holds. It returns an error if there are more than 20,000, because it asks for one after
// the other.
func (b *Bus) MessageIDs(ctx context.Context, name event.Stream) (map[string]bool, error) {
	s, err := b.js.Stream(ctx, string(name))
	if err != nil {
		return nil, fmt.Errorf("read stream %s: %w", name, err)
	}
	state := s.CachedInfo().State
	if state.Msgs > maxIDs {
		return nil, fmt.Errorf("read stream %s: it holds %d messages, the ids of at most %d can be read", name, state.Msgs, maxIDs)
	}
	ids := make(map[string]bool, state.Msgs)
	for seq := state.FirstSeq; seq <= state.LastSeq; seq++ {
		m, err := s.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(">"))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read message %d of stream %s: %w", seq, name, err)
		}
		ids[m.Header.Get(nats.MsgIdHdr)] = true
		seq = m.Sequence
	}
	return ids, nil
}

// PurgeConsumer deletes all messages from a stream that match the filter of a consumer, including those that are out to it.
func (b *Bus) PurgeConsumer(ctx context.Context, spec event.ConsumerSpec) error {
	s, err := b.js.Stream(ctx, string(spec.Stream))
	if err != nil {
		return fmt.Errorf("read stream %s: %w", spec.Stream, err)
	}
	if err := s.Purge(ctx, jetstream.WithPurgeSubject(spec.Filter)); err != nil {
		return fmt.Errorf("purge %s from stream %s: %w", spec.Filter, spec.Stream, err)
	}
	return nil
}

// StreamRange is the range of messages that a stream holds.
type StreamRange struct {
	// Created changes if the stream was lost and created again.
	Created time.Time
	// First is the number of the oldest message that the stream holds, and Last that of the newest one that it has ever held. First is greater
	// than Last if the stream is empty.
	First, Last uint64
}

// Range returns the range of messages that a stream holds.
func (b *Bus) Range(ctx context.Context, name event.Stream) (StreamRange, error) {
	s, err := b.js.Stream(ctx, string(name))
	if err != nil {
		return StreamRange{}, fmt.Errorf("read stream %s: %w", name, err)
	}
	info := s.CachedInfo()
	return StreamRange{Created: info.Created, First: info.State.FirstSeq, Last: info.State.LastSeq}, nil
}

// settleTime is the wait before a vanished stream is created again. The server forgets a stream first and removes its files later; a
// stream that is created in between loses its files and never answers.
const settleTime = time.Second

// guestWait is the interval at which a guest checks for objects that another connection creates.
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

// seen holds the streams that this connection has seen.
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

// apply applies the contract to cfg and reports whether that changed anything.
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

// AwaitStageBucket opens the bucket of the stage memory. If it is missing, AwaitStageBucket waits for it until ctx ends.
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

// EnsureStageBucket opens the bucket of the stage memory, and creates it if it is missing. It removes roll-ups from a bucket that was
// created with them.
func EnsureStageBucket(ctx context.Context, js jetstream.JetStream) (jetstream.KeyValue, error) {
	return ensureStageBucket(ctx, js, 0)
}

func ensureStageBucket(ctx context.Context, js jetstream.JetStream, replicas int) (jetstream.KeyValue, error) {
	kv, err := js.KeyValue(ctx, event.StageBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		err = replicated(js, replicas, func(replicas int, metadata map[string]string) error {
			cfg := stageStream(replicas)
			cfg.Metadata = metadata
			_, err := js.CreateStream(ctx, cfg)
			if isNoRoom(err) {
				cfg.MaxBytes = unbounded
				_, err = js.CreateStream(ctx, cfg)
			}
			return err
		})
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

// adjustStage removes roll-ups, and sets the limit of a bucket without one. It keeps replicas and limits of the operator.
func adjustStage(ctx context.Context, js jetstream.JetStream) error {
	s, err := js.Stream(ctx, stageStreamName)
	if err != nil {
		return err
	}
	cfg, err := extended(ctx, js, s.CachedInfo().Config)
	if err != nil {
		return err
	}
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
		return nil // a small server must work, too
	}
	return err
}

const stageStreamName = "KV_" + event.StageBucket

// stageStream is the stream of the stage memory's bucket. It is that of a key-value bucket without roll-ups, with which one message could
// empty the bucket for all workers.
func stageStream(replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: stageStreamName, Subjects: []string{"$KV." + event.StageBucket + ".>"}, Storage: jetstream.MemoryStorage,
		MaxMsgsPerSubject: 1, MaxAge: event.StageMemoryTTL, MaxBytes: event.StageMemoryBytes, Discard: jetstream.DiscardNew, DenyDelete: true, AllowDirect: true, Replicas: replicas,
	}
}

// EnsureConsumer creates a durable consumer, or updates it to spec. It creates a missing stream first. It replaces a consumer whose
// position is beyond the end of its stream, as after a power loss of the server: it would never deliver a message (docs/contracts/nats.md#nats-jetstream). If the server cannot read the file of a consumer, EnsureConsumer creates it in memory until the server
// restarts: the stream still has every unacknowledged message.
func (b *Bus) EnsureConsumer(ctx context.Context, spec event.ConsumerSpec) error {
	_, err := b.ensureConsumer(ctx, spec)
	return err
}

func (b *Bus) ensureConsumer(ctx context.Context, spec event.ConsumerSpec) (jetstream.Consumer, error) {
	if b.cfg.Guest {
		c, err := b.js.Consumer(ctx, string(spec.Stream), spec.Name)
		if err != nil {
			return nil, fmt.Errorf("read consumer %s of stream %s: %w", spec.Name, spec.Stream, err)
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
	switch len(spec.Filters) {
	case 0:
	case 1:
		want.FilterSubject = spec.Filters[0]
	default:
		want.FilterSubjects = spec.Filters
	}
	if !spec.Since.IsZero() {
		want.DeliverPolicy, want.OptStartTime = jetstream.DeliverByStartTimePolicy, &spec.Since
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
		b.log.Warn("consumer is ahead of its stream and is created again", "stream", spec.Stream, "consumer", spec.Name)
		if err := b.js.DeleteConsumer(ctx, string(spec.Stream), spec.Name); err != nil &&
			!errors.Is(err, jetstream.ErrConsumerNotFound) {
			return nil, err
		}
		return b.makeConsumer(ctx, spec, want)
	}
	have := info.Config
	// The start of a consumer cannot be changed.
	want.DeliverPolicy, want.OptStartTime = have.DeliverPolicy, have.OptStartTime
	if have.FilterSubject == want.FilterSubject && slices.Equal(have.FilterSubjects, want.FilterSubjects) && have.AckWait == want.AckWait &&
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
	b.log.Error("the server cannot create or read the file of a consumer; the consumer is kept in memory until the server restarts; if this happens again, remove the folder obs/<consumer> of the stream from its store while it is stopped",
		"stream", spec.Stream, "consumer", spec.Name, "err", err)
	want.MemoryStorage = true
	return b.js.CreateOrUpdateConsumer(ctx, string(spec.Stream), want)
}
