package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// An event from outside is committed first, and then delivered to the operation that waits for its key. Three callers deliver events, so that
// none is lost or late:
//
//   - Signal, which has stored the event: the operation waits already;
//   - after, which has stored that an operation waits: the event came early;
//   - the sweep, after an orchestrator was killed between the two, or the row was locked.
//
// The transaction of a delivery writes the operation and marks the event, so an event is delivered once. It is in the row of the operation
// then, and comes with its commands.

// Signal stores valid events and delivers them to operations that wait for them. It returns the number of new events; the others are
// repetitions. After a nil error no event is lost.
func (d *Dispatcher) Signal(ctx context.Context, signals ...event.Signal) (added int, err error) {
	now := d.deps.Now()
	var keys []string
	for i := range signals {
		signals[i].ReceivedAt = now
		keys = append(keys, signals[i].Key)
	}
	err = d.runToCompletion(ctx, func(ctx context.Context) (err error) {
		added, err = d.deps.Store.AddSignals(ctx, signals)
		return err
	})
	if err != nil || added == 0 {
		return 0, err
	}
	d.deliverSoon(ctx, keys)
	return added, nil
}

// Signals stores a batch of events of the bus, and acknowledges them.
func (d *Dispatcher) Signals(ctx context.Context, batch []Delivery) error {
	var signals []event.Signal
	var stored []Delivery
	for _, delivery := range batch {
		signal, err := decodeSignal(delivery)
		if err != nil {
			d.deadLetter(ctx, delivery, err)
			continue
		}
		signals, stored = append(signals, signal), append(stored, delivery)
	}
	if len(signals) == 0 {
		return nil
	}
	_, err := d.Signal(ctx, signals...)
	if err == nil || isTransient(ctx, err) || errors.Is(err, store.ErrTooManySignals) {
		return d.settle(stored, err)
	}
	d.log.Warn("batch of events failed; each event is handled alone", "events", len(signals), "err", err)
	var failed error
	for i, delivery := range stored {
		if _, err := d.Signal(ctx, signals[i]); isDataException(err) {
			d.deadLetter(ctx, delivery, err)
		} else {
			failed = errors.Join(failed, d.settle(stored[i:i+1], err))
		}
	}
	return failed
}

// settle acknowledges the events, or requests their redelivery after an error.
func (d *Dispatcher) settle(stored []Delivery, err error) error {
	for _, delivery := range stored {
		var settled error
		if err != nil {
			settled = delivery.Nak(redeliveryPause)
		} else {
			settled = delivery.Ack()
		}
		if settled != nil {
			d.log.Debug("event not acknowledged", "err", settled)
		}
	}
	if err != nil {
		return fmt.Errorf("events will be redelivered: %w", err)
	}
	return nil
}

// decodeSignal converts a CloudEvent of any type into an event for an operation.
func decodeSignal(delivery Delivery) (event.Signal, error) {
	e, subject := delivery.Message()
	s := event.Signal{Key: event.KeyOfSignal(subject), Source: e.Source(), ID: e.ID()}
	if len(e.DataEncoded) > 0 {
		data, err := bus.Data[json.RawMessage](e)
		if err != nil {
			return s, err
		}
		s.Data = data
	}
	return s, s.Validate()
}

// DeliverSignals delivers the events that have come for operations that wait for them.
func (d *Dispatcher) DeliverSignals(ctx context.Context) error {
	for {
		keys, err := query(ctx, d, func(ctx context.Context) ([]string, error) { return d.deps.Store.SignalledKeys(ctx, d.dueBatch) })
		if err != nil {
			return fmt.Errorf("deliver events: %w", err)
		}
		delivered, err := d.deliver(ctx, keys)
		if err != nil {
			return err
		}
		if delivered == 0 || len(keys) < d.dueBatch {
			return nil
		}
	}
}

// deliverEarly delivers events that came before the operations of committed works have waited for them.
func (d *Dispatcher) deliverEarly(ctx context.Context, works []*work) {
	var keys []string
	for _, w := range works {
		if w.change != nil && w.row.AwaitsEvent() {
			keys = append(keys, w.row.EventKey)
		}
	}
	if len(keys) > 0 {
		d.deliverSoon(ctx, keys)
	}
}

// deliverSoon delivers events with the keys. After an error the sweep delivers them.
func (d *Dispatcher) deliverSoon(ctx context.Context, keys []string) {
	if _, err := d.deliver(ctx, keys); err != nil {
		d.log.Warn("events not delivered; the next sweep delivers them", "err", err)
		d.deps.Wake(d.deps.Now())
	}
}

// deliver delivers the next event of each key to the operation that waits for it, and returns their number.
func (d *Dispatcher) deliver(ctx context.Context, keys []string) (int, error) {
	slices.Sort(keys)
	total := 0
	for page := range slices.Chunk(slices.Compact(keys), d.dueBatch) {
		signals := map[string]store.Signalled{}
		_, _, err := d.wakeBatch(ctx, d.dueBatch, func(ctx context.Context, tx Tx, _ time.Time, _ int) ([]string, error) {
			found, err := tx.Signalled(ctx, page)
			ids := make([]string, 0, len(found))
			for _, e := range found {
				signals[e.OperationID] = e
				ids = append(ids, e.OperationID)
			}
			return ids, err
		}, func(w *work, now time.Time) error {
			found := signals[w.row.Operation.ID]
			if err := w.apply(engine.Signal{Signal: found.Signal}, now); err != nil {
				return err
			}
			w.delivered = &found
			total++
			return nil
		})
		if err != nil {
			return total, fmt.Errorf("deliver events: %w", err)
		}
	}
	return total, nil
}

// noteDelivered marks the events that works deliver.
func (d *Dispatcher) noteDelivered(ctx context.Context, tx Tx, works []*work, now time.Time) error {
	var delivered []store.Signalled
	for _, w := range works {
		if w.delivered != nil {
			delivered = append(delivered, *w.delivered)
		}
	}
	if len(delivered) == 0 {
		return nil
	}
	return tx.SignalsDelivered(ctx, delivered, now)
}
