package lms

import (
	"cmp"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// Name is the name of the worker and of its details.
const Name = "lms"

const component = "lms"

// Component is the Kyma component with the overrides.
const Component = "logging"

// fluentBitKey is the key of Fluent Bit's credentials in the stage memory.
const fluentBitKey = "lms-fluentbit"

// Details are the data that the worker saves about an instance.
type Details struct {
	TenantID string `json:"tenantId,omitempty"`
	// CallbackURL is the URL of the certificate that was requested at RequestedAt; Fingerprint is that of the request.
	CallbackURL string    `json:"callbackUrl,omitempty"`
	Fingerprint string    `json:"fingerprint,omitempty"`
	RequestedAt time.Time `json:"requestedAt,omitzero"`
	// DNS is the domain of the tenant.
	DNS string `json:"dns,omitempty"`
}

type shared struct {
	cfg Config
	lms *client
	now func() time.Time
}

// Steps creates the steps of the worker.
func Steps(cfg Config, deps extclient.Deps) ([]worker.Step, error) {
	s := &shared{cfg: cfg, now: deps.Clock()}
	steps := []worker.Step{
		worker.NewStep("Create_LMS_Tenant", component, provisioner.UnlessOrdered(s.createTenant), worker.Description{
			Summary:     "Creates a tenant in LMS, which the runtimes of a global account in one region share.",
			Calls:       worker.Calls(component, "POST /tenants"),
			Details:     []string{"tenantId"},
			StageMemory: []string{fluentBitKey},
		}),
		worker.NewStep("Request_LMS_Certificates", component, provisioner.UnlessOrdered(s.requestCertificates), worker.Description{
			Summary: "Waits for the tenant in LMS, requests a certificate, and sets the overrides of Fluent Bit.",
			Calls: worker.Calls(component, "GET /tenants/{id}/status", "POST /tenants/{id}/certs", "GET /{callback}",
				"GET /tenants/{id}/certs/ca", "GET /tenants/{id}"),
			Details:     []string{"callbackUrl", "fingerprint", "requestedAt", "dns"},
			StageMemory: []string{"overrides:" + Component},
		}),
	}
	if cfg.URL == "" {
		return worker.WithoutSystem(deps.Log, component, "KEB_LMS_URL", steps), nil
	}
	var err error
	s.lms, err = newClient(cfg, deps)
	return steps, err
}

func read(op worker.Operation) (Details, error) {
	var d Details
	return d, op.Details(Name, &d)
}

// errorInterval returns the delay after an error during a request: 5 s, or less if certificates are polled faster.
func (s *shared) errorInterval() time.Duration { return min(5*time.Second, s.cfg.CertificateInterval) }

// wait repeats the step after an interval. It fails the step when the budget since a time is used up.
func (s *shared) wait(op worker.Operation, every time.Duration, since time.Time, budget time.Duration, message string) (worker.Operation, time.Duration, error) {
	if s.now().Sub(since) < budget {
		return worker.Wait(op, every, message)
	}
	return worker.Fail(op, &worker.Error{Component: component, Reason: worker.ReasonTimeout, Message: message + " after " + budget.String()})
}

// maxName is the maximum length of a tenant name.
const maxName = 50

// tenantName returns the tenant name of a global account: its letters and digits.
func tenantName(account string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, account)
	return name[:min(len(name), maxName)]
}

// regions are the LMS regions of hyperscaler regions (docs/contracts/lms.md). The contract assigns westus2 to Europe.
var regions = map[string]string{
	"westeurope": "eu", "northeurope": "eu", "westus2": "eu", "uksouth": "eu", "francecentral": "eu", "uaenorth": "eu",
	"eastus": "us", "eastus2": "us", "centralus": "us", "eastus2euap": "us",
	"southeastasia": "aus", "japaneast": "aus",
}

// tenantRegion returns the LMS region of a hyperscaler region: eu, us or aus; eu for a region that is not in the table.
func tenantRegion(region string) string { return cmp.Or(regions[strings.ToLower(region)], "eu") }
