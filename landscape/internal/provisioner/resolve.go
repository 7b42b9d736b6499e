package provisioner

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/landscape/internal/graphql"
	"github.com/kyma-project/keb/landscape/internal/journal"
)

type statusOf struct {
	ID        string     `json:"id"`
	Operation string     `json:"operation"`
	State     string     `json:"state"`
	Message   string     `json:"message"`
	RuntimeID string     `json:"runtimeID"`
	LastError *lastError `json:"lastError"`
}

type lastError struct {
	Message   string `json:"errMessage"`
	Reason    string `json:"reason"`
	Component string `json:"component"`
}

func (s *System) status(o Operation) statusOf {
	out := statusOf{ID: o.ID, Operation: o.Type, State: o.state(s.deps.Now()), RuntimeID: o.RuntimeID}
	switch out.State {
	case "Failed":
		out.Message = o.Error.Message
		out.LastError = &lastError{Message: o.Error.Message, Reason: o.Error.Reason, Component: o.Error.Component}
	case "Succeeded":
		out.Message = "Operation succeeded"
	default:
		out.Message = "Operation in progress"
	}
	return out
}

// known returns the runtime of a tenant's request. A runtime of another tenant moves to this one; one with Kyma, of 2020, is rejected.
func (s *System) known(r *http.Request, tx *journal.Tx, tenant, id string) (Runtime, bool, error) {
	runtime, ok := s.runtimes.Get(id)
	if runtime.Kyma != nil {
		if err := checkSelection(r); err != nil {
			return runtime, ok, err
		}
	}
	if !ok || runtime.Tenant == tenant {
		return runtime, ok, nil
	}
	if runtime.Kyma != nil {
		return runtime, true, badRequest("provided tenant does not match tenant used to provision cluster")
	}
	runtime.Tenant = tenant
	return runtime, true, s.runtimes.Put(tx, id, runtime)
}

// last returns the newest operation of a removed runtime, whose row stays.
func (s *System) last(id string) (Operation, bool) {
	var newest Operation
	for _, operationID := range s.byRuntime.IDs(id) {
		op, _ := s.operations.Get(operationID)
		// If two operations began at the same time, the removal is the later one.
		if newest.ID == "" || op.StartedAt.After(newest.StartedAt) || op.removal() && !op.StartedAt.Before(newest.StartedAt) {
			newest = op
		}
	}
	return newest, newest.ID != ""
}

func (s *System) provision(_ context.Context, r *http.Request, args graphql.Arguments) (any, error) {
	tenant, err := tenantOf(r, true)
	if err != nil {
		return nil, err
	}
	var in struct {
		Config order `json:"config"`
	}
	if err := args.Into(&in); err != nil {
		return nil, badRequest("%v", err)
	}
	if err := in.Config.check(r); err != nil {
		return nil, err
	}
	id, gardener := uuid.NewString(), in.Config.ClusterConfig.GardenerConfig
	if in.Config.KymaConfig != nil {
		// The Runtime Provisioner of 2020 chooses the name of the Shoot.
		gardener["name"] = "c-" + id[:7]
	}
	if !gardener.has("shootNetworkingFilterDisabled") {
		gardener["shootNetworkingFilterDisabled"] = true
	}
	runtime := Runtime{
		ID: id, Tenant: tenant, SubAccount: r.Header.Get("Sub-Account"), Name: in.Config.RuntimeInput.Name,
		Labels: in.Config.RuntimeInput.Labels, Config: gardener,
		Admins: in.Config.ClusterConfig.Administrators, Kyma: in.Config.KymaConfig, Token: rand.Text(),
	}
	kind := "Provision"
	if runtime.Kyma == nil {
		kind = "ProvisionNoInstall"
	}
	var op Operation
	err = s.Update(func(tx *journal.Tx) error {
		if name := runtime.shoot().Name; len(s.byShoot.IDs(name)) > 0 {
			return failure(http.StatusInternalServerError, reasonExists, componentGarden,
				"Failed to start provisioning, error creating Shoot for %s cluster: shoots %q already exists", runtime.ID, name)
		}
		op = s.begin(kind, runtime, s.cfg.ClusterTime)
		runtime.LastOperation, runtime.Creation = op.ID, op.ID
		if err := s.runtimes.Put(tx, runtime.ID, runtime); err != nil {
			return err
		}
		return s.operations.Put(tx, op.ID, op)
	})
	if err != nil {
		return nil, err
	}
	if err := s.announce(runtime); err != nil {
		return nil, err
	}
	return fresh(op), nil
}

