package lifecyclemanager

import (
	"errors"
	"time"

	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
)

// Config is the configuration of the worker.
type Config struct {
	kube.ControlPlane
	// Namespace is the namespace of Kyma resources whose template has none.
	Namespace string `env:"KEB_KYMA_RESOURCE_NAMESPACE" envDefault:"kcp-system"`
	// ConfigNamespace is the namespace of the ConfigMaps with the templates of Kyma resources.
	ConfigNamespace string `env:"KEB_OVERRIDES_NAMESPACE" envDefault:"kcp-system"`
	// DefaultVersion is the Kyma version whose template is used for versions of pull requests and commits without a template.
	DefaultVersion string `env:"KEB_KYMA_VERSION" envDefault:"2.20.0"`
	// RetryInterval is the delay after an error; 0 means that of the process file. PollInterval is the interval between two checks of a
	// deletion.
	RetryInterval time.Duration `env:"KEB_PACE" envDefault:"0s"`
	PollInterval  time.Duration `env:"KEB_PACE" envDefault:"15s"`
}

// Validate reports every invalid field.
func (c Config) Validate() error {
	errs := []error{c.ControlPlane.Validate()}
	if c.Namespace == "" || c.ConfigNamespace == "" || c.DefaultVersion == "" {
		errs = append(errs, errors.New("KEB_KYMA_RESOURCE_NAMESPACE, KEB_OVERRIDES_NAMESPACE and KEB_KYMA_VERSION must not be empty"))
	}
	errs = append(errs, service.Positive("KEB_PACE", c.PollInterval))
	return errors.Join(errs...)
}
