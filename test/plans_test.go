package test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/osb/osbclient"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/postgres/pglocal"
	"github.com/kyma-project/keb/test/internal/harness"
)

// planned is the number of additional instances, and bigTable the number of rows from which sequential scans are forbidden.
const (
	planned  = 5000
	bigTable = 1000
	// countsEnded is a part of the one allowed statement, which counts ended operations for the overview.
	countsEnded = "LIMIT 200001"
)

// The rows of tables after years, with three operations for each instance.
var plannedRows = []string{
	`INSERT INTO broker.instances (id, service_id, plan_id, plan_name, context, runtime, parameters, effective_parameters, dashboard_url,
		request_hash, operation_id, created_at)
	SELECT 'old-' || n, 's', 'p', 'azure', '{"globalAccountId": "ga"}', '{"shootName": "c"}', '{}', '{}', '', 'h', n || '-3', now() FROM generate_series(1, $1::int) AS n`,
	`INSERT INTO broker.operations (id, instance_id, type, state, created_at, updated_at, heard_at, published_at)
	SELECT n || '-' || o, 'old-' || n, 'update', 'succeeded', now(), now(), now(), now() FROM generate_series(1, $1::int) AS n, generate_series(1, 3) AS o`,
	`INSERT INTO broker.runtimes (instance_id, state, service_id, plan_id, plan_name, global_account_id, subscription_account_id, subaccount_id,
		platform_region, region, provider, shoot_name, created_at)
	SELECT 'old-' || n, 'succeeded', 's', 'p', 'azure', 'ga-' || n / 10, 'ga', 'sa-' || n, 'cf-eu10', 'r', 'azure', 'c-' || n, now() FROM generate_series(1, $1::int) AS n`,
	`INSERT INTO broker.credentials (instance_id, name, sealed) SELECT 'old-' || n, 'service-manager', 'k1:x' FROM generate_series(1, $1::int) AS n`,
	`INSERT INTO broker.tombstones (instance_id, deleted_at) SELECT 'gone-' || n, now() FROM generate_series(1, $1::int) AS n`,
	`INSERT INTO orchestrator.operations (id, type, instance_id, plan, created_at, state, version, cursor, stage, step, stage_attempt, step_attempt,
		dispatch, stage_memory, started_at, finished_at, deadline)
	SELECT gen_random_uuid(), 'update', 'old-' || n / 3, 'azure', now() - n * interval '1 minute', 'succeeded', 9, 20, 1, 0, 1, 0, 0, false, now(),
		now() - n * interval '1 minute', now() FROM generate_series(1, 3 * $1::int) AS n`,
	`INSERT INTO orchestrator.instances (instance_id) SELECT 'old-' || n FROM generate_series(1, $1::int) AS n`,
	`INSERT INTO orchestrator.requests (operation_id, body, definition)
	SELECT o.id, '{}', (SELECT min(hash) FROM orchestrator.definitions) FROM orchestrator.operations o WHERE $1::int > 0`,
	`INSERT INTO orchestrator.history (operation_id, cursor, stage, step, stage_attempt, step_attempt, started_at, finished_at, kind)
	SELECT o.id, c, 0, 0, 1, 1, now(), now(), 'succeeded' FROM orchestrator.operations o, generate_series(1, 5) AS c WHERE $1::int > 0`,
	`INSERT INTO orchestrator.archive (operation_id, finished_at, operation, request, history)
	SELECT gen_random_uuid(), now(), '{}', '{}', '[]' FROM generate_series(1, $1::int) AS n`,
}

// plan is a node of a plan, as EXPLAIN shows it.
type plan struct {
	Type     string `json:"Node Type"`
	Relation string `json:"Relation Name"`
	Schema   string `json:"Schema"`
	Plans    []plan `json:"Plans"`
}

// whole returns the tables that a plan scans sequentially.
func (p *plan) whole() []string {
	var tables []string
	if p.Type == "Seq Scan" {
		tables = append(tables, p.Schema+"."+p.Relation)
	}
	for i := range p.Plans {
		tables = append(tables, p.Plans[i].whole()...)
	}
	return tables
}

// statement is one that Postgres has executed.
type statement struct {
	Text string `json:"Query Text"`
	Plan plan   `json:"Plan"`
}