// fresh returns the status of a new operation: InProgress, even if clusters take no time.
func fresh(o Operation) statusOf {
	return statusOf{ID: o.ID, Operation: o.Type, State: "InProgress", Message: "Operation started", RuntimeID: o.RuntimeID}
}

// start starts an operation of an existing runtime, unless one is running; change changes the runtime.
func (s *System) start(r *http.Request, id, kind string, takes time.Duration, change func(*Runtime, *Operation) error) (Operation, error) {
	tenant, err := tenantOf(r, false)
	if err != nil {
		return Operation{}, err
	}
	var op Operation
	err = s.Update(func(tx *journal.Tx) error {
		runtime, ok, err := s.known(r, tx, tenant, id)
		if err != nil {
			return err
		}
		if !ok {
			op, err = s.startRemoved(id, kind, takes)
			if err != nil {
				return err
			}
			return s.operations.Put(tx, op.ID, op)
		}
		if last, ok := s.operations.Get(runtime.LastOperation); ok && s.deps.Now().Before(last.EndsAt) {
			return badRequest("cannot start new operation for %s Runtime while previous one is in progress", id)
		}
		if kind == "Deprovision" && runtime.Kyma == nil {
			kind = "DeprovisionNoInstall"
		}
		op = s.begin(kind, runtime, takes)
		runtime.LastOperation = op.ID
		if change != nil {
			if err := change(&runtime, &op); err != nil {
				return err
			}
		}
		if err := s.runtimes.Put(tx, id, runtime); err != nil {
			return err
		}
		return s.operations.Put(tx, op.ID, op)
	})
	return op, err
}

// startRemoved starts an operation of a removed runtime: another removal succeeds, any other operation does not find the Shoot.
func (s *System) startRemoved(id, kind string, takes time.Duration) (Operation, error) {
	last, ok := s.last(id)
	switch {
	case !ok:
		return Operation{}, notFound("runtime", id)
	case s.deps.Now().Before(last.EndsAt):
		return Operation{}, badRequest("cannot start new operation for %s Runtime while previous one is in progress", id)
	case kind != "Deprovision":
		return Operation{}, failure(http.StatusInternalServerError, "NotFound", componentGarden, "Failed to get shoot of runtime %s", id)
	}
	return s.begin(last.Type, Runtime{ID: id}, takes), nil
}

func idOf(args graphql.Arguments) string {
	v, _ := args["id"].(string)
	return v
}

func (s *System) deprovision(_ context.Context, r *http.Request, args graphql.Arguments) (any, error) {
	op, err := s.start(r, idOf(args), "Deprovision", s.cfg.ClusterTime/2, nil)
	if err != nil {
		return nil, err
	}
	return op.ID, nil
}

func (s *System) upgradeRuntime(_ context.Context, r *http.Request, args graphql.Arguments) (any, error) {
	config, _ := args["config"].(map[string]any)
	kyma, _ := config["kymaConfig"].(map[string]any)
	if err := checkKyma(r, kyma); err != nil {
		return nil, err
	}
	return s.started(r, args, "Upgrade", func(runtime *Runtime, _ *Operation) error {
		runtime.Kyma = kyma
		return nil
	})
}

// upgradeShoot starts the change of a cluster, which applies when the operation succeeds. Omitted values stay, except the
// administrators.
func (s *System) upgradeShoot(_ context.Context, r *http.Request, args graphql.Arguments) (any, error) {
	var in struct {
		Config upgrade `json:"config"`
	}
	if err := args.Into(&in); err != nil {
		return nil, badRequest("%v", err)
	}
	return s.started(r, args, "UpgradeShoot", func(runtime *Runtime, op *Operation) error {
		if err := in.Config.check(r, *runtime); err != nil {
			return err
		}
		op.Config, op.Admins = in.Config.GardenerConfig, append([]string{}, in.Config.Administrators...)
		if have := runtime.shoot().KubernetesVersion; lower(in.Config.GardenerConfig.text("kubernetesVersion"), have) {
			op.Config["kubernetesVersion"] = have
		}
		return nil
	})
}

