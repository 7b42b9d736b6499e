package store

import (
	"context"
	"embed"
	"encoding/json"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/postgres/pgtest"
	"github.com/kyma-project/keb/services/broker/internal/instance"
)

// until returns the migrations up to and including last.
func until(t testing.TB, files embed.FS, last string) fs.FS {
	t.Helper()
	out := fstest.MapFS{}
	entries, err := files.ReadDir("migrations")
	require.NoError(t, err)
	for _, e := range entries {
		if e.Name()[:5] > last {
			continue
		}
		raw, err := files.ReadFile("migrations/" + e.Name())
		require.NoError(t, err)
		out[e.Name()] = &fstest.MapFile{Data: raw}
	}
	return out
}

// first creates the schema of the first release, with data of that release.
func first(t testing.TB) *Store {
	t.Helper()
	empty := func(context.Context, *sqlx.DB) error { return nil }
	db, err := postgres.Open(t.Context(), postgres.Config{URL: pgtest.Database(t, empty), MaxOpen: 4})
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	require.NoError(t, postgres.Migrate(t.Context(), db, Schema, until(t, migrations, "00001")))
	s := New(db, time.Minute)
	for _, i := range []string{"ready", "coming", "failed", "going", "incomplete", "undead"} {
		exec(t, s, `INSERT INTO broker.instances (id, service_id, plan_id, plan_name, context, runtime, parameters, effective_parameters,
				dashboard_url, request_hash, operation_id, created_at, deleted_at)
			VALUES ($1, 's', 'p', 'trial', $2, $3, '{"name":"n"}', '{"name":"n","autoScalerMax":20}', 'u', 'h', $1 || '-2', $4,
				CASE WHEN $1 = 'incomplete' THEN now() END)`, i,
			`{"globalAccountId":"ga-`+i+`","subaccountId":"sa","userId":"u","platformRegion":"cf-eu10"}`,
			`{"name":"n","shootName":"shoot","shootDomain":"d","provider":"azure","region":"eastus"}`, time.Unix(1000, 0))
		exec(t, s, `INSERT INTO broker.credentials VALUES ($1, 'service-manager', 'v1.k1.sealed')`, i)
	}
	for _, did := range [][3]string{
		{"ready-2", "provision", "succeeded"},
		{"coming-2", "provision", "in progress"},
		{"failed-2", "provision", "failed"},
		{"going-1", "provision", "succeeded"},
		{"going-2", "deprovision", "pending"},
		{"incomplete-2", "deprovision", "succeeded"},
		{"undead-2", "deprovision", "failed"},
		{"gone-1", "provision", "succeeded"},
		{"gone-2", "deprovision", "succeeded"},
	} {
		instanceID, _, _ := strings.Cut(did[0], "-")
		exec(t, s, `INSERT INTO broker.operations (id, instance_id, type, state, cursor, created_at, updated_at, heard_at, request)
			VALUES ($1, $2, $3, $4, 5, $5, $5, $5, '{}')`, did[0], instanceID, did[1], did[2], time.Unix(2000, 0))
	}
	exec(t, s, `INSERT INTO broker.tombstones VALUES ('gone', now())`)
	return s
}

