package simulation_test

import (
	"context"
	"slices"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// storedSignal is an event from outside in the store in memory.
type storedSignal struct {
	n      int64
	signal event.Signal
	// delivered is the id of the operation that has it; empty for none.
	delivered string
}

// AddSignals implements dispatch.SignalStore.
func (r *ram) AddSignals(_ context.Context, signals []event.Signal) (added int, err error) {
	fault := r.access(callSignals)
	if fault == faultFails {
		return 0, errAway
	}
	for _, s := range signals {
		known := slices.ContainsFunc(r.signals, func(o *storedSignal) bool {
			return o.signal.Key == s.Key && o.signal.Source == s.Source && o.signal.ID == s.ID
		})
		if !known || r.bug == bugRepetitionDelivered {
			r.signals = append(r.signals, &storedSignal{n: int64(len(r.signals) + 1), signal: s})
			added++
		}
	}
	if fault == faultSilent {
		return 0, errAway
	}
	return added, nil
}

// next returns the first event with a key that was not delivered; nil if there is none.
func (r *ram) nextSignal(key string) *storedSignal {
	for _, s := range r.signals {
		if s.signal.Key == key && s.delivered == "" {
			return s
		}
	}
	return nil
}

// SignalledKeys implements dispatch.SignalStore.
func (r *ram) SignalledKeys(_ context.Context, limit int) (keys []string, err error) {
	for _, s := range r.rows {
		if s.row.AwaitsEvent() && r.nextSignal(s.row.EventKey) != nil && !slices.Contains(keys, s.row.EventKey) && len(keys) < limit {
			keys = append(keys, s.row.EventKey)
		}
	}
	return keys, nil
}

func (tx *ramTx) Signalled(_ context.Context, keys []string) (found []store.Signalled, err error) {
	var waiting []*store.Row
	for _, s := range tx.rows {
		if s.row.AwaitsEvent() && slices.Contains(keys, s.row.EventKey) {
			waiting = append(waiting, &s.row)
		}
	}
	slices.SortStableFunc(waiting, func(a, b *store.Row) int {
		if c := a.ConditionSince.Compare(b.ConditionSince); c != 0 {
			return c
		}
		return byID(a, b)
	})
	taken := map[string]bool{}
	for _, row := range waiting {
		if s := tx.nextSignal(row.EventKey); s != nil && !taken[row.EventKey] {
			taken[row.EventKey] = true
			found = append(found, store.Signalled{OperationID: row.Operation.ID, N: s.n, Signal: s.signal})
		}
	}
	return found, nil
}

func (tx *ramTx) SignalsDelivered(_ context.Context, delivered []store.Signalled, _ time.Time) error {
	for _, d := range delivered {
		s := tx.signals[d.N-1]
		if s.delivered != "" {
			return store.ErrConflict
		}
		if tx.bug != bugDeliveredAgain {
			tx.writes = append(tx.writes, func() { s.delivered = d.OperationID })
		}
	}
	return nil
}
