package bus

import (
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
