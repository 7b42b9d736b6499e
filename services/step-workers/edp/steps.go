package edp

import (
	"cmp"
	"strings"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
)

// Name is the name of the worker and of its details.
const Name = "edp"

const component = "edp"

// Details are the data that the worker saves about an instance.
type Details struct {
	// Registered is true after the data tenant got all its metadata.
	Registered bool `json:"registered,omitempty"`
	// Tenant is the name of the data tenant.
	Tenant string `json:"tenant,omitempty"`
}

type shared struct {
	cfg Config
	edp *client
}

// Steps creates the steps of the worker.
func Steps(cfg Config, deps extclient.Deps) ([]worker.Step, error) {
	s := &shared{cfg: cfg}
	steps := []worker.Step{
		worker.NewStep("EDP_Registration", component, s.registration, worker.Description{
			Summary: "Registers the subaccount as a data tenant with its metadata.",
			Calls: worker.Calls(component,
				"POST "+tenantsRoute, "POST "+metadataRoute, "DELETE "+entryRoute, "DELETE "+tenantRoute),
			Details: []string{"registered", "tenant"},
		}),
		worker.NewStep("EDP_Deregistration", component, s.deregistration, worker.Description{
			Summary: "Removes the data tenant of the subaccount.",
			Calls:   worker.Calls(component, "DELETE "+entryRoute, "DELETE "+tenantRoute),
			Details: []string{"registered", "tenant"},
		}),
	}
	if cfg.URL == "" {
		return worker.WithoutSystem(deps.Log, component, "KEB_EDP_URL", steps), nil
	}
	var err error
	s.edp, err = newClient(cfg, deps)
	return steps, err
}

// Keys of the metadata (docs/contracts/edp.md#data-tenant).
const (
	keyEnvironment = "maasConsumerEnvironment"
	keyRegion      = "maasConsumerRegion"
	keySubaccount  = "maasConsumerSubAccount"
	keyPlan        = "maasConsumerServicePlan"
)

var keys = []string{keyEnvironment, keyRegion, keySubaccount, keyPlan}

// defaultRegion is the platform region of an order without one.
const defaultRegion = "cf-eu10"

// metadata returns the four entries of an instance (docs/contracts/edp.md#data-tenant).
func metadata(op worker.Operation) []entry {
	region := cmp.Or(op.Context.PlatformRegion, defaultRegion)
	return []entry{
		{keyEnvironment, platform(region)},
		{keyRegion, region},
		{keySubaccount, tenantName(op.Context.SubaccountID)},
		{keyPlan, plan(op.Plan.Name)},
	}
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
