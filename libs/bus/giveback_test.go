package bus_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
)

// traffic records what a server receives from its clients, in order.
type traffic struct {
	mu    sync.Mutex
	lines []string
}

func (l *traffic) note(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

// place returns the first line from a line on that contains all of these words; -1 if there is none.
func (l *traffic) place(from int, words ...string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := from; i < len(l.lines); i++ {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(l.lines[i], word) }) {
			return i
		}
	}
	return -1
}

func (l *traffic) length() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lines)
}

// Tracef is the only log function of a server that receives the clients' messages.
func (l *traffic) Tracef(format string, v ...any) { l.note(fmt.Sprintf(format, v...)) }

func (l *traffic) Noticef(string, ...any) {}
func (l *traffic) Warnf(string, ...any)   {}
func (l *traffic) Fatalf(string, ...any)  {}
func (l *traffic) Errorf(string, ...any)  {}
func (l *traffic) Debugf(string, ...any)  {}

// A message that is returned while the pull request is open is redelivered to the stopping process, and may be lost with it.
func TestConsume_Stop_ReturnsMessagesAfterLastPull(t *testing.T) {
	t.Parallel()
	others, s := setup(t)
	require.NoError(t, others.EnsureConsumer(t.Context(), unhurried()))
	var heard traffic
	s.SetLogger(&heard, false, true)
	b := connect(t, s, bus.Config{Name: "who stops"}, bus.Deps{})
	const n, rounds = 16, 5
	for round := range rounds {
		taken := make(chan []*bus.Delivery, n)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- b.Consume(ctx, bus.ConsumeConfig{Consumer: unhurried(), MaxBatch: 4, Prefetch: 8}, func(ctx context.Context, batch []*bus.Delivery) {
				taken <- batch
				<-ctx.Done()
			})
		}()
		ids := make([]string, n)
		for i := range ids {
			ids[i] = fmt.Sprintf("op/%d/%d", round, i)
		}
		publish(t, others, ids...)
		batch := within(t, taken, "the first commands")
		from := heard.length()

		cancel()
		for _, d := range batch {
			if err := d.Nak(0); err != nil {
				t.Error(err)
			}
		}
		require.NoError(t, within(t, ended, "the end"))
		require.NoError(t, b.NATS().Flush())
		end, first := heard.place(from, "[UNSUB "), heard.place(from, "-NAK")
		if end < 0 || first < end {
			t.Errorf("round %d: the end of the subscription is line %d, the first that is given back line %d: want it later", round, end-from, first-from)
		}

		got := make(chan string, n)
		stop := start(t, others, bus.ConsumeConfig{Consumer: unhurried(), MaxBatch: 1}, func(_ context.Context, batch []*bus.Delivery) {
			for _, d := range batch {
				if k := d.NumDelivered(); k > 2 {
					t.Errorf("round %d: %s was delivered %d times, want at most twice", round, d.Event.ID(), k)
				}
				if err := d.Ack(); err != nil {
					t.Error(err)
				}
				got <- d.Event.ID()
			}
		})
		for range ids {
			within(t, got, "a command for who takes over")
		}
		stop()
	}
}
