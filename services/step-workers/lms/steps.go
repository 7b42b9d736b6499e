package lms

import (
	"cmp"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
	"github.com/kyma-project/keb/services/step-workers/internal/setup"
)

// Name is the name of the worker and of its part of the details.
const Name = "lms"

const component = "lms"

// Component is the Kyma component that gets the overrides.
const Component = "logging"

// fluentBitKey is where Create_LMS_Tenant puts the key of Fluent Bit in the stage memory.
const fluentBitKey = "lms-fluentbit"

// Details is what the worker saves about an instance.
type Details struct {
	TenantID string `json:"tenantId,omitempty"`
	// CallbackURL is where the certificate is that was asked for at RequestedAt with the request of that fingerprint.
	CallbackURL string    `json:"callbackUrl,omitempty"`
	Fingerprint string    `json:"fingerprint,omitempty"`
	RequestedAt time.Time `json:"requestedAt,omitzero"`
	// DNS is the domain of the tenant.
	DNS string `json:"dns,omitempty"`
}

// Deps is what the steps need besides the configuration.
type Deps = extclient.Deps

type shared struct {
	cfg Config
	lms *client
	now func() time.Time
}

// Steps builds the steps of the worker.
func Steps(cfg Config, deps Deps) ([]worker.Step, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.URL == "" {
		return setup.Without(component, "KEB_LMS_URL", []worker.Step{createTenant{}, requestCertificates{}}, deps), nil
	}
	c, err := newClient(cfg, deps)
	if err != nil {
		return nil, err
	}
	s := &shared{cfg: cfg, lms: c, now: deps.Now}
	if s.now == nil {
		s.now = time.Now
	}
	return []worker.Step{createTenant{s}, requestCertificates{s}}, nil
}

func read(op worker.Operation) (Details, error) {
	var d Details
	return d, op.Details(Name, &d)
}

// errorInterval follows an error while a certificate is requested: 5 s, or less where certificates are polled faster.
func (s *shared) errorInterval() time.Duration { return min(5*time.Second, s.cfg.CertificateInterval) }

// wait looks again after a time, until too much has passed since a moment: then the step fails.
func (s *shared) wait(op worker.Operation, every time.Duration, since time.Time, budget time.Duration, message string) (worker.Operation, time.Duration, error) {
	if s.now().Sub(since) < budget {
		return worker.Wait(op, every, message)
	}
	return worker.Fail(op, &worker.Error{Component: component, Reason: outcome.ReasonTimeout, Message: message + " after " + budget.String()})
}

// maxName is how long the name of a tenant can be.
const maxName = 50

// tenantName is a global account id as LMS takes it: letters and digits only.
func tenantName(account string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, account)
	return name[:min(len(name), maxName)]
}

// regions are the LMS regions of hyperscaler regions (docs/contracts/lms.md). That westus2 is in Europe is the original's word.
var regions = map[string]string{
	"westeurope": "eu", "northeurope": "eu", "westus2": "eu", "uksouth": "eu", "francecentral": "eu", "uaenorth": "eu",
	"eastus": "us", "eastus2": "us", "centralus": "us", "eastus2euap": "us",
	"southeastasia": "aus", "japaneast": "aus",
}

// tenantRegion returns the LMS region of a hyperscaler region: eu, us or aus; eu for one that is not in the table.
func tenantRegion(region string) string { return cmp.Or(regions[strings.ToLower(region)], "eu") }
