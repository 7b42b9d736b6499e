package ias

import (
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// Name is the name of the worker.
const Name = "ias"

const component = "ias"

type shared struct {
	cfg Config
	ias *client
}

// Steps creates the steps of the worker.
func Steps(cfg Config, deps extclient.Deps) ([]worker.Step, error) {
	s := &shared{cfg: cfg}
	steps := []worker.Step{
		worker.NewStep("IAS_Registration", component, provisioner.UnlessOrdered(s.registration), worker.Description{
			Summary: "Creates and configures the service providers of the instance's Dex and Grafana, and sets the overrides with the client and secret of Grafana.",
			Calls: worker.Calls(component, "GET /service/company/global", "POST /service/sps", "PUT /service/sps/{id}", "PUT /service/sps",
				"PUT /service/sps/{id}/rba", "DELETE /service/sps/clientSecret"),
			StageMemory: []string{"overrides:" + Component},
		}),
		worker.NewStep("IAS_Deregistration", component, s.deregistration, worker.Description{
			Summary: "Deletes the service providers that the instance has in IAS.",
			Calls:   worker.Calls(component, "GET /service/company/global", "PUT /service/sps/delete"),
		}),
	}
	if cfg.URL == "" {
		return worker.WithoutSystem(deps.Log, component, "KEB_IAS_URL", steps), nil
	}
	var err error
	s.ias, err = newClient(cfg, deps)
	return steps, err
}
