package bus

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kyma-project/keb/libs/event"
)

// answered notes which messages were acknowledged.
type answered struct {
	mu    sync.Mutex
	names []string
}

// named is a message that was delivered.
type named struct {
	jetstream.Msg
	name string
	into *answered
}

func (n named) Ack() error {
	n.into.mu.Lock()
	defer n.into.mu.Unlock()
	n.into.names = append(n.into.names, n.name)
	return nil
}

func TestTheLastAcknowledgementIsHeldForALittleWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got answered
		a := newAcks(event.StreamCommands)
		var running sync.WaitGroup
		running.Go(a.run)
		expect := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			if !slices.Equal(got.names, want) {
				t.Errorf("%s: acknowledged are %q, want %q", when, got.names, want)
			}
		}
		ack := func(name string) {
			if err := a.ack(named{name: name, into: &got}); err != nil {
				t.Error(err)
			}
		}
		ack("1")
		expect("after the first")
		ack("2")
		expect("after the second", "1")
		time.Sleep(ackHold / 2)
		ack("3")
		expect("after the third", "1", "2")
		time.Sleep(2*ackHold + time.Millisecond)
		expect("when nothing else has come", "1", "2", "3")
		ack("4")
		time.Sleep(2*ackHold + time.Millisecond)
		expect("when nothing else has come once more", "1", "2", "3", "4")
		ack("5")
		a.close()
		running.Wait()
		expect("at the end", "1", "2", "3", "4", "5")
		ack("6")
		expect("after the end", "1", "2", "3", "4", "5", "6")
	})
}

func TestOnlyWorkQueuesHoldAcknowledgements(t *testing.T) {
	t.Parallel()
	for stream, want := range map[event.Stream]bool{
		event.StreamRequests: true, event.StreamCommands: true, event.StreamResults: true, event.StreamFacts: false, "other": false,
	} {
		if got := newAcks(stream).hold; got != want {
			t.Errorf("%s: holds %t, want %t", stream, got, want)
		}
	}
}
