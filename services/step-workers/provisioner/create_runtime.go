package provisioner

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/kyma"
)

// KymaDefaults is what Create_Runtime installs in each runtime.
type KymaDefaults struct {
	// KymaVersion is the version of orders for which Provision_Initialization has saved none, KymaProfile that of runtimes
	// other than trial and free.
	KymaVersion string `env:"KEB_KYMA_VERSION" envDefault:"2.20.0"`
	KymaProfile string `env:"KEB_KYMA_PROFILE" envDefault:"Production"`
	// Kyma1Components are the components that every runtime gets, besides those that have overrides of their own.
	Kyma1Components []string `env:"KEB_KYMA1_COMPONENTS" envDefault:"cluster-essentials,istio,knative-eventing,core,monitoring,logging,service-manager-proxy"`
	// Kyma1Namespaces are the namespaces of components that are not in kyma-system.
	Kyma1Namespaces map[string]string `env:"KEB_KYMA1_NAMESPACES" envDefault:"istio:istio-system,knative-eventing:knative-eventing,knative-eventing-kafka:knative-eventing"`
}

const kymaNamespace = "kyma-system"

// KymaConfig is the Kyma that the Runtime Provisioner installs in a runtime (facts/keb.md 5.4).
type KymaConfig struct {
	Version       string            `json:"version"`
	Profile       string            `json:"profile"`
	Components    []KymaComponent   `json:"components"`
	Configuration []worker.Override `json:"configuration"`
}

// KymaComponent is a component of Kyma with its configuration.
type KymaComponent struct {
	Component     string            `json:"component"`
	Namespace     string            `json:"namespace"`
	Configuration []worker.Override `json:"configuration"`
}

// createRuntime orders the runtime and the Kyma in it from the Runtime Provisioner, once. It takes the place of
// Create_Runtime_Without_Kyma in the overlay kyma-1.
type createRuntime struct{ *shared }

// Name implements worker.Step.
func (createRuntime) Name() string { return "Create_Runtime" }

// Describe implements worker.Described.
func (createRuntime) Describe() worker.Description {
	d := createRuntimeWithoutKyma{}.Describe()
	d.Summary = "Orders the runtime, with Kyma and the overrides of all steps before, from the Runtime Provisioner."
	return d
}

// Run implements worker.Step.
func (s createRuntime) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	if op.Plan.Name == PlanOwnCluster {
		return worker.Fail(op, &worker.Error{Component: "keb", Message: "plan own_cluster: the Runtime Provisioner installs Kyma only in runtimes that it makes"})
	}
	return s.order(ctx, op, log, func(input *RuntimeInput) error {
		var err error
		input.KymaConfig, err = newKymaConfig(ctx, s.cfg.KymaDefaults, op)
		return err
	})
}

// newKymaConfig is the Kyma of op, with what the steps of the stage have put together. It is the same for the same order and
// overrides.
func newKymaConfig(ctx context.Context, cfg KymaDefaults, op worker.Operation) (*KymaConfig, error) {
	var saved kyma.Details
	if err := op.Details(kyma.Name, &saved); err != nil {
		return nil, err
	}
	overrides, err := op.Overrides(ctx)
	if err != nil {
		return nil, passing{err}
	}
	c := &KymaConfig{Version: cmp.Or(saved.Version, cfg.KymaVersion), Profile: cfg.KymaProfile, Configuration: []worker.Override{}}
	if op.Plan.Name == "trial" || op.Plan.Name == "free" {
		c.Profile = "Evaluation"
	}
	byName := map[string][]worker.Override{}
	for _, name := range cfg.Kyma1Components {
		if name = strings.TrimSpace(name); name != "" {
			byName[name] = []worker.Override{}
		}
	}
	for _, o := range overrides {
		if o.Component == "" {
			c.Configuration = o.Entries
			continue
		}
		byName[o.Component] = o.Entries
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		c.Components = append(c.Components, KymaComponent{
			Component: name, Namespace: cmp.Or(cfg.Kyma1Namespaces[name], kymaNamespace), Configuration: byName[name],
		})
	}
	if len(c.Components) == 0 {
		return nil, errors.New("KEB_KYMA1_COMPONENTS is empty and no component has overrides: nothing to install")
	}
	return c, nil
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
