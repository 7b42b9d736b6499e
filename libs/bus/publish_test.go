package bus_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

func streamMessages(t testing.TB, b *bus.Bus, s event.Stream) uint64 {
	t.Helper()
	st, err := b.JetStream().Stream(t.Context(), string(s))
	require.NoError(t, err)
	return st.CachedInfo().State.Msgs
}

func TestPublish_LargeBatch_IsStored(t *testing.T) {
	t.Parallel()
	b := connect(t, testkit.NATS(t), bus.Config{Timeout: time.Minute}, bus.Deps{})
	require.NoError(t, b.EnsureStreams(t.Context()))
	const n = 10_000 // more than may be in flight
	msgs := make([]bus.Message, n)
	for i := range msgs {
		msgs[i] = command(t, fmt.Sprintf("op/%d", i))
	}
	require.NoError(t, b.Publish(t.Context(), msgs...))
	if got := streamMessages(t, b, event.StreamCommands); got != n {
		t.Errorf("stream holds %d messages, want %d", got, n)
	}
}

func TestPublish_SameID_IsStoredOnce(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	for range 2 {
		require.NoError(t, b.Publish(t.Context(), command(t, "op/1/1")))
	}
	if got := streamMessages(t, b, event.StreamCommands); got != 1 {
		t.Errorf("stream holds %d messages, want 1", got)
	}
}

func TestMessageIDs_Stream_AreThoseItHolds(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	ids := func() map[string]bool {
		t.Helper()
		ids, err := b.MessageIDs(t.Context(), event.StreamCommands)
		require.NoError(t, err)
		return ids
	}
	if got := ids(); len(got) != 0 {
		t.Errorf("an empty stream holds %v", got)
	}
	for i := range 5 {
		require.NoError(t, b.Publish(t.Context(), command(t, fmt.Sprintf("op/%d/1", i))))
	}
	s, err := b.JetStream().Stream(t.Context(), string(event.StreamCommands))
	require.NoError(t, err)
	for _, seq := range []uint64{1, 3, 5} { // the first, one in between, and the last
		require.NoError(t, s.DeleteMsg(t.Context(), seq))
	}
	if diff := cmp.Diff(map[string]bool{"op/1/1": true, "op/3/1": true}, ids()); diff != "" {
		t.Errorf("ids (-want +got):\n%s", diff)
	}
}

func TestPublish_SomeFail_ReportsTheirIndexes(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	homeless := command(t, "homeless")
	homeless.Subject = "keb.nowhere"
	nameless := command(t, "nameless")
	nameless.Event.SetSource("")

	err := b.Publish(t.Context(), command(t, "good"), homeless, nameless, command(t, "good too"))
	perr, ok := errors.AsType[*bus.PublishError](err)
	if !ok {
		t.Fatalf("error is %v, want a PublishError", err)
	}
	if perr.Total != 4 || len(perr.Failures) != 2 || perr.Failures[0].Index != 1 || perr.Failures[1].Index != 2 ||
		perr.Failures[0].EventID != "homeless" {
		t.Errorf("error is %+v, want messages 1 and 2 of 4 to fail", perr)
	}
	if got := streamMessages(t, b, event.StreamCommands); got != 2 {
		t.Errorf("stream holds %d messages, want the 2 good ones", got)
	}
}

func TestPublish_MissingStream_IsCreated(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	require.NoError(t, b.JetStream().DeleteStream(t.Context(), string(event.StreamCommands)))
	require.NoError(t, b.Publish(t.Context(), command(t, "a"), command(t, "b")))
	if got := streamMessages(t, b, event.StreamCommands); got != 2 {
		t.Errorf("stream holds %d messages, want 2", got)
	}
}

func TestPublish_ServerLostStore_Continues(t *testing.T) {
	t.Parallel()
	b, s := setup(t)
	s.RestartEmpty(t)
	require.NoError(t, b.Publish(t.Context(), command(t, "a")))
	if got := streamMessages(t, b, event.StreamCommands); got != 1 {
		t.Errorf("stream holds %d messages, want 1", got)
	}
	if _, err := b.JetStream().KeyValue(t.Context(), event.StageBucket); err != nil {
		t.Errorf("stage bucket: %v", err)
	}
}

func TestPublish_NoAcknowledgement_Retries(t *testing.T) {
	t.Parallel()
	b := connect(t, testkit.NATS(t), bus.Config{Timeout: 15 * time.Second}, bus.Deps{})
	require.NoError(t, b.EnsureStreams(t.Context()))
	require.NoError(t, b.JetStream().DeleteStream(t.Context(), string(event.StreamCommands)))
	// A subscriber that never answers behaves like a stream that is being deleted.
	heard := make(chan struct{}, 10)
	sub, err := b.NATS().Subscribe("keb.command.>", func(*nats.Msg) { heard <- struct{}{} })
	require.NoError(t, err)
	published := make(chan error, 1)
	go func() { published <- b.Publish(context.WithoutCancel(t.Context()), command(t, "op/1/1")) }()
	<-heard
	require.NoError(t, b.EnsureStreams(t.Context()))
	require.NoError(t, <-published)
	require.NoError(t, sub.Unsubscribe())
	if got := streamMessages(t, b, event.StreamCommands); got != 1 {
		t.Errorf("stream holds %d messages, want 1", got)
	}
}

