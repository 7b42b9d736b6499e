package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// MaxSignals is the maximum number of events that no operation has waited for yet.
const MaxSignals = 100_000

// ErrTooManySignals means that there are MaxSignals.
var ErrTooManySignals = fmt.Errorf("%d events wait for operations already", MaxSignals)

const (
	// addSignalsSQL relies on signals_undelivered and signals_key_source_id_key.
	addSignalsSQL = `
WITH f AS MATERIALIZED (
    SELECT count(*) >= $6 AS is_full FROM (SELECT FROM orchestrator.signals WHERE delivered_at IS NULL LIMIT $6) s
), i AS (
    INSERT INTO orchestrator.signals (key, source, id, received_at, data)
    SELECT v.key, v.source, v.id, v.received_at, v.data::json
    FROM f, unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[], $5::text[]) WITH ORDINALITY AS v(key, source, id, received_at, data, n)
    WHERE NOT f.is_full ORDER BY v.n ON CONFLICT (key, source, id) DO NOTHING RETURNING 1
) SELECT f.is_full, (SELECT count(*) FROM i) FROM f`
	// signalledKeysSQL relies on signals_undelivered and operations_event.
	signalledKeysSQL = `
SELECT s.key FROM orchestrator.signals s JOIN orchestrator.operations o ON o.event_key = s.key
WHERE s.delivered_at IS NULL AND o.event_key IS NOT NULL AND o.due_at IS NOT NULL AND o.queue IS NULL`
	// signalledSQL relies on operations_event and signals_undelivered.
	signalledSQL = `
SELECT o.id::text, s.n, s.key, s.source, s.id, s.received_at, s.data
FROM orchestrator.operations o, LATERAL (
    SELECT * FROM orchestrator.signals s WHERE s.key = o.event_key AND s.delivered_at IS NULL ORDER BY s.n LIMIT 1
) s
WHERE o.event_key = ANY($1::text[]) AND o.event_key IS NOT NULL AND o.due_at IS NOT NULL AND o.queue IS NULL
ORDER BY o.condition_since, o.id FOR UPDATE OF o SKIP LOCKED`
	signalsDeliveredSQL = `
UPDATE orchestrator.signals s SET delivered_at = $3, operation_id = v.id, data = NULL
FROM unnest($1::bigint[], $2::uuid[]) AS v(n, id) WHERE s.n = v.n AND s.delivered_at IS NULL`
	// dropSignalsSQL relies on signals_received.
	dropSignalsSQL = `
DELETE FROM orchestrator.signals WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM orchestrator.signals WHERE received_at < $1 ORDER BY received_at LIMIT $2))`
)

// Signalled is an event for an operation that waits for it.
type Signalled struct {
	OperationID string
	// N is the number of the event. Events with the same key are delivered in the order of their numbers.
	N      int64
	Signal event.Signal
}

// AddSignals stores valid events in their order, without repetitions, and returns how many are new. The error is ErrTooManySignals if there
// are MaxSignals.
func (s *Store) AddSignals(ctx context.Context, signals []event.Signal) (added int, err error) {
	var key, source, id, received, data array
	for i := range signals {
		e := &signals[i]
		key.text(e.Key)
		source.text(e.Source)
		id.text(e.ID)
		received.time(e.ReceivedAt)
		data.textOrNull(string(e.Data))
	}
	var full bool
	row := s.commit.QueryRowContext(ctx, addSignalsSQL, &key, &source, &id, &received, &data, MaxSignals)
	if err := row.Scan(&full, &added); err != nil {
		return 0, fmt.Errorf("write events: %w", err)
	}
	if full {
		return 0, ErrTooManySignals
	}
	return added, nil
}

// SignalledKeys returns up to limit keys of events that have come for operations that wait for them.
func (s *Store) SignalledKeys(ctx context.Context, limit int) ([]string, error) {
	var keys []string
	if err := s.read.SelectContext(ctx, &keys, "SELECT DISTINCT key FROM ("+signalledKeysSQL+" LIMIT $1) k", limit); err != nil {
		return nil, fmt.Errorf("look for events: %w", err)
	}
	return keys, nil
}

// Signalled locks the operations that wait for an event with one of the keys that has come, and returns their events. Of several operations
// that wait for a key, it returns the one that has waited longest. It skips operations that another transaction has locked.
func (t *Tx) Signalled(ctx context.Context, keys []string) (found []Signalled, err error) {
	var list array
	for _, key := range keys {
		list.text(key)
	}
	rows, err := t.tx.QueryContext(ctx, signalledSQL, &list)
	if err != nil {
		return nil, fmt.Errorf("look for events: %w", err)
	}
	defer rows.Close()
	taken := map[string]bool{}
	for rows.Next() {
		var e Signalled
		var data sql.NullString
		if err := rows.Scan(&e.OperationID, &e.N, &e.Signal.Key, &e.Signal.Source, &e.Signal.ID, &e.Signal.ReceivedAt, &data); err != nil {
			return nil, fmt.Errorf("look for events: %w", err)
		}
		if taken[e.Signal.Key] {
			continue
		}
		taken[e.Signal.Key] = true
		e.Signal.ReceivedAt = e.Signal.ReceivedAt.UTC()
		if data.Valid {
			e.Signal.Data = []byte(data.String)
		}
		found = append(found, e)
	}
	return found, rows.Err()
}

// SignalsDelivered stores that events were delivered, and deletes their data, which the operations have. The error is ErrConflict if one of
// them was delivered to another operation.
func (t *Tx) SignalsDelivered(ctx context.Context, delivered []Signalled, now time.Time) error {
	var n, id array
	for i := range delivered {
		n.int(delivered[i].N)
		id.raw(delivered[i].OperationID)
	}
	result, err := t.tx.ExecContext(ctx, signalsDeliveredSQL, &n, &id, now)
	if err != nil {
		return fmt.Errorf("write delivered events: %w", err)
	}
	if written, err := result.RowsAffected(); err != nil || int(written) != len(delivered) {
		return fmt.Errorf("write delivered events: %w", ErrConflict)
	}
	return nil
}

// DropSignals deletes up to limit events that were received before a time, oldest first, and returns their number.
func (s *Store) DropSignals(ctx context.Context, before time.Time, limit int) (int64, error) {
	result, err := s.read.ExecContext(ctx, dropSignalsSQL, before, limit)
	if err != nil {
		return 0, fmt.Errorf("delete old events: %w", err)
	}
	return result.RowsAffected()
}
