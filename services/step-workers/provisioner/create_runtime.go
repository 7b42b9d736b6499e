package provisioner

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/kyma"
)

// KymaDefaults are the defaults of the Kyma that Create_Runtime installs.
type KymaDefaults struct {
	// KymaVersion is the version for orders for which Provision_Initialization saved none.
	KymaVersion string `env:"KEB_KYMA_VERSION" envDefault:"2.20.0"`
	// Kyma1Components are the components of the Kyma installer, in the order of installation.
	Kyma1Components []string `env:"KEB_KYMA1_COMPONENTS" envDefault:"cluster-essentials,testing,istio,knative-serving,knative-eventing,dex,ory,api-gateway,rafter,service-catalog,service-catalog-addons,helm-broker,nats-streaming,core,knative-provisioner-natss,cluster-users,logging,kiali,tracing,monitoring,avs-bridge,backup,backup-init"`
	// Kyma1Namespaces are the namespaces of components outside kyma-system.
	Kyma1Namespaces map[string]string `env:"KEB_KYMA1_NAMESPACES" envDefault:"istio:istio-system,knative-serving:knative-serving,knative-eventing:knative-eventing,knative-provisioner-natss:knative-eventing,nats-streaming:natss"`
}

const kymaNamespace = "kyma-system"

// KymaConfig is the Kyma that the Runtime Provisioner installs in a runtime (docs/contracts/runtime-provisioner.md#kyma-1).
type KymaConfig struct {
	Version       string            `json:"version"`
	Components    []KymaComponent   `json:"components"`
	Configuration []worker.Override `json:"configuration"`
}

// KymaComponent is a component of Kyma with its configuration.
type KymaComponent struct {
	Component     string            `json:"component"`
	Namespace     string            `json:"namespace"`
	Configuration []worker.Override `json:"configuration"`
}

// appended are the components that KEB adds after those of the installer. The Runtime Provisioner rejects an order without
// compass-runtime-agent.
var appended = []KymaComponent{
	{Component: "service-manager-proxy", Namespace: kymaNamespace},
	{Component: "uaa-activator", Namespace: kymaNamespace},
	{Component: "compass-runtime-agent", Namespace: "compass-system"},
	{Component: "knative-eventing-kafka", Namespace: "knative-eventing"},
}

// optional are the components that a runtime gets only if the order contains them.
var optional = []string{"kiali", "tracing"}

// disabled returns the components that a plan lacks (docs/contracts/runtime-provisioner.md#kyma-1).
func disabled(plan string) []string {
	names := []string{"backup", "backup-init"}
	if plan == "trial" {
		return append(names, "knative-eventing-kafka", "avs-bridge")
	}
	return append(names, "nats-streaming", "knative-provisioner-natss")
}

// createRuntime orders the runtime with Kyma from the Runtime Provisioner, once. In the overlay kyma-1 it replaces
// Create_Runtime_Without_Kyma.
func (s *shared) createRuntime(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	if op.Plan.Name == PlanOwnCluster {
		return worker.Fail(op, &worker.Error{Component: "keb", Message: "plan own_cluster: the Runtime Provisioner installs Kyma only in runtimes that it creates"})
	}
	if err := op.SaveDetails(Details{Kyma: true}); err != nil {
		return op, 0, err
	}
	return s.order(ctx, op, true, log, func(op worker.Operation, targetSecret string) (RuntimeInput, error) {
		return s.newInputWithKyma(ctx, op, targetSecret)
	})
}

// nameLMS is the worker that saves the domain of the instance's LMS tenant.
const nameLMS = "lms"

// newInputWithKyma returns op's order of a runtime with Kyma, for the Runtime Provisioner of 2020
// (docs/contracts/runtime-provisioner.md#kyma-1). Its error contains the invalid parameter.
func (s *shared) newInputWithKyma(ctx context.Context, op worker.Operation, targetSecret string) (RuntimeInput, error) {
	of, err := planOf(plansWithKyma, op)
	if err != nil {
		return RuntimeInput{}, fmt.Errorf("order with Kyma 1: %w", err)
	}
	var p parameters
	if err := op.Parameters(&p); err != nil {
		return RuntimeInput{}, err
	}
	var lms struct {
		DNS string `json:"dns"`
	}
	if err := op.Details(nameLMS, &lms); err != nil {
		return RuntimeInput{}, err
	}
	input, n, err := s.ordered(op, p, of, targetSecret)
	if err != nil {
		return RuntimeInput{}, err
	}
	if lms.DNS != "" {
		input.RuntimeInput.Labels["operator_lmsUrl"] = "https://kibana." + lms.DNS
	}
	if input.ClusterConfig.GardenerConfig.ProviderSpecificConfig, err = n.configWithKyma(); err != nil {
		return RuntimeInput{}, err
	}
	input.KymaConfig, err = newKymaConfig(ctx, s.cfg.KymaDefaults, op)
	return input, err
}

// newKymaConfig returns the Kyma of op: the components of the installer and those that KEB appends, without those that the plan or the
// order excludes. Overrides never add a component. The result depends only on the order and the overrides.
func newKymaConfig(ctx context.Context, cfg KymaDefaults, op worker.Operation) (*KymaConfig, error) {
	var saved kyma.Details
	if err := op.Details(kyma.Name, &saved); err != nil {
		return nil, err
	}
	var ordered struct {
		Components []string `json:"components"`
	}
	if err := op.Parameters(&ordered); err != nil {
		return nil, err
	}
	overrides, err := op.Overrides(ctx)
	if err != nil {
		return nil, err
	}
	c := &KymaConfig{Version: cmp.Or(saved.Version, cfg.KymaVersion), Configuration: []worker.Override{}}
	byName := map[string][]worker.Override{}
	for _, o := range overrides {
		if o.Component == "" {
			c.Configuration = o.Entries
			continue
		}
		byName[o.Component] = o.Entries
	}
	left := disabled(op.Plan.Name)
	for _, component := range slices.Concat(cfg.installer(), appended) {
		name := component.Component
		if slices.Contains(left, name) || slices.Contains(optional, name) && !slices.Contains(ordered.Components, name) {
			continue
		}
		component.Configuration = append([]worker.Override{}, byName[name]...)
		c.Components = append(c.Components, component)
	}
	return c, nil
}

// installer returns the components of the Kyma installer in their order.
func (d KymaDefaults) installer() []KymaComponent {
	var list []KymaComponent
	for _, name := range d.Kyma1Components {
		if name = strings.TrimSpace(name); name != "" {
			list = append(list, KymaComponent{Component: name, Namespace: cmp.Or(d.Kyma1Namespaces[name], kymaNamespace)})
		}
	}
	return list
}

// UnlessOrdered skips a step after op's runtime is ordered. When a stage is repeated after the order, a step must not create new secrets,
// because the runtime would keep the old ones.
func UnlessOrdered(run worker.StepFunc) worker.StepFunc {
	return func(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
		d, err := read(op)
		if err != nil {
			return op, 0, err
		}
		if d.RuntimeID != "" && d.OperationID != "" {
			return worker.Skip(op, "the runtime is ordered already")
		}
		return run(ctx, op, log)
	}
}