// executed returns the statements in the log of a server with auto_explain, from an offset.
func executed(t *testing.T, file string, from int) []statement {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	// The server is still writing, so only complete lines are read.
	text = text[from:]
	text = text[bytes.IndexByte(text, '\n')+1 : bytes.LastIndexByte(text, '\n')+1]
	var all []statement
	for line := range bytes.Lines(text) {
		var entry struct{ Message string }
		if err := json.Unmarshal(line, &entry); err != nil {
			t.Fatalf("the log of Postgres: %v: %.200s", err, line)
		}
		_, explained, ok := strings.Cut(entry.Message, " plan:\n")
		if !ok {
			continue
		}
		var s statement
		if err := json.Unmarshal([]byte(explained), &s); err != nil {
			t.Fatalf("a plan: %v: %.200s", err, explained)
		}
		all = append(all, s)
	}
	return all
}

// The server explains every statement during a provisioning, an update, a deprovisioning and requests of operators.
func TestPlans_Statements_UseIndexes(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "postgres")
	log := filepath.Join(dir, "log", "log.json")
	server, err := pglocal.Start(t.Context(), pglocal.Config{DataDir: dir, Settings: map[string]string{
		"shared_preload_libraries": "auto_explain", "auto_explain.log_min_duration": "0", "auto_explain.log_format": "json",
		"auto_explain.log_verbose": "on", "auto_explain.log_nested_statements": "on", "auto_explain.log_parameter_max_length": "0",
		"logging_collector": "on", "log_destination": "jsonlog", "log_filename": "log", "log_rotation_age": "0",
		"log_rotation_size": "0",
	}})
	if errors.Is(err, pglocal.ErrNoBinaries) {
		t.Skip("needs the programs of PostgreSQL with auto_explain on this machine; .ci/run installs them")
	}
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := server.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	require.NoError(t, server.CreateDatabase(t.Context(), "keb", ""))
	db, err := postgres.Open(t.Context(), postgres.Config{URL: server.URL("keb"), ApplicationName: "test"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	sys := harness.Start(t, harness.Options{Env: []string{"KEB_DATABASE_URL=" + server.URL("keb")}})
	for _, query := range plannedRows {
		if _, err := db.Exec(query, planned); err != nil {
			t.Fatalf("%v\n%s", err, query)
		}
	}
	_, err = db.Exec(`VACUUM ANALYZE`)
	require.NoError(t, err)
	info, err := os.Stat(log)
	require.NoError(t, err)

	o := harness.Azure()
	sys.PollEnd(o, sys.Provision(o), osb.StateSucceeded, limit)
	sys.PollEnd(o, sys.Update(o, osbclient.Change{Parameters: map[string]any{"autoScalerMax": 12}}), osb.StateSucceeded, limit)
	id := sys.Deprovision(o)
	sys.PollEnd(o, id, osb.StateSucceeded, limit)
	for _, path := range []string{
		"/operations", "/operations/" + id, "/operations?state=failed", "/operations?q=" + o.InstanceID[:8], "/overview", "/stuck", "/throughput", "/workers",
		"/orchestrations", "/actions", "/events?operation_ids=" + id,
	} {
		harness.Get[json.RawMessage](sys, "http://"+sys.OperatorAddr+path)
	}
	sys.Runtimes(o, "")

	big := bigTables(t, db)
	for _, table := range []string{"broker.instances", "broker.operations", "broker.runtimes", "orchestrator.operations", "orchestrator.history"} {
		if !slices.Contains(big, table) {
			t.Errorf("%s is not big", table)
		}
	}
	seen := map[string]bool{}
	all := executed(t, log, int(info.Size()))
	for _, s := range all {
		text := strings.Join(strings.Fields(s.Text), " ")
		if seen[text] {
			continue
		}
		seen[text] = true
		if strings.Contains(text, countsEnded) {
			continue
		}
		for _, table := range s.Plan.whole() {
			if slices.Contains(big, table) {
				t.Errorf("%s is read as a whole by: %.400s", table, text)
			}
		}
	}
	if len(all) < 150 || len(seen) < 40 {
		t.Errorf("only %d executions of %d statements were seen", len(all), len(seen))
	}
	t.Logf("%d executions of %d statements", len(all), len(seen))
}

// bigTables are the tables that are too big to be read as a whole.
func bigTables(t *testing.T, db *sqlx.DB) []string {
	t.Helper()
	var tables []string
	err := db.Select(&tables, fmt.Sprintf(`
SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND n.nspname IN ('broker', 'orchestrator') AND c.reltuples >= %d`, bigTable))
	require.NoError(t, err)
	return tables
}
