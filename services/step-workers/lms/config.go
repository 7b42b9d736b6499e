package lms

import (
	"errors"
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/service"
)

// Config is the configuration of the worker.
type Config struct {
	// URL is the address of LMS. Without it the worker does not call LMS and skips its steps.
	URL     string        `env:"KEB_LMS_URL"`
	Token   string        `env:"KEB_LMS_TOKEN" envDefault:"keb"`
	Timeout time.Duration `env:"KEB_LMS_TIMEOUT" envDefault:"30s"`

	// ClusterType is the type of new tenants: "ha" or "single-node".
	ClusterType string `env:"KEB_LMS_CLUSTER_TYPE" envDefault:"single-node"`
	// Environment is the environment of new tenants, for example "dev" or "prod".
	Environment string `env:"KEB_LMS_ENVIRONMENT" envDefault:"dev"`
	// SAMLTenant is the login tenant for the users of new tenants.
	SAMLTenant string `env:"KEB_LMS_SAML_TENANT"`

	// TenantInterval is the interval between two checks of a tenant, and after an error; CertificateInterval that between two checks of a
	// certificate.
	TenantInterval      time.Duration `env:"KEB_PACE" envDefault:"30s"`
	CertificateInterval time.Duration `env:"KEB_PACE" envDefault:"15s"`
}

// Validate reports every invalid setting. Without a URL, all settings are valid.
func (c Config) Validate() error {
	if c.URL == "" {
		return nil
	}
	errs := []error{extclient.CheckURL("KEB_LMS_URL", c.URL)}
	if c.ClusterType != "ha" && c.ClusterType != "single-node" {
		errs = append(errs, fmt.Errorf("KEB_LMS_CLUSTER_TYPE is %q: want ha or single-node", c.ClusterType))
	}
	errs = append(errs, service.Positive("KEB_PACE", min(c.TenantInterval, c.CertificateInterval)))
	return errors.Join(errs...)
}
