package gauge

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/scrape"
)

type bus struct {
	deps                              Deps
	consumers                         *scrape.Bound
	messages, bytes, pending, waiting *scrape.Gauge
}

func newBus(deps Deps) *scrape.Collector {
	b := &bus{
		deps: deps, consumers: scrape.NewBound(maxConsumers, deps.Definitions.Set().Workers()...),
		messages: scrape.NewGauge("keb_bus_stream_messages", "Messages that a stream holds.", "stream"),
		bytes:    scrape.NewGauge("keb_bus_stream_bytes", "Bytes that a stream holds.", "stream"),
		pending:  scrape.NewGauge("keb_bus_consumer_pending", "Messages of a consumer that are not yet delivered.", "stream", "consumer"),
		waiting: scrape.NewGauge("keb_bus_consumer_ack_pending",
			"Messages of a consumer that are delivered and not acknowledged.", "stream", "consumer"),
	}
	return scrape.New(config(deps, "bus", age), b.read, b.messages, b.bytes, b.pending, b.waiting)
}

func (b *bus) read(ctx context.Context, s *scrape.Sample) error {
	for _, spec := range event.Streams() {
		name := string(spec.Name)
		stream, err := b.deps.JetStream.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue // it is made again when something is published
		}
		if err != nil {
			return fmt.Errorf("read stream %s: %w", name, err)
		}
		state := stream.CachedInfo().State
		s.Add(b.messages, float64(state.Msgs), name)
		s.Add(b.bytes, float64(state.Bytes), name)
		list := stream.ListConsumers(ctx)
		for info := range list.Info() {
			if info.Config.Durable == "" {
				continue // somebody who only looks on, under a random name
			}
			consumer := b.consumers.Value(info.Name)
			s.Add(b.pending, float64(info.NumPending), name, consumer)
			s.Add(b.waiting, float64(info.NumAckPending), name, consumer)
		}
		if err := list.Err(); err != nil {
			return fmt.Errorf("list the consumers of stream %s: %w", name, err)
		}
	}
	return nil
}
