package bus

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kyma-project/keb/libs/event"
)

// answered records the acknowledged messages.
type answered struct {
	mu    sync.Mutex
	names []string
}

// named is a delivered message.
type named struct {
	jetstream.Msg
	name string
	into *answered
	err  error
}

func (n named) Subject() string { return n.name }

func (n named) Ack() error {
	if n.err != nil {
		return n.err
	}
	n.into.mu.Lock()
	defer n.into.mu.Unlock()
	n.into.names = append(n.into.names, n.name)
	return nil
}

func TestAcks_LastAcknowledgement_IsDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got answered
		a := newAcks(event.StreamResults, slog.New(slog.DiscardHandler))
		var running sync.WaitGroup
		running.Go(a.run)
		expect := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			got.mu.Lock()
			defer got.mu.Unlock()
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
		<-time.After(ackHold / 2) // the fake clock of the bubble
		ack("3")
		expect("after the third", "1", "2")
		<-time.After(2*ackHold + time.Millisecond)
		expect("when nothing else has come", "1", "2", "3")
		ack("4")
		<-time.After(2*ackHold + time.Millisecond)
		expect("when nothing else has come once more", "1", "2", "3", "4")
		ack("5")
		a.close()
		running.Wait()
		expect("at the end", "1", "2", "3", "4", "5")
		ack("6")
		expect("after the end", "1", "2", "3", "4", "5", "6")
	})
}

func TestAcks_HeldMessageFails_OthersAreUnaffected(t *testing.T) {
	t.Parallel()
	var got answered
	var log strings.Builder
	a := newAcks(event.StreamResults, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	broken := errors.New("no connection")
	if err := a.ack(named{name: "1", into: &got, err: broken}); err != nil {
		t.Errorf("what is held fails with %v", err)
	}
	if err := a.ack(named{name: "2", into: &got}); err != nil {
		t.Errorf("a message fails with %v of the one before", err)
	}
	if !strings.Contains(log.String(), "subject=1") || !strings.Contains(log.String(), "no connection") {
		t.Errorf("the log is %q of the one that failed", log.String())
	}
	a.close()
	if err := a.ack(named{name: "3", into: &got, err: broken}); !errors.Is(err, broken) {
		t.Errorf("what is not held fails with %v", err)
	}
	if !slices.Equal(got.names, []string{"2"}) {
		t.Errorf("acknowledged are %q", got.names)
	}
}

func TestNewAcks_Commands_AreNotHeld(t *testing.T) {
	t.Parallel()
	for stream, want := range map[event.Stream]bool{
		event.StreamRequests: true, event.StreamCommands: false, event.StreamResults: true, event.StreamFacts: false, "other": false,
	} {
		if got := newAcks(stream, nil).hold; got != want {
			t.Errorf("%s: holds %t, want %t", stream, got, want)
		}
	}
}
