package bus

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
)

// givenBack are the messages that a consumption gives back at once. From its stop until the server sends it nothing more it keeps
// them: the server would send them to its own pull request, which is still open, and whoever takes over would wait for them.
type givenBack struct {
	stopped <-chan struct{}
	log     *slog.Logger

	mu       sync.Mutex
	kept     []jetstream.Msg
	released bool
}

// add gives a message back, or keeps it until release. An error is only about a message that is not kept.
func (g *givenBack) add(m jetstream.Msg) error {
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

// tryAdd is add for a message that no handler has seen. Without a connection it comes again after AckWait.
func (g *givenBack) tryAdd(m jetstream.Msg) {
	if err := g.add(m); err != nil {
		g.log.Debug("message not given back, it comes again", "subject", m.Subject(), "err", err)
	}
}

// release gives back what was kept, in the order of the stream, as others get it in the order in which it is given back. From now on
// nothing is kept.
func (g *givenBack) release() {
	g.mu.Lock()
	kept := g.kept
	g.kept, g.released = nil, true
	g.mu.Unlock()
	slices.SortStableFunc(kept, func(a, b jetstream.Msg) int { return cmp.Compare(sequence(a), sequence(b)) })
	for _, m := range kept {
		g.tryAdd(m)
	}
}

// sequence is the place of a message in its stream; 0 when the server's metadata is not readable.
func sequence(m jetstream.Msg) uint64 {
	meta, err := m.Metadata()
	if err != nil {
		return 0
	}
	return meta.Sequence.Stream
}
