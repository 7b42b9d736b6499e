package bus

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// numbered is a delivered message with its sequence in the stream.
type numbered struct {
	jetstream.Msg
	seq  uint64
	back *[]uint64
	err  error
}

func (n numbered) Subject() string { return "numbered" }

func (n numbered) Nak() error {
	*n.back = append(*n.back, n.seq)
	return n.err
}

func (n numbered) Metadata() (*jetstream.MsgMetadata, error) {
	if n.seq == 0 {
		return nil, jetstream.ErrNotJSMessage
	}
	return &jetstream.MsgMetadata{Sequence: jetstream.SequencePair{Stream: n.seq}}, nil
}

func TestGivenBack_NotStopping_ReturnsImmediately(t *testing.T) {
	var back []uint64
	g := deferredNaks{stopped: make(chan struct{}), log: slog.New(slog.DiscardHandler)}
	broken := errors.New("no connection")
	if err := g.add(numbered{seq: 1, back: &back, err: broken}); !errors.Is(err, broken) {
		t.Errorf("error %v, want that of the connection", err)
	}
	if !slices.Equal(back, []uint64{1}) {
		t.Errorf("given back are %d, want message 1", back)
	}
}

func TestGivenBack_Stopping_KeepsStreamOrder(t *testing.T) {
	var back []uint64
	stopped := make(chan struct{})
	close(stopped)
	g := deferredNaks{stopped: stopped, log: slog.New(slog.DiscardHandler)}
	for _, seq := range []uint64{3, 4, 1, 0, 2} {
		if err := g.add(numbered{seq: seq, back: &back, err: errors.New("no connection")}); err != nil {
			t.Errorf("message %d: %v", seq, err)
		}
	}
	if len(back) > 0 {
		t.Errorf("given back are %d before nothing more comes", back)
	}
	g.release()
	if want := []uint64{0, 1, 2, 3, 4}; !slices.Equal(back, want) {
		t.Errorf("given back are %d, want %d", back, want)
	}
}

func TestConnection_ProcessWasStopped_BeginsAgain(t *testing.T) {
	var c connection
	start := time.Now()
	for _, step := range []struct {
		what       string
		at         time.Duration
		reconnects uint64
		want       time.Duration
	}{
		{"the first look", 0, 0, 0},
		{"the next look", pulse, 0, 0},
		{"a look that is late", pulse + stoppedAfter, 0, 0},
		{"a look after a stop", 2*pulse + 2*stoppedAfter, 0, 2*pulse + 2*stoppedAfter},
		{"the look after that", 3*pulse + 2*stoppedAfter, 0, 2*pulse + 2*stoppedAfter},
		{"a new connection", 4*pulse + 2*stoppedAfter, 1, 4*pulse + 2*stoppedAfter},
	} {
		if got := c.since(step.reconnects, start.Add(step.at)); !got.Equal(start.Add(step.want)) {
			t.Errorf("%s: the connection began after %s, want %s", step.what, got.Sub(start.Round(0)), step.want)
		}
	}
}

// While the server is down, ending a subscription takes longer than a stop waits.
func TestConsume_MessageAfterStop_IsReturned(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 { // a select with two ready cases takes the wrong one in half of the runs
		var back []uint64
		c := &consumption{msgs: make(chan arrival, 10), back: &deferredNaks{stopped: ctx.Done(), log: slog.New(slog.DiscardHandler)}}
		c.arrive(ctx, numbered{seq: 1, back: &back})
		c.giveBack()
		c.back.release()
		c.arrive(ctx, numbered{seq: 2, back: &back})
		if !slices.Equal(back, []uint64{1, 2}) {
			t.Fatalf("given back are %d, want 1 and 2", back)
		}
	}
}
