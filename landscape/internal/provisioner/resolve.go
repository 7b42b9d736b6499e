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

// fresh is the status of an operation that was just accepted: Pending, also when clusters take no time.
func fresh(o Operation) statusOf {
	return statusOf{ID: o.ID, Operation: o.Type, State: "Pending", Message: "Operation started", RuntimeID: o.RuntimeID}
}

func badRequest(format string, args ...any) error {
	return &graphql.Error{Message: fmt.Sprintf(format, args...), Extensions: map[string]any{
		"error_code": http.StatusBadRequest, "error_reason": "err_bad_request", "error_component": "compass runtime-provisioner",
	}}
}

func notFound(what, id string) error {
	return &graphql.Error{Message: fmt.Sprintf("%s %s not found", what, id), Extensions: map[string]any{
		"error_code": http.StatusInternalServerError, "error_reason": "err_db_not_found", "error_component": "db - compass runtime-provisioner",
	}}
}

func tenantOf(r *http.Request) (string, error) {
	tenant := r.Header.Get("Tenant")
	if tenant == "" {
		return "", badRequest("the tenant header is empty")
	}
	return tenant, nil
}

func (s *System) provision(_ context.Context, r *http.Request, args graphql.Arguments) (any, error) {
	tenant, err := tenantOf(r)
	if err != nil {
		return nil, err
	}
	var in struct {
		Config struct {
			RuntimeInput struct {
				Name        string         `json:"name"`
				Description string         `json:"description"`
				Labels      map[string]any `json:"labels"`
			} `json:"runtimeInput"`
			ClusterConfig struct {
				GardenerConfig map[string]any `json:"gardenerConfig"`
				Administrators []string       `json:"administrators"`
			} `json:"clusterConfig"`
			KymaConfig map[string]any `json:"kymaConfig"`
		} `json:"config"`
	}
	if err := args.Into(&in); err != nil {
		return nil, badRequest("%v", err)
	}
	gardener := in.Config.ClusterConfig.GardenerConfig
	if specific, _ := gardener["providerSpecificConfig"].(map[string]any); given(specific) != 1 {
		return nil, badRequest("providerSpecificConfig must have exactly one of gcpConfig, azureConfig, awsConfig, openStackConfig")
	}
	runtime := Runtime{
		ID: uuid.NewString(), Tenant: tenant, SubAccount: r.Header.Get("Sub-Account"), Name: in.Config.RuntimeInput.Name,
		Description: in.Config.RuntimeInput.Description, Labels: in.Config.RuntimeInput.Labels, Config: gardener,
		Admins: in.Config.ClusterConfig.Administrators, Kyma: in.Config.KymaConfig, Token: rand.Text(),
	}
	kind := "Provision"
	if runtime.Kyma == nil {
		kind = "ProvisionNoInstall"
	}
	var op Operation
	err = s.Update(func(tx *journal.Tx) error {
		if name := runtime.shoot().Name; len(s.byShoot.IDs(name)) > 0 {
			return badRequest("a cluster named %s exists already", name)
		}
		op = s.begin(kind, runtime, s.cfg.ClusterTime)
		runtime.LastOperation = op.ID
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

func given(config map[string]any) int {
	n := 0
	for _, v := range config {
		if v != nil {
			n++
		}
	}
	return n
}

// start begins an operation on an existing runtime, unless one is running there; change says what it does to the runtime.
func (s *System) start(r *http.Request, id, kind string, takes time.Duration, change func(*Runtime, *Operation)) (Operation, error) {
	tenant, err := tenantOf(r)
	if err != nil {
		return Operation{}, err
	}
	var op Operation
	err = s.Update(func(tx *journal.Tx) error {
		runtime, ok := s.runtimes.Get(id)
		if !ok {
			return notFound("runtime", id)
		}
		if runtime.Tenant != tenant {
			return badRequest("the runtime does not belong to the tenant")
		}
		if last, ok := s.operations.Get(runtime.LastOperation); ok && s.deps.Now().Before(last.EndsAt) {
			return badRequest("operation %s of runtime %s is in progress, cannot start %s", last.ID, id, kind)
		}
		if kind == "Deprovision" && runtime.Kyma == nil {
			kind = "DeprovisionNoInstall"
		}
		op = s.begin(kind, runtime, takes)
		runtime.LastOperation = op.ID
		if change != nil {
			change(&runtime, &op)
		}
		if err := s.runtimes.Put(tx, id, runtime); err != nil {
			return err
		}
		return s.operations.Put(tx, op.ID, op)
	})
	return op, err
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
	return s.started(r, args, "Upgrade", func(runtime *Runtime, _ *Operation) { runtime.Kyma = kyma })
}

// upgradeShoot starts the change of a cluster; the cluster has it when the operation ends well.
func (s *System) upgradeShoot(_ context.Context, r *http.Request, args graphql.Arguments) (any, error) {
	var in struct {
		Config struct {
			GardenerConfig map[string]any `json:"gardenerConfig"`
			Administrators []string       `json:"administrators"`
		} `json:"config"`
	}
	if err := args.Into(&in); err != nil {
		return nil, badRequest("%v", err)
	}
	return s.started(r, args, "UpgradeShoot", func(_ *Runtime, op *Operation) {
		op.Config, op.Admins = in.Config.GardenerConfig, in.Config.Administrators
	})
}

func (s *System) hibernate(_ context.Context, r *http.Request, args graphql.Arguments) (any, error) {
	return s.started(r, args, "Hibernate", func(runtime *Runtime, _ *Operation) { runtime.Hibernated = true })
}

func (s *System) started(r *http.Request, args graphql.Arguments, kind string, change func(*Runtime, *Operation)) (any, error) {
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
	if _, err := tenantOf(r); err != nil {
		return nil, err
	}
	id := idOf(args)
	var op Operation
	var ok bool
	s.View(func() { op, ok = s.operations.Get(id) })
	if !ok {
		return nil, notFound("operation", id)
	}
	return s.status(op), nil
}

func (s *System) runtimeStatus(_ context.Context, r *http.Request, args graphql.Arguments) (any, error) {
	tenant, err := tenantOf(r)
	if err != nil {
		return nil, err
	}
	id := idOf(args)
	var runtime Runtime
	var op Operation
	var ok bool
	s.View(func() {
		runtime, ok = s.runtimes.Get(id)
		op, _ = s.operations.Get(runtime.LastOperation)
	})
	if !ok {
		return nil, notFound("runtime", id)
	}
	if runtime.Tenant != tenant {
		return nil, badRequest("the runtime does not belong to the tenant")
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

// shownConfig flattens the one provider's settings, as the schema's output type has them, and names a seed.
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
