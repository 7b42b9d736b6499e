package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// TallyKey is the key of a counter. For operations Worker and Step are empty, and Outcome is the final state or "started".
type TallyKey struct {
	Minute       time.Time
	Type         event.OperationType
	Worker, Step string
	Outcome      string
}

func (k TallyKey) compare(o TallyKey) int {
	return cmp.Or(k.Minute.Compare(o.Minute), cmp.Compare(k.Type, o.Type), cmp.Compare(k.Worker, o.Worker), cmp.Compare(k.Step, o.Step),
		cmp.Compare(k.Outcome, o.Outcome))
}

const (
	// addTallySQL locks rows in key order, which prevents deadlocks between orchestrators.
	addTallySQL = `
INSERT INTO orchestrator.tally AS t (minute, type, worker, step, outcome, n)
SELECT * FROM unnest($1::timestamptz[], $2::text[], $3::text[], $4::text[], $5::text[], $6::int8[])
ON CONFLICT (minute, type, worker, step, outcome) DO UPDATE SET n = t.n + EXCLUDED.n`
	// durationsSQL relies on tally_pkey.
	durationsSQL = `
SELECT worker, step, sum(n) FILTER (WHERE outcome = '` + TallyTimed + `')::int8, COALESCE(sum(n) FILTER (WHERE outcome = '` + TallyTook + `'), 0)::int8
FROM orchestrator.tally WHERE minute >= $1 AND outcome IN ('` + TallyTimed + `', '` + TallyTook + `') GROUP BY worker, step
HAVING count(*) FILTER (WHERE outcome = '` + TallyTimed + `') > 0`
	// tallySQL relies on tally_pkey.
	tallySQL = `SELECT minute, type, worker, step, outcome, n FROM orchestrator.tally WHERE minute >= $1`
)

// Outcomes of counters that measure: TallyTimed counts executions of steps, and TallyTook adds up their durations in milliseconds.
const (
	TallyTimed = "timed"
	TallyTook  = "took_ms"
)

// StepName names a step of a worker.
type StepName struct{ Worker, Step string }

// StepDuration is the usual duration of one execution of a step.
type StepDuration struct {
	Executions int64
	Mean       time.Duration
}

// StepDurations returns the durations of the executions since a minute.
func (s *Store) StepDurations(ctx context.Context, since time.Time) (map[StepName]StepDuration, error) {
	rows, err := s.read.QueryContext(ctx, durationsSQL, since)
	if err != nil {
		return nil, fmt.Errorf("read durations of steps: %w", err)
	}
	defer rows.Close()
	durations := map[StepName]StepDuration{}
	for rows.Next() {
		var name StepName
		var n, took int64
		if err := rows.Scan(&name.Worker, &name.Step, &n, &took); err != nil {
			return nil, fmt.Errorf("read durations of steps: %w", err)
		}
		durations[name] = StepDuration{Executions: n, Mean: time.Duration(took/max(n, 1)) * time.Millisecond}
	}
	return durations, rows.Err()
}

// AddTally adds to the counters.
func (s *Store) AddTally(ctx context.Context, counts map[TallyKey]int64) error {
	keys := make([]TallyKey, 0, len(counts))
	for k := range counts {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, TallyKey.compare)
	var minute, kind, worker, step, outcome, n array
	for _, k := range keys {
		minute.time(k.Minute)
		kind.text(string(k.Type))
		worker.text(clean(k.Worker))
		step.text(clean(k.Step))
		outcome.text(clean(k.Outcome))
		n.int(counts[k])
	}
	if _, err := s.read.ExecContext(ctx, addTallySQL, &minute, &kind, &worker, &step, &outcome, &n); err != nil {
		return fmt.Errorf("add to the tally: %w", err)
	}
	return nil
}

// ForgetTally deletes the counters before a time.
func (s *Store) ForgetTally(ctx context.Context, before time.Time) error {
	if _, err := s.read.ExecContext(ctx, `DELETE FROM orchestrator.tally WHERE minute < $1`, before); err != nil {
		return fmt.Errorf("forget the tally: %w", err)
	}
	return nil
}

// Tally returns the counters since a minute.
func (s *Store) Tally(ctx context.Context, since time.Time) (map[TallyKey]int64, error) {
	rows, err := s.read.QueryContext(ctx, tallySQL, since)
	if err != nil {
		return nil, fmt.Errorf("read the tally: %w", err)
	}
	defer rows.Close()
	counts := map[TallyKey]int64{}
	for rows.Next() {
		var k TallyKey
		var n int64
		if err := rows.Scan(&k.Minute, &k.Type, &k.Worker, &k.Step, &k.Outcome, &n); err != nil {
			return nil, fmt.Errorf("read the tally: %w", err)
		}
		k.Minute = k.Minute.UTC()
		counts[k] = n
	}
	return counts, rows.Err()
}
