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
	// probeTTL is the lifetime of a probe in its stream, the minimum of the server.
	probeTTL = time.Second
	// probeEvery is how long a result of Ready is cached, because any client can call it.
	probeEvery = time.Second
	// probeTimeout is the time in which a stream must store a probe.
	probeTimeout = 1500 * time.Millisecond
	// refusalTTL is how long Ready reports a refusal that no later publication confirms. A process that does not publish any more, for
	// example because another one has taken its work while it was frozen, cannot see that the stream has recovered.
	refusalTTL = 15 * time.Second
)

// probe is the result of the last probe.
type probe struct {
	at  time.Time
	err error
}

// Ready returns an error if the bus cannot store messages: the connection is lost, a stream rejected the last publication (for example
// because the disk was full), or a stream rejects a probe. A guest publishes no probe. The error contains no secret.
func (b *Bus) Ready(ctx context.Context) error {
	if !b.nc.IsConnected() {
		return errors.New("not connected")
	}
	if err := b.refusals.first(time.Now()); err != nil || b.cfg.Guest {
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

// probe stores a message that expires by itself and that no consumer receives.
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

// refusals records why streams did not store the last publication. It is safe for concurrent use.
type refusals struct {
	any    atomic.Bool // false: none, the usual case
	mu     sync.Mutex
	causes map[string]refusal
}

type refusal struct {
	at  time.Time
	err error
}

// note records the result of a publication to a stream; nil is a success. It considers only rejections and missing answers, because a
// server that cannot write causes those.
func (r *refusals) note(stream string, err error, now time.Time) {
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
			r.causes = map[string]refusal{}
		}
		r.causes[stream] = refusal{at: now, err: err}
	}
	r.any.Store(len(r.causes) > 0)
}

func (r *refusals) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.causes)
	r.any.Store(false)
}

// first returns the error of the first stream by name; nil if there is none that is young enough.
func (r *refusals) first(now time.Time) error {
	if !r.any.Load() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.causes, func(_ string, c refusal) bool { return now.Sub(c.at) > refusalTTL })
	r.any.Store(len(r.causes) > 0)
	for _, stream := range slices.Sorted(maps.Keys(r.causes)) {
		return fmt.Errorf("stream %s does not store messages: %w", stream, r.causes[stream].err)
	}
	return nil
}