func TestPublish_ServerStaysDown_TimesOut(t *testing.T) {
	t.Parallel()
	_, s := setup(t)
	b := connect(t, s, bus.Config{Timeout: 300 * time.Millisecond}, bus.Deps{})
	s.Shutdown()
	err := b.Publish(t.Context(), command(t, "a"))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error is %v, want a deadline", err)
	}
}

func TestEnsureStreams_New_FollowContract(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	require.NoError(t, b.EnsureStreams(t.Context()), "second time")
	for _, want := range event.Streams() {
		s, err := b.JetStream().Stream(t.Context(), string(want.Name))
		require.NoError(t, err)
		cfg := s.CachedInfo().Config
		retention := jetstream.LimitsPolicy
		if want.WorkQueue {
			retention = jetstream.WorkQueuePolicy
		}
		if cfg.Storage != jetstream.FileStorage || cfg.Retention != retention || cfg.MaxAge != want.MaxAge ||
			cfg.Duplicates != want.Duplicates || cfg.Subjects[0] != want.Subjects[0] {
			t.Errorf("stream %s is %+v, want %+v", want.Name, cfg, want)
		}
	}
	kv, err := b.JetStream().KeyValue(t.Context(), event.StageBucket)
	require.NoError(t, err)
	st, err := kv.Status(t.Context())
	require.NoError(t, err)
	if got := st.(*jetstream.KeyValueBucketStatus).StreamInfo().Config.Storage; got != jetstream.MemoryStorage {
		t.Errorf("stage bucket is kept in %s, want memory", got)
	}
	if st.TTL() != event.StageMemoryTTL {
		t.Errorf("stage bucket keeps values %s, want %s", st.TTL(), event.StageMemoryTTL)
	}
}

func TestEnsureStreams_ChangedStream_IsRestored(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	s, err := b.JetStream().Stream(t.Context(), string(event.StreamFacts))
	require.NoError(t, err)
	cfg := s.CachedInfo().Config
	cfg.MaxAge, cfg.MaxMsgs = time.Hour, 1_000_000
	_, err = b.JetStream().UpdateStream(t.Context(), cfg)
	require.NoError(t, err)
	require.NoError(t, b.EnsureStreams(t.Context()))
	s, err = b.JetStream().Stream(t.Context(), string(event.StreamFacts))
	require.NoError(t, err)
	if got := s.CachedInfo().Config; got.MaxAge != 7*24*time.Hour || got.MaxMsgs != 1_000_000 {
		t.Errorf("max age %s, max messages %d: want the contract's age and the operator's limit", got.MaxAge, got.MaxMsgs)
	}
}

func TestEnsureStageBucket_WithRollups_RemovesThem(t *testing.T) {
	t.Parallel()
	b := connect(t, testkit.NATS(t), bus.Config{}, bus.Deps{})
	kv, err := b.JetStream().CreateKeyValue(t.Context(), jetstream.KeyValueConfig{
		Bucket: event.StageBucket, Storage: jetstream.MemoryStorage, TTL: event.StageMemoryTTL, MaxBytes: 1 << 20,
	})
	require.NoError(t, err)
	for _, key := range []string{"a", "b"} {
		_, err := kv.PutString(t.Context(), key, "kept")
		require.NoError(t, err)
	}
	require.NoError(t, b.EnsureStreams(t.Context()))
	rollup := nats.NewMsg("$KV." + event.StageBucket + ".a")
	rollup.Header.Set("Nats-Rollup", "all")
	if _, err := b.JetStream().PublishMsg(t.Context(), rollup); err == nil {
		t.Error("a roll-up is taken")
	}
	for _, key := range []string{"a", "b"} {
		if e, err := kv.Get(t.Context(), key); err != nil || string(e.Value()) != "kept" {
			t.Errorf("the value of %s is %v, %v", key, e, err)
		}
	}
	s, err := b.JetStream().Stream(t.Context(), "KV_"+event.StageBucket)
	require.NoError(t, err)
	if limit := s.CachedInfo().Config.MaxBytes; limit != 1<<20 {
		t.Errorf("the operator's limit is now %d", limit)
	}
}

func TestPublish_QuietMessages_ShareAcknowledgement(t *testing.T) {
	t.Parallel()
	b := connect(t, testkit.NATS(t), bus.Config{Timeout: time.Minute}, bus.Deps{})
	require.NoError(t, b.EnsureStreams(t.Context()))
	const n = 5000 // more than may be in flight
	msgs := make([]bus.Message, 0, 2*n)
	for i := range n {
		quiet := command(t, fmt.Sprintf("op/%d", i))
		quiet.Quiet = true
		msgs = append(msgs, quiet)
	}
	msgs = append(msgs, command(t, "loud"))
	before := b.NATS().Stats().InMsgs
	require.NoError(t, b.Publish(t.Context(), msgs...))
	if answers := b.NATS().Stats().InMsgs - before; answers > n/50 {
		t.Errorf("%d answers came for %d messages", answers, n)
	}
	if got := streamMessages(t, b, event.StreamCommands); got != n+1 {
		t.Errorf("stream holds %d messages, want %d", got, n+1)
	}
}

