package kyma

import (
	"errors"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
)

// Config is the configuration of the worker.
type Config struct {
	kube.ControlPlane
	// Namespace is the namespace of the Secrets and ConfigMaps with overrides and account versions.
	Namespace string `env:"KEB_OVERRIDES_NAMESPACE" envDefault:"kcp-system"`
	// VersionsConfigMap is the name of the ConfigMap with the Kyma versions of accounts. Its keys are SA_<subaccount>, which takes
	// precedence, and GA_<global account>. It is optional.
	VersionsConfigMap string `env:"KEB_KYMA_VERSIONS_CONFIGMAP" envDefault:"kyma-versions"`
	// DefaultVersion is the Kyma version for orders without a version whose accounts have none either.
	DefaultVersion string `env:"KEB_KYMA_VERSION" envDefault:"2.20.0"`
	// ArtifactsURL is the address of the published component lists of Kyma; the real store is https://storage.googleapis.com. It is required.
	ArtifactsURL string `env:"KEB_KYMA_ARTIFACTS_URL"`
	// RetryInterval is the delay after an error; 0 means that of the process file.
	RetryInterval time.Duration `env:"KEB_PACE" envDefault:"0s"`
}

// Validate reports every invalid field.
func (c Config) Validate() error {
	errs := []error{c.ControlPlane.Validate(), extclient.CheckURL("KEB_KYMA_ARTIFACTS_URL", c.ArtifactsURL)}
	if c.Namespace == "" || c.VersionsConfigMap == "" {
		errs = append(errs, errors.New("KEB_OVERRIDES_NAMESPACE and KEB_KYMA_VERSIONS_CONFIGMAP must not be empty"))
	}
	errs = append(errs, checkVersion("KEB_KYMA_VERSION", c.DefaultVersion))
	errs = append(errs, service.NotNegative("KEB_PACE", c.RetryInterval))
	return errors.Join(errs...)
}
