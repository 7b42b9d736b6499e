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
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
	"github.com/kyma-project/keb/services/step-workers/kyma"
)

// KymaDefaults is what Create_Runtime installs in each runtime.
type KymaDefaults struct {
	// KymaVersion is the version of orders for which Provision_Initialization has saved none.
	KymaVersion string `env:"KEB_KYMA_VERSION" envDefault:"2.20.0"`
	// Kyma1Components are the components of the Kyma installer, in the order in which they are installed.
	Kyma1Components []string `env:"KEB_KYMA1_COMPONENTS" envDefault:"cluster-essentials,testing,istio,knative-serving,knative-eventing,dex,ory,api-gateway,rafter,service-catalog,service-catalog-addons,helm-broker,nats-streaming,core,knative-provisioner-natss,cluster-users,logging,kiali,tracing,monitoring,avs-bridge,backup,backup-init"`
	// Kyma1Namespaces are the namespaces of components that are not in kyma-system.
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

// appended are the components that KEB adds behind those of the installer. Without compass-runtime-agent the Runtime Provisioner
// refuses the order.
var appended = []KymaComponent{
	{Component: "service-manager-proxy", Namespace: kymaNamespace},
	{Component: "uaa-activator", Namespace: kymaNamespace},
	{Component: "compass-runtime-agent", Namespace: "compass-system"},
	{Component: "knative-eventing-kafka", Namespace: "knative-eventing"},
}

// optional are the components that a runtime gets only if the order names them.
var optional = []string{"kiali", "tracing"}

// disabled are the components that a plan does not get (docs/contracts/runtime-provisioner.md#kyma-1).
func disabled(plan string) []string {
	names := []string{"backup", "backup-init"}
	if plan == "trial" {
		return append(names, "knative-eventing-kafka", "avs-bridge")
	}
	return append(names, "nats-streaming", "knative-provisioner-natss")
}

// createRuntime orders the runtime and the Kyma in it from the Runtime Provisioner, once. It takes the place of
// Create_Runtime_Without_Kyma in the overlay kyma-1.
type createRuntime struct{ *shared }

// Name implements worker.Step.
func (createRuntime) Name() string { return "Create_Runtime" }

// Describe implements worker.Described.
func (s createRuntime) Describe() worker.Description {
	d := createRuntimeWithoutKyma(s).Describe()
	d.Details = append(d.Details, "kyma")
	d.Summary = "Orders the runtime, with Kyma and the overrides of all steps before, from the Runtime Provisioner."
	return d
}

// Run implements worker.Step.
func (s createRuntime) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	if op.Plan.Name == PlanOwnCluster {
		return worker.Fail(op, &worker.Error{Component: "keb", Message: "plan own_cluster: the Runtime Provisioner installs Kyma only in runtimes that it makes"})
	}
	if err := op.SaveDetails(Details{Kyma: true}); err != nil {
		return worker.Fail(op, outcome.Error(component, err))
	}
	return s.order(ctx, op, log, func(op worker.Operation, targetSecret string) (RuntimeInput, error) {
		return s.newInputWithKyma(ctx, op, targetSecret)
	})
}

// nameLMS is the worker that saves the domain of the instance's tenant in LMS.
const nameLMS = "lms"

// newInputWithKyma describes the runtime that op ordered, with Kyma, for the Runtime Provisioner of 2020
// (docs/contracts/runtime-provisioner.md#kyma-1). The error names the parameter that cannot be used.
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

// newKymaConfig returns the Kyma of op: the components of the installer in its order, those that KEB appends, without those that the
// plan or the order leaves out. Overrides never add a component. It is the same for the same order and overrides.
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
		return nil, passing{err}
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

// passing is an error that may pass, although it does not say so.
type passing struct{ error }

// Temporary is true.
func (passing) Temporary() bool { return true }

// Unwrap returns the cause.
func (p passing) Unwrap() error { return p.error }

// AlreadyOrdered is what steps say that prepare something for the order of a runtime, and come too late.
const AlreadyOrdered = "the runtime is ordered already"

// Ordered reports whether op's runtime is ordered. A step that makes secrets for the order must not make new ones after that, when
// its stage is repeated: the runtime would keep the old ones.
func Ordered(op worker.Operation) (bool, error) {
	d, err := read(op)
	return d.RuntimeID != "" && d.OperationID != "", err
}