func TestPublish_QuietInSeveralStreams_AckPerStream(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	fact := func(id string) bus.Message {
		m := command(t, id)
		m.Subject, m.ID, m.Quiet = event.FactSubject(event.Provision, event.TypeStepFinished), "", true
		return m
	}
	homeless := fact("homeless")
	homeless.Subject = "keb.nowhere"
	err := b.Publish(t.Context(), fact("1"), fact("2"), homeless, homeless, command(t, "3"), fact("4"))
	perr, ok := errors.AsType[*bus.PublishError](err)
	if !ok || len(perr.Failures) != 2 || perr.Failures[0].Index != 2 || perr.Failures[1].Index != 3 {
		t.Fatalf("error is %v, want a PublishError about both messages without a stream", err)
	}
	if facts, commands := streamMessages(t, b, event.StreamFacts), streamMessages(t, b, event.StreamCommands); facts != 3 || commands != 1 {
		t.Errorf("streams hold %d facts and %d commands, want 3 and 1", facts, commands)
	}
}

func TestPublish_QuietToMissingStream_Retries(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	require.NoError(t, b.JetStream().DeleteStream(t.Context(), string(event.StreamCommands)))
	msgs := make([]bus.Message, 10)
	for i := range msgs {
		msgs[i] = command(t, fmt.Sprintf("op/%d", i))
		msgs[i].Quiet = true
	}
	require.NoError(t, b.Publish(t.Context(), msgs...))
	if got := streamMessages(t, b, event.StreamCommands); got != 10 {
		t.Errorf("stream holds %d messages, want 10", got)
	}
}

func TestPublish_MessageTooLarge_FailsAloneWithItsSize(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	big := command(t, "big")
	require.NoError(t, big.Event.SetData("application/json", map[string]string{"id": strings.Repeat("x", event.MaxPayload)}))
	quiet := command(t, "quiet")
	quiet.Quiet = true
	err := b.Publish(t.Context(), quiet, big, command(t, "good"))
	perr, ok := errors.AsType[*bus.PublishError](err)
	if !ok || len(perr.Failures) != 1 || perr.Failures[0].Index != 1 || perr.Away() {
		t.Fatalf("error is %v, want message 1 of 3 to fail", err)
	}
	size, ok := errors.AsType[*bus.TooLargeError](perr.Failures[0].Err)
	if !ok || size.Size <= size.Limit || size.Limit != event.MaxPayload || !errors.Is(err, nats.ErrMaxPayload) {
		t.Errorf("the failure is %v, want one with the size and the limit of %d", perr.Failures[0].Err, event.MaxPayload)
	}
	if got := streamMessages(t, b, event.StreamCommands); got != 2 {
		t.Errorf("stream holds %d messages, want the 2 others", got)
	}
}

// checkSize counts the size before the client does, so both must count the same.
func TestPublish_MessageOfMaxSize_IsAccepted(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	for _, size := range []int{event.MaxPayload, event.MaxPayload - 1, event.MaxPayload - 200, event.MaxPayload - 300, event.MaxPayload - 350} {
		for over := range 60 {
			m := command(t, fmt.Sprint(size, over))
			m.Event.DataEncoded = []byte(`"` + strings.Repeat("x", size-over-2) + `"`)
			err := b.Publish(t.Context(), m)
			if _, tooLarge := errors.AsType[*bus.TooLargeError](err); err != nil && !tooLarge {
				t.Fatalf("error is %v, want none or a TooLargeError", err)
			}
		}
	}
}

func TestPublishError_NoServer_IsAway(t *testing.T) {
	t.Parallel()
	_, s := setup(t)
	b := connect(t, s, bus.Config{Timeout: 300 * time.Millisecond}, bus.Deps{})
	s.Shutdown()
	err := b.Publish(t.Context(), command(t, "a"))
	if perr, ok := errors.AsType[*bus.PublishError](err); !ok || !perr.Away() {
		t.Errorf("error is %v, want one for an unavailable bus", err)
	}
}

func TestUnpublished_PartlyOrNotAtAll_ReturnsErrorsByIndex(t *testing.T) {
	t.Parallel()
	cause := errors.New("no")
	partly := fmt.Errorf("publish: %w", &bus.PublishError{Total: 3, Failures: []bus.Failure{{Index: 1, Err: cause}}})
	for _, c := range []struct {
		err  error
		want map[int]error
	}{{nil, map[int]error{}}, {partly, map[int]error{1: cause}}, {cause, map[int]error{0: cause, 1: cause, 2: cause}}} {
		if got := bus.Unpublished(c.err, 3); !maps.Equal(got, c.want) {
			t.Errorf("%v: got %v, want %v", c.err, got, c.want)
		}
	}
}