func (s *System) hibernate(_ context.Context, r *http.Request, args graphql.Arguments) (any, error) {
	return s.started(r, args, "Hibernate", func(runtime *Runtime, _ *Operation) error {
		runtime.Hibernated = true
		return nil
	})
}

func (s *System) started(r *http.Request, args graphql.Arguments, kind string, change func(*Runtime, *Operation) error) (any, error) {
	op, err := s.start(r, idOf(args), kind, s.cfg.ClusterTime/2, change)
	if err != nil {
		return nil, err
	}
	return fresh(op), nil
}

func (s *System) reconnect(_ context.Context, r *http.Request, args graphql.Arguments) (any, error) {
	op, err := s.start(r, idOf(args), "ReconnectRuntime", s.cfg.ClusterTime/2, nil)
	if err != nil {
		return nil, err
	}
	return op.ID, nil
}

func (s *System) rollBack(ctx context.Context, r *http.Request, args graphql.Arguments) (any, error) {
	return s.runtimeStatus(ctx, r, args)
}

func (s *System) operationStatus(_ context.Context, r *http.Request, args graphql.Arguments) (any, error) {
	tenant, err := tenantOf(r, false)
	if err != nil {
		return nil, err
	}
	id := idOf(args)
	var op Operation
	err = s.Update(func(tx *journal.Tx) error {
		var ok bool
		if op, ok = s.operations.Get(id); !ok {
			return notFound("operation", id)
		}
		_, _, err := s.known(r, tx, tenant, op.RuntimeID)
		return err
	})
	if err != nil {
		return nil, err
	}
	return s.status(op), nil
}

func (s *System) runtimeStatus(_ context.Context, r *http.Request, args graphql.Arguments) (any, error) {
	tenant, err := tenantOf(r, false)
	if err != nil {
		return nil, err
	}
	id := idOf(args)
	var runtime Runtime
	var op Operation
	var ok bool
	err = s.Update(func(tx *journal.Tx) error {
		var err error
		if runtime, ok, err = s.known(r, tx, tenant, id); err != nil {
			return err
		}
		if ok {
			op, _ = s.operations.Get(runtime.LastOperation)
			return nil
		}
		if op, ok = s.last(id); !ok {
			return notFound("runtime", id)
		}
		ok = false
		return nil
	})
	if err != nil {
		return nil, err
	}
	if !ok {
		return map[string]any{
			"lastOperationStatus":     s.status(op),
			"runtimeConnectionStatus": map[string]any{"status": "Disconnected"},
			"runtimeConfiguration":    map[string]any{},
			"hibernationStatus":       map[string]any{"hibernated": false, "hibernationPossible": false},
		}, nil
	}
	connection := "Pending"
	var kubeconfig *string
	if runtime.Ready {
		connection = "Connected"
		kubeconfig = new(s.kubeconfig(r, runtime))
	}
	return map[string]any{
		"lastOperationStatus":     s.status(op),
		"runtimeConnectionStatus": map[string]any{"status": connection},
		"runtimeConfiguration": map[string]any{
			"clusterConfig": shownConfig(runtime.Config), "kymaConfig": runtime.Kyma, "kubeconfig": kubeconfig,
		},
		"hibernationStatus": map[string]any{"hibernated": runtime.Hibernated, "hibernationPossible": true},
	}, nil
}

// shownConfig flattens the provider's settings, like the schema's output type, and sets a seed.
func shownConfig(config map[string]any) map[string]any {
	out := maps.Clone(config)
	if out["seed"] == nil {
		out["seed"] = fmt.Sprintf("%v-eu1", config["provider"])
	}
	specific, _ := config["providerSpecificConfig"].(map[string]any)
	for _, settings := range specific {
		if settings != nil {
			out["providerSpecificConfig"] = settings
		}
	}
	return out
}
