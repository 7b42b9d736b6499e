package store

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/kyma-project/keb/libs/event"
)

// MaxEnded is the maximum number of ended operations that are counted per state.
const MaxEnded = 200_000

// samples is the maximum number of samples per group.
const samples = 5

var (
	// endedSQL uses only operations_ended.
	endedSQL = fmt.Sprintf(`
SELECT s.state, c.type, count(*) FROM unnest(ARRAY['succeeded', 'failed', 'cancelled']) AS s(state),
LATERAL (SELECT o.type FROM orchestrator.operations o
    WHERE o.state = s.state AND o.state IN ('succeeded', 'failed', 'cancelled') LIMIT %d) c
GROUP BY s.state, c.type`, MaxEnded+1)
	// samplesSQL relies on the indexes of censusSQL. It partitions operations by id into as many parts as there are samples, and finds the
	// oldest operation of each part as a minimum over time and id, without sorting.
	// Operations that poll or wait for an event count only if they do so since the time of their step or longer, or if their command is in
	// flight without a worker.
	samplesSQL = fmt.Sprintf(`
SELECT v.state, v.type, v.reason, v.definition, v.stage, v.step, v.reason_step, v.in_flight, count(*),
    min((extract(epoch FROM v.since) * 1000000)::bigint::text || ' ' || v.id COLLATE "C")
FROM (
    SELECT o.id::text AS id, o.state, o.type, CASE WHEN (SELECT n.running FROM orchestrator.instances n WHERE n.instance_id = o.instance_id) IS NULL
        THEN %[5]s ELSE 'instance_busy' END AS reason, '' AS definition, 0 AS stage, 0 AS step, 0 AS reason_step, false AS in_flight,
        o.created_at AS since, get_byte(uuid_send(o.id), 15) %% %[1]d AS part
    FROM orchestrator.operations o WHERE o.state = 'pending'
    UNION ALL
    SELECT o.id::text, o.state, o.type, %[2]s, (SELECT r.definition FROM orchestrator.requests r WHERE r.operation_id = o.id), o.stage, o.step,
        %[4]s, o.due_at IS NULL AND o.hold_id IS NULL, %[3]s, get_byte(uuid_send(o.id), 15) %% %[1]d
    FROM orchestrator.operations o WHERE o.state = 'in progress'
) v LEFT JOIN unnest($1::text[], $2::int4[], $3::int4[], $4::timestamptz[]) AS p(definition, stage, step, since)
    ON v.reason IN ('polling', 'event') AND p.definition = v.definition AND p.stage = v.stage AND p.step = v.reason_step
WHERE v.reason NOT IN ('polling', 'event') OR v.since <= p.since OR v.in_flight
    AND (v.definition, v.stage, v.step) IN (SELECT * FROM unnest($5::text[], $6::int4[], $7::int4[]))
GROUP BY v.state, v.type, v.reason, v.definition, v.stage, v.step, v.reason_step, v.in_flight, v.part`, samples, reasonSQL, reasonSinceSQL, reasonStepSQL, pendingReasonSQL)
)

// Ended counts ended operations by state and type.
type Ended struct {
	State event.OperationState
	Type  event.OperationType
	Count int
	// Capped means that the state has more operations than are counted.
	Capped bool
}

// Ended counts the ended operations, up to MaxEnded per state.
func (s *Store) Ended(ctx context.Context) ([]Ended, error) {
	rows, err := s.read.QueryContext(ctx, endedSQL)
	if err != nil {
		return nil, fmt.Errorf("count ended operations: %w", err)
	}
	defer rows.Close()
	var ended []Ended
	total := map[event.OperationState]int{}
	for rows.Next() {
		var e Ended
		if err := rows.Scan(&e.State, &e.Type, &e.Count); err != nil {
			return nil, fmt.Errorf("count ended operations: %w", err)
		}
		total[e.State] += e.Count
		ended = append(ended, e)
	}
	for i := range ended {
		ended[i].Capped = total[ended[i].State] > MaxEnded
	}
	return ended, rows.Err()
}

// Sample is a part of the operations at the same position that wait for the same reason. Plan and Oldest are not set.
type Sample struct {
	Group
	// ID is the operation that has waited longest, since Since.
	ID string
}

// PollsSince selects the operations that poll at a place since a time or longer.
type PollsSince struct {
	Place
	Since time.Time
}

// Samples returns the unfinished operations in a few parts of each Group. Operations that poll or wait for an event are included only if polls
// selects them, or if their commands are in flight at one of the unserved places, which have no live worker.
func (s *Store) Samples(ctx context.Context, polls []PollsSince, unserved Places) ([]Sample, error) {
	var found []Sample
	var definitions, stages, steps, times array
	var unservedDefinitions, unservedStages, unservedSteps array
	for _, p := range unserved {
		unservedDefinitions.text(p.Definition)
		unservedStages.int(int64(p.Stage))
		unservedSteps.int(int64(p.Step))
	}
	for _, p := range polls {
		definitions.text(p.Definition)
		stages.int(int64(p.Stage))
		steps.int(int64(p.Step))
		times.time(p.Since)
	}
	err := census(ctx, s.read, func(tx *sqlx.Tx) error {
		found = nil
		rows, err := tx.QueryContext(ctx, samplesSQL, &definitions, &stages, &steps, &times, &unservedDefinitions, &unservedStages, &unservedSteps)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var sample Sample
			var definition sql.NullString
			var text string
			err := rows.Scan(&sample.State, &sample.Type, &sample.Reason, &definition, &sample.Stage, &sample.Step, &sample.ReasonStep,
				&sample.InFlight, &sample.Count, &text)
			if err != nil {
				return err
			}
			micros, id, _ := strings.Cut(text, " ")
			n, err := strconv.ParseInt(micros, 10, 64)
			if err != nil {
				return err
			}
			sample.Definition, sample.ID, sample.Since = definition.String, id, time.UnixMicro(n).UTC()
			found = append(found, sample)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("find operations that wait: %w", err)
	}
	return found, nil
}

// oldestSQL relies on operations_type, and reads one row per type.
const oldestSQL = `
SELECT v.type, o.id::text, o.state, o.created_at FROM unnest($1::text[], $2::timestamptz[]) AS v(type, created_at),
LATERAL (SELECT o.id, o.state, o.created_at FROM orchestrator.operations o
    WHERE o.type = v.type AND o.created_at >= v.created_at AND o.state IN ('pending', 'in progress')
    ORDER BY o.created_at, o.arrived LIMIT 1) o`

// Oldest is the oldest unfinished operation of a type.
type Oldest struct {
	Type      event.OperationType
	ID        string
	State     event.OperationState
	CreatedAt time.Time
}

// Oldest returns the oldest unfinished operation of each type. since holds a lower bound of its arrival by type.
func (s *Store) Oldest(ctx context.Context, since map[event.OperationType]time.Time) ([]Oldest, error) {
	var kind, created array
	for _, t := range event.OperationTypes() {
		if at, ok := since[t]; ok {
			kind.text(string(t))
			created.time(at)
		}
	}
	return collect(ctx, s.read, "find the oldest operations", oldestSQL, []any{&kind, &created}, func(rows *sql.Rows, o *Oldest) error {
		if err := rows.Scan(&o.Type, &o.ID, &o.State, &o.CreatedAt); err != nil {
			return err
		}
		o.CreatedAt = o.CreatedAt.UTC()
		return nil
	})
}
