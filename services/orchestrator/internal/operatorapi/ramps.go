package operatorapi

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/hold"
	"github.com/kyma-project/keb/services/orchestrator/internal/ramp"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// Ramps stores ramps.
type Ramps interface {
	AddRamp(ctx context.Context, r *ramp.Ramp) error
	RemoveRamps(ctx context.Context, worker string, now time.Time) error
}

func viewRamp(r *ramp.Ramp) operator.Ramp {
	return operator.Ramp{
		ID: r.ID, Version: r.Version, Percent: r.Percent, Scope: operator.HoldScope(r.Scope), Reason: r.Reason, CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt,
	}
}

func (a *API) createRamp(r *http.Request) (any, error) {
	var body operator.RampRequest
	if err := decode(r, maxBody, `"version", "percent", "scope" and "reason"`, &body); err != nil {
		return nil, err
	}
	one := ramp.Ramp{
		ID: uuid.Must(uuid.NewV7()).String(), Worker: r.PathValue("id"), Version: body.Version, Percent: body.Percent, Scope: hold.Scope(body.Scope),
		Reason: body.Reason, CreatedBy: by(r.Context(), body.By), CreatedAt: a.deps.Now().UTC(),
	}
	note(r.Context(), func(a *store.Action) {
		a.Target, a.Detail = one.Worker, fmt.Sprintf("%d %% to version %s, scope %s: %s", one.Percent, one.Version, body.Scope.String(), one.Reason)
	})
	if err := one.Validate(one.CreatedAt); err != nil {
		return nil, badRequest(err)
	}
	if !a.isRamped(one.Worker, one.Version) {
		return nil, &refusal{
			http.StatusConflict,
			fmt.Errorf("no live replica of worker %s is ramped and has the version %s: start it with KEB_WORKER_RAMPED=true", one.Worker, one.Version),
		}
	}
	if err := a.deps.Ramps.AddRamp(r.Context(), &one); err != nil {
		return nil, err
	}
	a.rampsChanged(r.Context())
	a.deps.Log.Info("ramp created", "worker", one.Worker, "version", one.Version, "percent", one.Percent, "scope", body.Scope.String(), "by", one.CreatedBy)
	return viewRamp(&one), nil
}

// isRamped reports whether a live ramped replica of a worker has the version.
func (a *API) isRamped(worker, version string) bool {
	for _, live := range a.deps.Workers.Workers() {
		if live.Name == worker {
			return live.Ramped[version] > 0
		}
	}
	return false
}

// maxRampStuck is the maximum number of operations that are checked for a missing ramped replica.
const maxRampStuck = 1000

// withoutRamped returns the groups of operations whose command must go to a ramped replica of a version, while none lives.
func (a *API) withoutRamped(ctx context.Context) ([]*operator.Stuck, error) {
	versions := map[string]string{}
	for _, r := range a.deps.CurrentRamps() {
		versions[r.Worker] = r.Version
	}
	if len(versions) == 0 {
		return nil, nil
	}
	all, err := a.deps.Definitions.All(ctx)
	if err != nil {
		return nil, err
	}
	at := places(all, func(_ string, s *process.Step) bool {
		version := versions[s.Worker]
		return version != "" && !a.deps.Workers.ServesRamped(s.Worker, s.Name, version)
	})
	if len(at) == 0 {
		return nil, nil
	}
	found, err := a.deps.Operations.List(ctx, store.Filter{States: []event.OperationState{event.InProgress}, At: at, Limit: maxRampStuck})
	if err != nil {
		return nil, err
	}
	byKey, groups := map[key]*operator.Stuck{}, []*operator.Stuck{}
	for _, r := range found.Rows {
		p, err := a.deps.Definitions.Pinned(ctx, r.Definition)
		if err != nil {
			return nil, err
		}
		step := p.At(r.Stage, r.Step)
		version := a.deps.VersionOf(&r.Operation, step.Worker, r.StartedAt)
		if !r.InFlight() || version == "" || a.serves(r, step) {
			continue
		}
		k := key{operator.NoWorker, r.Operation.Type, step.Worker, p.Stages[r.Stage].Name, step.Name}
		since := a.withoutWorker(event.Ramped(step.Worker), r.SentAt)
		g := byKey[k]
		if g == nil {
			g = &operator.Stuck{Reason: k.reason, Type: k.kind, Worker: k.worker, Stage: k.stage, Step: k.step, Version: version, Since: since}
			byKey[k] = g
			groups = append(groups, g)
		}
		g.Count++
		if since.Before(g.Since) {
			g.Since = since
		}
		if len(g.Operations) < maxNamed {
			g.Operations = append(g.Operations, r.Operation.ID)
		}
	}
	return groups, nil
}

func (a *API) removeRamps(r *http.Request) (any, error) {
	worker := r.PathValue("id")
	note(r.Context(), func(a *store.Action) { a.Target = worker })
	if err := a.deps.Ramps.RemoveRamps(r.Context(), worker, a.deps.Now()); err != nil {
		return nil, missing(err, "ramp of worker", worker)
	}
	a.rampsChanged(r.Context())
	a.deps.Log.Info("ramps removed", "worker", worker, "by", caller(r.Context()).Name)
	return nil, nil
}

// rampsChanged applies a change in this orchestrator and notifies the others. After an error the next read applies it.
func (a *API) rampsChanged(ctx context.Context) {
	if err := a.deps.RampsChanged(ctx); err != nil {
		a.deps.Log.Warn("ramps not read; the next read applies the change", "err", err)
	}
}