func TestMigrate_FirstRelease_KeepsItsData(t *testing.T) {
	t.Parallel()
	s := first(t)
	require.NoError(t, Migrate(t.Context(), s.db))
	found, total, err := s.Runtimes(t.Context(), RuntimeFilter{Limit: 100})
	if err != nil || total != 6 {
		t.Fatalf("%d runtimes, %v", total, err)
	}
	states := map[string]RuntimeState{}
	for _, r := range found {
		states[r.InstanceID] = r.State
		if r.GlobalAccountID != "ga-"+r.InstanceID || r.SubscriptionAccountID != r.GlobalAccountID || r.Region != "eastus" || len(r.Operations) == 0 {
			t.Errorf("%s: %+v", r.InstanceID, r)
		}
	}
	for id, want := range map[string]RuntimeState{
		"ready": RuntimeSucceeded, "coming": RuntimeProvisioning, "failed": RuntimeFailed, "going": RuntimeDeprovisioning,
		"incomplete": RuntimeIncomplete, "undead": RuntimeFailed,
	} {
		if states[id] != want {
			t.Errorf("%s is %q, want %q", id, states[id], want)
		}
	}
	i, err := s.Instance(t.Context(), "ready")
	if err != nil || i.MaintenanceVersion != "" || !i.ExpiredAt.IsZero() || string(i.Effective) != `{"name":"n","autoScalerMax":20}` {
		t.Errorf("instance is %+v, %v", i, err)
	}

	// The new functions work on the old data.
	i.Effective = json.RawMessage(`{"name":"n","autoScalerMax":30}`)
	in(t, s, func(ctx context.Context, tx *Tx) error {
		if other, err := tx.OtherTrial(ctx, "ga-ready", "another"); err != nil || !other {
			t.Errorf("another trial: %t, %v", other, err)
		}
		r := Request{Operation: i.Event("ready-3", event.Update, nil), At: time.Unix(3000, 0)}
		if err := tx.InsertOperation(ctx, r); err != nil {
			return err
		}
		return tx.InsertUpdate(ctx, Update{OperationID: "ready-3", RequestHash: "h", Instance: i, Credentials: Credentials{Revision: "r", Sealed: map[string]string{"service-manager": "new"}}})
	})
	apply(t, s, ended("ready-3", event.Succeeded, 7, `{"provisioner":{"runtimeId":"rt"}}`),
		instance.Change{OperationID: "coming-2", Progress: instance.Progress{State: event.Succeeded, Cursor: 9}})
	if i, err = s.Instance(t.Context(), "ready"); err != nil || !strings.Contains(string(i.Effective), "30") {
		t.Errorf("updated is %+v, %v", i, err)
	}
	if id, err := s.RuntimeID(t.Context(), "ready"); id != "rt" || err != nil {
		t.Errorf("runtime %q, %v", id, err)
	}
	if got := state(t, s, "coming"); got != RuntimeSucceeded {
		t.Errorf("coming is %q", got)
	}
	if sealed, err := s.SealedCredential(t.Context(), "ready", "service-manager"); sealed.Sealed != "new" || sealed.Revision != "r" || err != nil {
		t.Errorf("credentials %q, %v", sealed, err)
	}
}

// During a rollout, the last release works on the migrated schema for a while, without the new columns and the list of
// runtimes.
func TestMigrate_FirstRelease_WorksOnNewSchema(t *testing.T) {
	t.Parallel()
	s := first(t)
	require.NoError(t, Migrate(t.Context(), s.db))
	exec(t, s, `INSERT INTO broker.instances (id, service_id, plan_id, plan_name, context, runtime, parameters, effective_parameters,
			dashboard_url, request_hash, operation_id, created_at)
		SELECT 'late', service_id, plan_id, plan_name, context, runtime, parameters, effective_parameters, dashboard_url, request_hash,
			'late-1', created_at FROM broker.instances WHERE id = 'ready'`)
	exec(t, s, `INSERT INTO broker.operations (id, instance_id, type, state, created_at, updated_at, heard_at, request, extensions)
		VALUES ('late-1', 'late', 'provision', 'pending', now(), now(), now(), '{}', '{}')`)
	exec(t, s, `UPDATE broker.operations SET state = 'in progress', cursor = 1 WHERE id = 'late-1'`)
	exec(t, s, `DELETE FROM broker.instances WHERE id = 'going'`)
	// The first change that this release applies updates the list.
	apply(t, s, ended("late-1", event.Succeeded, 9, `{}`), ended("going-2", event.Succeeded, 9, ""))
	found, _, err := s.Runtimes(t.Context(), RuntimeFilter{Limit: 100, InstanceIDs: []string{"late", "going"}})
	if err != nil || len(found) != 2 {
		t.Fatalf("%+v, %v", found, err)
	}
	got := []string{string(found[0].State), string(found[1].State)}
	if slices.Sort(got); !slices.Equal(got, []string{"deprovisioned", "succeeded"}) {
		t.Errorf("states are %v", got)
	}
}
