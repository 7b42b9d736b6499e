package event_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

const operationID = "6f7d1f7e-0000-4000-8000-000000000001"

var now = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

// decoders contains the reader of each type's payload.
var decoders = map[event.Type]func(*bus.Delivery) (any, error){
	event.TypeOperationRequested: decode[event.OperationRequested], event.TypeStepExecute: decode[event.StepExecute],
	event.TypeStepSucceeded: decode[event.StepSucceeded], event.TypeStepRetry: decode[event.StepRetry],
	event.TypeStepFailed: decode[event.StepFailed], event.TypeStepSkipped: decode[event.StepSkipped],
	event.TypeStageLost: decode[event.StageLost], event.TypeOperationStarted: decode[event.OperationStarted],
	event.TypeStepFinished: decode[event.StepFinished], event.TypeStageFinished: decode[event.StageFinished],
	event.TypeOperationSucceeded: decode[event.OperationSucceeded], event.TypeOperationFailed: decode[event.OperationFailed],
	event.TypeOperationCancelled: decode[event.OperationCancelled],
}

func decode[T any](d *bus.Delivery) (any, error) { return bus.Data[T](d.Event) }

func TestStreams_EveryType_IsDelivered(t *testing.T) {
	t.Parallel()
	server := testkit.NATS(t)
	b, err := bus.Connect(t.Context(), bus.Config{URL: server.URL()}, bus.Deps{})
	require.NoError(t, err)
	defer b.Close()
	type arrival struct {
		typ     event.Type
		subject string
		payload any
		err     error
	}
	arrivals := make(chan arrival, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	consumers := []event.ConsumerSpec{
		event.RequestsConsumer(), event.CommandsConsumer("edp"), event.ResultsConsumer(), event.FactsConsumer("test"),
	}
	for _, c := range consumers {
		go func() {
			defer func() { ended <- struct{}{} }()
			_ = b.Consume(ctx, bus.ConsumeConfig{Consumer: c}, func(_ context.Context, batch []*bus.Delivery) {
				for _, d := range batch {
					p, err := decoders[event.Type(d.Event.Type())](d)
					arrivals <- arrival{event.Type(d.Event.Type()), d.Subject, p, err}
					_ = d.Ack()
				}
			})
		}()
	}
	defer func() {
		cancel()
		for range consumers {
			<-ended
		}
	}()

	subject := strings.NewReplacer("{operationType}", "provision", "{worker}", "edp", "{step}", "EDP_Registration")
	var msgs []bus.Message
	for _, e := range event.Contract() {
		id := event.DispatchID(operationID, 7, 1)
		ev, err := bus.New(e.Type, id, event.WorkerSource("edp"), operationID, now, testkit.Payloads()[e.Type])
		require.NoError(t, err)
		msgs = append(msgs, bus.Message{Subject: subject.Replace(e.Subject), Event: ev})
	}
	require.NoError(t, b.Publish(t.Context(), msgs...))
	for range msgs {
		select {
		case a := <-arrivals:
			if a.err != nil {
				t.Errorf("%s: %v", a.typ, a.err)
			} else if diff := cmp.Diff(testkit.Payloads()[a.typ], a.payload); diff != "" {
				t.Errorf("%s (-sent +arrived):\n%s", a.typ, diff)
			}
		case <-time.After(time.Minute):
			t.Fatal("not everything arrives")
		}
	}
}

// FuzzPayload checks that no payload makes a reader panic, and that accepted payloads can be sent again.
func FuzzPayload(f *testing.F) {
	for _, e := range event.Contract() {
		ev, err := bus.New(e.Type, "1", "/s", "", now, testkit.Payloads()[e.Type])
		require.NoError(f, err)
		f.Add(string(e.Type), ev.Data())
	}
	f.Add(string(event.TypeStepRetry), []byte(`{"retryAfter":1e999}`))
	f.Add(string(event.TypeStepExecute), []byte(`{"operation":null,"details":[]}`))
	f.Fuzz(func(t *testing.T, typ string, data []byte) {
		read, ok := decoders[event.Type(typ)]
		if !ok {
			return
		}
		ev, err := bus.New(event.Type(typ), "1", "/s", "", now, map[string]string{})
		require.NoError(t, err)
		ev.DataEncoded = data
		payload, err := read(&bus.Delivery{Event: ev})
		if err != nil {
			return
		}
		if _, err := bus.New(event.Type(typ), "1", "/s", "", now, payload); err != nil {
			t.Errorf("a decoded payload cannot be encoded: %v", err)
		}
	})
}
