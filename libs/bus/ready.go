package bus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kyma-project/keb/libs/event"
)

const (
	// probeTTL is how long a probe stays in its stream: as short as the server allows.
	probeTTL = time.Second
	// probeEvery is how long an answer of Ready counts: anyone may ask.
	probeEvery = time.Second
	// probeTimeout is how long a stream may take to store a probe.
	probeTimeout = 1500 * time.Millisecond
)

// probe is what became of the last one.
type probe struct {
	at  time.Time
	err error
}

// Ready returns why the bus does not take messages: the connection is lost, a stream has refused what was published to it last, as
// after a full disk, or refuses a probe. A guest publishes no probe. The error holds no secret.
func (b *Bus) Ready(ctx context.Context) error {
	if !b.nc.IsConnected() {
		return errors.New("not connected")
	}
	if err := b.refusals.first(); err != nil || b.cfg.Guest {
		return err
	}
	b.probing.Lock()
	defer b.probing.Unlock()
	if time.Since(b.probed.at) < probeEvery {
		return b.probed.err
	}
	err := b.probe(ctx)
	b.probed = probe{at: time.Now(), err: err}
	return err
}

// probe stores a message that goes by itself and that no consumer gets.
func (b *Bus) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, probeTimeout, errUnanswered)
	defer cancel()
	answer, err := b.nc.RequestMsgWithContext(ctx, &nats.Msg{
		Subject: event.ProbeSubject(), Header: nats.Header{jetstream.MsgTTLHeader: {probeTTL.String()}},
	})
	switch {
	case err == nil:
		err = ackError(answer)
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("stream %s does not store messages: %w", event.StreamCommands, err)
	}
	return nil
}

// refusals remembers why streams have not stored what was published to them last. It is safe for concurrent use.
type refusals struct {
	any    atomic.Bool // false: none, which is nearly always so
	mu     sync.Mutex
	causes map[string]error
}

// note takes what became of a publication to a stream; nil is a success. What counts is that the stream has refused it or has not
// answered, which is what a server does that cannot write.
func (r *refusals) note(stream string, err error) {
	if err == nil && !r.any.Load() {
		return
	}
	if err != nil {
		_, refused := errors.AsType[*jetstream.APIError](err)
		silent := errors.Is(err, errUnanswered) || errors.Is(err, context.DeadlineExceeded)
		if isRefusal(err) || !refused && !silent {
			return
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		delete(r.causes, stream)
	} else {
		if r.causes == nil {
			r.causes = map[string]error{}
		}
		r.causes[stream] = err
	}
	r.any.Store(len(r.causes) > 0)
}

func (r *refusals) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.causes)
	r.any.Store(false)
}

// first is the refusal of the first stream by name; nil when there is none.
func (r *refusals) first() error {
	if !r.any.Load() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, stream := range slices.Sorted(maps.Keys(r.causes)) {
		return fmt.Errorf("stream %s does not store messages: %w", stream, r.causes[stream])
	}
	return nil
}
