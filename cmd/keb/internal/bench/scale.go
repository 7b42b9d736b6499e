package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/kyma-project/keb/libs/postgres/pglocal"
)

// ScaleOptions sets how many operations the database holds, and what RunScale measures.
type ScaleOptions struct {
	// Finished and Waiting are the numbers of operations in the full database that have ended and that wait: nine of ten for a time,
	// one of ten for another operation of its instance.
	Finished, Waiting int
	// InFlight lists the numbers of operations in flight.
	InFlight []int
	// Orchestrators lists the numbers of orchestrators in parallel.
	Orchestrators []int
	// Rounds is the number of times each run is repeated, interleaved with the runs that it is compared with.
	Rounds int
	// Seconds is the approximate duration of each run.
	Seconds float64
	// Log receives the logs of all parts.
	Log *slog.Logger
}

// Cases of ScaleOptions.
const (
	caseEmpty     = "empty database"
	caseFull      = "full database"
	caseArchiving = "full database, archiving"
)

// scaleResult is one line of output: a run, or with a ratio the median of a case relative to the first case.
type scaleResult struct {
	Scenario string `json:"scenario"`
	Case     string `json:"case"`
	result
	Archived int64   `json:"archived,omitempty"`
	Relative float64 `json:"relative,omitempty"`
}

type filled struct {
	Scenario string  `json:"scenario"`
	Finished int     `json:"finished"`
	Waiting  int     `json:"waiting"`
	Seconds  float64 `json:"seconds"`
	SizeMB   float64 `json:"sizeMB"`
}

// RunScale compares the throughput on a full database with that on an empty one, and that of several orchestrators with that of one.
// It prints one JSON line per run, and one per comparison.
func RunScale(ctx context.Context, o ScaleOptions, out io.Writer) error {
	return onPostgres(ctx, o.Log, func(dir string, pg *pglocal.Server, log *slog.Logger) error {
		o.Log = log
		s := &scale{ScaleOptions: o, m: &machine{dir: dir, pg: pg, log: log}, print: json.NewEncoder(out)}
		return s.all(ctx)
	})
}

// all runs every comparison in sequence.
func (s *scale) all(ctx context.Context) error {
	if err := s.sizes(ctx); err != nil {
		return err
	}
	return s.replicas(ctx)
}

type scale struct {
	ScaleOptions
	m     *machine
	print *json.Encoder
}

// variant is one case of a comparison.
type variant struct {
	name string
	// database is the database of all runs; empty means a new one for each run.
	database string
	layout   layout
}

// sizes compares a full database with an empty one.
func (s *scale) sizes(ctx context.Context) error {
	const database = "bench_full"
	if err := s.fill(ctx, database); err != nil {
		return err
	}
	// Half of the ended operations are older than keepHalf.
	return s.compare(ctx, []variant{
		{name: caseEmpty},
		{name: caseFull, database: database},
		{name: caseArchiving, database: database, layout: layout{keepOperations: keepHalf, archiveEvery: time.Second}},
	})
}

// replicas compares numbers of orchestrators.
func (s *scale) replicas(ctx context.Context) error {
	variants := make([]variant, len(s.Orchestrators))
	for i, n := range s.Orchestrators {
		variants[i] = variant{name: fmt.Sprintf("orchestrators: %d", n), layout: layout{orchestrators: n}}
	}
	return s.compare(ctx, variants)
}

