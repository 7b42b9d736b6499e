package bus

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
)

// deferredNaks holds the messages that a consumption returns immediately. While the consumption stops, it keeps them until the server sends no
// more messages: the server would send them to the open pull request, and the next process would wait for them.
type deferredNaks struct {
	stopped <-chan struct{}
	log     *slog.Logger

	mu       sync.Mutex
	kept     []jetstream.Msg
	released bool
}

// add returns a message, or keeps it until release. An error is only about a message that is not kept.
func (g *deferredNaks) add(m jetstream.Msg) error {
	g.mu.Lock()
	keep := isClosed(g.stopped) && !g.released
	if keep {
		g.kept = append(g.kept, m)
	}
	g.mu.Unlock()
	if keep {
		return nil
	}
	return m.Nak()
}

// tryAdd is add for an unhandled message. Without a connection the message is redelivered after AckWait.
func (g *deferredNaks) tryAdd(m jetstream.Msg) {
	if err := g.add(m); err != nil {
		g.log.Debug("message not returned, it will be redelivered", "subject", m.Subject(), "err", err)
	}
}

// release returns the kept messages in the order of the stream, because they are redelivered in the order of their return. After
// that, no message is kept.
func (g *deferredNaks) release() {
	g.mu.Lock()
	kept := g.kept
	g.kept, g.released = nil, true
	g.mu.Unlock()
	slices.SortStableFunc(kept, func(a, b jetstream.Msg) int { return cmp.Compare(sequence(a), sequence(b)) })
	for _, m := range kept {
		g.tryAdd(m)
	}
}

// sequence returns the sequence of a message in its stream; 0 if the server's metadata is not readable.
func sequence(m jetstream.Msg) uint64 {
	meta, err := m.Metadata()
	if err != nil {
		return 0
	}
	return meta.Sequence.Stream
}
