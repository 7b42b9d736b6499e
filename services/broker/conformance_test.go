package broker_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/osb/osbtest"
	"github.com/kyma-project/keb/services/broker"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// The conformance suite of the Open Service Broker API runs against the real broker, database and bus.
func TestBroker_OpenServiceBrokerAPI_Conforms(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *broker.Config) {
		c.MaintenanceVersion, c.PlanChanges = "2.20.0", map[string]string{"azure": "azure_lite"}
		c.RotatablePlans, c.BindingCleanup = []string{"azure"}, 20*time.Millisecond
	})
	// Platforms are expected to receive the tokens of bindings.
	newRuntimes(b).token = "token"
	orch := b.orch
	flag := func(set func(bool)) func(context.Context) (func(), error) {
		return func(context.Context) (func(), error) {
			orch.set(func() { set(true) })
			return func() { orch.set(func() { set(false) }) }, nil
		}
	}
	maintain := func(context.Context) (func(), error) {
		before := b.cfg.MaintenanceVersion
		b.cfg.MaintenanceVersion = "2.21.0"
		b.restart()
		return func() { b.cfg.MaintenanceVersion = before; b.restart() }, nil
	}
	osbtest.Run(t, osbtest.Config{
		BaseURL: b.server.URL, Client: b.server.Client(), User: b.cfg.User, Password: b.cfg.Password,
		BadTokens: map[string]string{"no token at all": "x", "unsigned": "eyJhbGciOiJub25lIn0.e30."},
		Secrets:   []string{canary, b.cfg.Password},
		Fixtures: osbtest.Fixtures{
			ServiceID: serviceID, PlanA: azure, PlanB: azureLite, PlanFixed: aws, PlanUnbindable: trial, PlanMaintained: azure, Updates: true,
			CreateOnlyParameters: map[string]any{"name": "another", "region": "westeurope", "volumeSizeGb": 80, "zones": []any{"1"}},
			ChangedParameters:    map[string]any{"name": "sample", "autoScalerMax": 30},
			InvalidParameters:    map[string]any{"name": "sample", "machineType": "huge"}, InvalidPointer: "/machineType",
			AccountMembers: []string{"globalaccount_id", "subaccount_id"}, RequiredMembers: []string{"globalaccount_id", "subaccount_id"},
			DisplayContext: map[string]any{"instance_name": "another name"}, LongestOperation: 24 * time.Hour,
			// PlanBindsLater and PlanNeedsApp do not apply: every plan binds synchronously, and none needs an app.
			Bindings: true, PlanBindsAtOnce: azure, BindingLimit: b.cfg.BindingLimit, Rotation: true, PlanNotRotatable: aws,
			ChangedBindingParameters:  map[string]any{"expiration_seconds": 900},
			RejectedBindingParameters: map[string]any{"expiration_seconds": 7201},
		},
		Parameters: func(string) map[string]any { return map[string]any{"name": "sample"} },
		Context:    func(string) map[string]any { return accountContext() },
		Hooks: osbtest.Hooks{
			Hold:            flag(func(on bool) { orch.held = on }),
			Fail:            flag(func(on bool) { orch.failing[event.Provision], orch.failing[event.Update] = on, on }),
			FailDeprovision: flag(func(on bool) { orch.failing[event.Deprovision] = on }),
			Retry:           flag(func(on bool) { orch.retrying = on }),
			Exhaust:         flag(func(on bool) { orch.exhausted = on }),
			Counts: func(ctx context.Context, id string) (osbtest.Counts, error) {
				n := b.count(`SELECT count(*) FROM broker.operations WHERE instance_id = $1`, id)
				err := wait(ctx, func() bool { return orch.requests(id) >= n })
				return osbtest.Counts{Operations: n, Requests: orch.requests(id)}, err
			},
			Resources: func(_ context.Context, id string) (int, error) {
				orch.mu.Lock()
				defer orch.mu.Unlock()
				if orch.resources[id] {
					return 1, nil
				}
				return 0, nil
			},
			Restart:       func(context.Context) error { b.restart(); return nil },
			ChangeCatalog: maintain, RaiseMaintenance: maintain,
			Outage: func(context.Context) (func(), error) { b.database.Cut(); return b.database.Restore, nil },
			WorkedOff: func(ctx context.Context, id string) error {
				return wait(ctx, func() bool {
					_, worked := b.worked.Load("PUT /v2/service_instances/" + id)
					return worked
				})
			},
			Audit: func(ctx context.Context, id string) (osbtest.Identity, error) {
				err := wait(ctx, func() bool { return orch.requests(id) > 0 })
				orch.mu.Lock()
				defer orch.mu.Unlock()
				i, e := osb.ParseOriginatingIdentity(orch.identities[id])
				if err != nil {
					return osbtest.Identity{}, err
				}
				if e != nil {
					return osbtest.Identity{}, e
				}
				return osbtest.Identity{Platform: i.Platform, Value: i.Value}, nil
			},
			Logs: func(context.Context) (string, error) { return b.log.String(), nil },
			Purge: func(ctx context.Context, _ string) error {
				return store.New(b.db, waitTimeout).Purge(ctx, time.Now().Add(time.Hour), time.Now().Add(-time.Hour))
			},
			Expire: func(_ context.Context, id string) error {
				_, err := b.db.Exec(`UPDATE broker.operations SET created_at = created_at - interval '26 hours' WHERE instance_id = $1`, id)
				return err
			},
			ExpireBinding: func(_ context.Context, id, binding string) error {
				_, err := b.db.Exec(`UPDATE broker.bindings SET expires_at = now() - interval '1 second'
					WHERE instance_id = $1 AND id = $2`, id, binding)
				return err
			},
			CleanBindings: func(ctx context.Context) error {
				if _, err := b.db.Exec(`UPDATE broker.bindings SET due_at = expires_at WHERE expires_at < now()`); err != nil {
					return err
				}
				return wait(ctx, func() bool { return b.count(`SELECT count(*) FROM broker.bindings WHERE expires_at < now()`) == 0 })
			},
			KillOrchestrator: func(context.Context) error { orch.stop(); orch.start(); return nil },
			StepRuns:         func(_ context.Context, id string) (map[string]int, error) { return orch.runs(id), nil },
			NotCompleted: func(_ context.Context, id string) ([]string, error) {
				var raw string
				err := b.db.Get(&raw, `SELECT array_to_json(not_completed) FROM broker.operations
					WHERE instance_id = $1 ORDER BY seq DESC LIMIT 1`, id)
				var names []string
				return names, errors.Join(err, json.Unmarshal([]byte(raw), &names))
			},
		},
		OperationTimeout: waitTimeout, PollEvery: 5 * time.Millisecond, Rounds: 20, Groups: "GCPLFDOUB",
	})
	for id, n := range orch.deliveries() {
		if n != 1 {
			t.Errorf("operation %s was requested %d times", id, n)
		}
	}
}

func wait(ctx context.Context, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}
