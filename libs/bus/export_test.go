package bus

import (
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kyma-project/keb/libs/event"
)

// DeadLetterOf returns the dead letter of a message, of at most limit bytes.
func DeadLetterOf(m jetstream.Msg, consumer, reason string, limit int64) *nats.Msg {
	d := &Delivery{Subject: m.Subject(), msg: m, spec: &event.ConsumerSpec{Stream: event.StreamCommands, Name: consumer}}
	letter := d.deadLetter(reason)
	fit(letter, limit)
	return letter
}

// Isolation is the state of leaving an isolated server.
type Isolation = isolation

// Works and Fails record the result of a request.
func (i *Isolation) Works() { i.works() }

// Fails reports whether the server is to be left.
func (i *Isolation) Fails(asked, now time.Time) bool { return i.fails(asked, now) }