// compare measures variants in turn, and divides the median of each by the median of the first.
func (s *scale) compare(ctx context.Context, variants []variant) error {
	for _, inFlight := range s.InFlight {
		speeds := make([][]float64, len(variants))
		for range s.Rounds {
			for i, v := range variants {
				r, err := s.run(ctx, v, inFlight)
				if err != nil {
					return fmt.Errorf("%s, %d in flight: %w", v.name, inFlight, err)
				}
				if err := s.print.Encode(r); err != nil {
					return err
				}
				speeds[i] = append(speeds[i], r.StepsPerSecond)
			}
		}
		for i, v := range variants {
			line := struct {
				Scenario       string  `json:"scenario"`
				Case           string  `json:"case"`
				InFlight       int     `json:"inFlight"`
				StepsPerSecond float64 `json:"stepsPerSecond"`
				Relative       float64 `json:"relative"`
			}{"scale, median", v.name, inFlight, median(speeds[i]), round(median(speeds[i])/median(speeds[0]), 3)}
			if err := s.print.Encode(line); err != nil {
				return err
			}
		}
	}
	return nil
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

const countArchivedSQL = `SELECT count(*) FROM orchestrator.archive`

func (s *scale) run(ctx context.Context, v variant, inFlight int) (_ scaleResult, err error) {
	var p *parts
	if v.database == "" {
		p, err = s.m.parts(ctx, "scale")
	} else {
		p, err = s.m.partsOn(ctx, "scale", v.database)
	}
	if err != nil {
		return scaleResult{}, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	r := scaleResult{Scenario: "scale", Case: v.name}
	var before int64
	if v.database != "" {
		if err := p.db.GetContext(ctx, &before, countArchivedSQL); err != nil {
			return r, fmt.Errorf("count archived operations: %w", err)
		}
	}
	load := load{inFlight: inFlight, warmUp: 2 * time.Second, measure: time.Duration(s.Seconds * float64(time.Second))}
	if r.result, err = measure(ctx, s.m, p, load, v.layout); err != nil {
		return r, err
	}
	if err := p.db.GetContext(ctx, &r.Archived, countArchivedSQL); err != nil {
		return r, fmt.Errorf("count archived operations: %w", err)
	}
	r.Archived -= before
	return r, nil
}

// Ended operations are spread evenly over history; half of them are older than keepHalf.
const (
	history  = 60 * 24 * time.Hour
	keepHalf = history / 2
	// fillTimeout bounds each statement that fills the database.
	fillTimeout = time.Hour
)

// fill creates a database with ended and waiting operations, like one after years of use.
func (s *scale) fill(ctx context.Context, database string) (err error) {
	start := time.Now()
	if err := s.m.pg.CreateDatabase(ctx, database, ""); err != nil {
		return err
	}
	p, err := s.m.partsOn(ctx, "fill", database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	i, err := install(ctx, p, s.m.log, layout{}) // creates the schema and stores the definitions
	if err != nil {
		return err
	}
	if err := i.stop(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, fillTimeout)
	defer cancel()
	request, err := json.Marshal(newOperation())
	if err != nil {
		return fmt.Errorf("encode a request: %w", err)
	}
	for _, statement := range []struct {
		query string
		args  []any
	}{
		{endedSQL, []any{s.Finished, history.Seconds()}},
		{waitingSQL, []any{s.Waiting}},
		{requestsSQL, []any{string(request), i.process.Hash()}},
		{instancesSQL, nil},
		{historySQL, []any{stepsPerOperation + 2}},
		{`VACUUM ANALYZE`, nil},
		{`CHECKPOINT`, nil},
	} {
		if err := s.exec(ctx, p.db, statement.query, statement.args...); err != nil {
			return err
		}
	}
	f := filled{Scenario: "fill", Finished: s.Finished, Waiting: s.Waiting, Seconds: round(time.Since(start).Seconds(), 0)}
	if err := p.db.GetContext(ctx, &f.SizeMB, `SELECT pg_database_size(current_database()) / 1048576`); err != nil {
		return fmt.Errorf("measure the database: %w", err)
	}
	return s.print.Encode(f)
}

func (s *scale) exec(ctx context.Context, db *sqlx.DB, query string, args ...any) error {
	if _, err := db.ExecContext(ctx, query, args...); err != nil {
		return fmt.Errorf("fill the database: %w", err)
	}
	return nil
}

const (
	// endedSQL stores ended operations, three per instance. Their ids begin with their time, like the ids that the broker creates.
	endedSQL = `
INSERT INTO orchestrator.operations (id, type, instance_id, plan, created_at, state, version, cursor, stage, step, stage_attempt, step_attempt,
    dispatch, stage_memory, started_at, finished_at, deadline, message, error, details)
SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7' || substr(md5(n::text), 1, 3) || '8' || substr(md5(n::text), 4, 15))::uuid,
    (ARRAY['provision', 'update', 'upgradeKyma'])[1 + n % 3], 'ended-' || n / 3, (ARRAY['azure', 'aws', 'gcp', 'trial'])[1 + n / 3 % 4],
    at, CASE WHEN n % 50 = 0 THEN 'failed' ELSE 'succeeded' END, 18, 19, 8, 0, 1, 0, 1, false, at, at + interval '20 minutes',
    at + interval '1 day', '', CASE WHEN n % 50 = 0 THEN '{"component": "edp", "reason": "broken", "message": "EDP is broken"}'::jsonb END,
    jsonb_build_object('avs', jsonb_build_object('internal', n, 'external', n), 'provisioner', jsonb_build_object('runtimeId', md5(n::text)))
FROM (SELECT n, now() - $2::float8 * n / $1::int * interval '1 second' AS at FROM generate_series($1::int, 1, -1) AS n) v`
	// waitingSQL stores waiting operations: nine of ten wait for a time, one waits for another operation of its instance.
	waitingSQL = `
INSERT INTO orchestrator.operations (id, type, instance_id, plan, created_at, state, version, cursor, stage, step, stage_attempt, step_attempt,
    dispatch, stage_memory, started_at, deadline, due_at, first_tried_at, message, details)
SELECT gen_random_uuid(), CASE WHEN turn THEN 'update' ELSE 'provision' END, 'waiting-' || CASE WHEN turn THEN n - 1 ELSE n END, 'azure',
    now() - n * interval '1 second', CASE WHEN turn THEN 'pending' ELSE 'in progress' END, 9, CASE WHEN turn THEN 0 ELSE 10 END,
    CASE WHEN turn THEN 0 ELSE 1 END, 0, 1, 1, 1, false, CASE WHEN NOT turn THEN now() END, CASE WHEN NOT turn THEN now() + interval '2 days' END,
    CASE WHEN NOT turn THEN now() + interval '1 day' + n * interval '1 second' END, CASE WHEN NOT turn THEN now() END, 'still creating', '{}'
FROM (SELECT n, n % 10 = 0 AS turn FROM generate_series(1, $1::int) AS n) v`
	requestsSQL = `
INSERT INTO orchestrator.requests (operation_id, body, definition)
SELECT o.id, $1::jsonb || jsonb_build_object('id', o.id, 'instanceId', o.instance_id, 'type', o.type), $2 FROM orchestrator.operations o`
	instancesSQL = `
INSERT INTO orchestrator.instances (instance_id, running, waiting, details)
SELECT o.instance_id, (array_agg(o.id) FILTER (WHERE o.state = 'in progress'))[1], count(*) FILTER (WHERE o.state = 'pending'),
    (array_agg(o.details) FILTER (WHERE o.state = 'succeeded'))[1]
FROM orchestrator.operations o GROUP BY o.instance_id`
	historySQL = `
INSERT INTO orchestrator.history (operation_id, cursor, stage, step, stage_attempt, step_attempt, started_at, finished_at, kind, worker_version)
SELECT o.id, c, c / 3, c % 3, 1, 1, o.created_at + c * interval '1 minute', o.created_at + c * interval '1 minute', 'succeeded', '1.0.0'
FROM orchestrator.operations o, generate_series(1, $1::int) AS c WHERE o.finished_at IS NOT NULL`
)
