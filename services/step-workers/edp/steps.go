package edp

import (
	"strings"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/setup"
)

// Name is the name of the worker and of its part of the details.
const Name = "edp"

const component = "edp"

// Details is what the worker saves about an instance.
type Details struct {
	// Registered tells that the data tenant has all its metadata.
	Registered bool `json:"registered,omitempty"`
	// Tenant is the name of the data tenant.
	Tenant string `json:"tenant,omitempty"`
}

// Deps is what the steps need besides the configuration.
type Deps = extclient.Deps

// Steps builds the steps of the worker.
func Steps(cfg Config, deps Deps) ([]worker.Step, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.URL == "" {
		return setup.Without(component, "KEB_EDP_URL", []worker.Step{registration{}, deregistration{}}, deps), nil
	}
	c, err := newClient(cfg, deps)
	if err != nil {
		return nil, err
	}
	return []worker.Step{registration{cfg, c}, deregistration{cfg, c}}, nil
}

// Keys of the metadata (facts/keb.md 5.2).
const (
	keyEnvironment = "maasConsumerEnvironment"
	keyRegion      = "maasConsumerRegion"
	keySubaccount  = "maasConsumerSubAccount"
	keyPlan        = "maasConsumerServicePlan"
)

var keys = []string{keyEnvironment, keyRegion, keySubaccount, keyPlan}

// metadata is what EDP is told about an instance. EDP refuses empty values, so an order without a region has no entry
// for it.
func metadata(op worker.Operation) []entry {
	entries := []entry{
		{keyEnvironment, platform(op.Context.PlatformRegion)},
		{keySubaccount, op.Context.SubaccountID},
		{keyPlan, plan(op.Plan.Name)},
	}
	if op.Context.PlatformRegion != "" {
		entries = append(entries, entry{keyRegion, op.Context.PlatformRegion})
	}
	return entries
}

func platform(region string) string {
	switch prefix, _, _ := strings.Cut(region, "-"); prefix {
	case "k8s":
		return "KUBERNETES"
	case "neo":
		return "NEO"
	}
	return "CF"
}

func plan(name string) string {
	switch name {
	case "free":
		return "free"
	case "azure_lite":
		return "tdd"
	}
	return "standard"
}
