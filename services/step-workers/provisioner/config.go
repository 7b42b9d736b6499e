package provisioner

import (
	"errors"
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
)

// Config is the configuration of the worker. Its defaults reach a landscape on this machine and poll as the original
// does.
type Config struct {
	ClientConfig
	KymaDefaults
	DirectorURL          string `env:"KEB_DIRECTOR_URL" envDefault:"http://127.0.0.1:8090/director/graphql"`
	DirectorTokenURL     string `env:"KEB_DIRECTOR_TOKEN_URL" envDefault:"http://127.0.0.1:8090/director/oauth2/token"`
	DirectorClientID     string `env:"KEB_DIRECTOR_CLIENT_ID" envDefault:"keb"`
	DirectorClientSecret string `env:"KEB_DIRECTOR_CLIENT_SECRET" envDefault:"keb"`

	// DirectorTimeout is the deadline of one call.
	DirectorTimeout time.Duration `env:"KEB_DIRECTOR_TIMEOUT" envDefault:"30s"`

	// KubernetesVersion, MachineImage and MachineImageVersion go into each new runtime, and into upgrades of clusters that
	// name no other; an empty image is Gardener's default one.
	KubernetesVersion   string `env:"KEB_RUNTIME_KUBERNETES_VERSION" envDefault:"1.33.2"`
	MachineImage        string `env:"KEB_RUNTIME_MACHINE_IMAGE"`
	MachineImageVersion string `env:"KEB_RUNTIME_MACHINE_IMAGE_VERSION"`
	// KubernetesAutoUpdate and MachineImageAutoUpdate let Gardener update the cluster by itself.
	KubernetesAutoUpdate   bool `env:"KEB_RUNTIME_KUBERNETES_AUTO_UPDATE" envDefault:"false"`
	MachineImageAutoUpdate bool `env:"KEB_RUNTIME_MACHINE_IMAGE_AUTO_UPDATE" envDefault:"false"`
	// FloatingPool is the pool of openstack runtimes.
	FloatingPool string `env:"KEB_RUNTIME_OPENSTACK_FLOATING_POOL" envDefault:"FloatingIP-external-cp"`

	// RetryInterval follows a failed call that creates or removes a runtime, ErrorInterval a failed look at one.
	RetryInterval time.Duration `env:"KEB_PROVISIONER_RETRY_INTERVAL" envDefault:"5s"`
	ErrorInterval time.Duration `env:"KEB_PROVISIONER_ERROR_INTERVAL" envDefault:"1m"`
	// PollInterval is between two looks at a runtime being created, UpgradePollInterval at one being upgraded,
	// RemovalPollInterval at one being removed, and KubeconfigInterval at a kubeconfig that is not there yet.
	PollInterval        time.Duration `env:"KEB_PROVISIONER_POLL_INTERVAL" envDefault:"2m"`
	UpgradePollInterval time.Duration `env:"KEB_PROVISIONER_UPGRADE_POLL_INTERVAL" envDefault:"1m"`
	RemovalPollInterval time.Duration `env:"KEB_PROVISIONER_REMOVAL_POLL_INTERVAL" envDefault:"30s"`
	KubeconfigInterval  time.Duration `env:"KEB_PROVISIONER_KUBECONFIG_INTERVAL" envDefault:"30s"`
}

// ClientConfig says where the Runtime Provisioner is; other workers that look at runtimes embed it too.
type ClientConfig struct {
	ProvisionerURL string `env:"KEB_PROVISIONER_URL" envDefault:"http://127.0.0.1:8090/provisioner/graphql"`
	// ProvisionerTimeout is the deadline of one call. It is less than the original's 120 s, as it must leave the step
	// time to report within its execution limit in the process file.
	ProvisionerTimeout time.Duration `env:"KEB_PROVISIONER_TIMEOUT" envDefault:"45s"`
}

// Validate names every field that cannot work.
func (c Config) Validate() error {
	var errs []error
	errs = append(errs,
		extclient.CheckURL("KEB_PROVISIONER_URL", c.ProvisionerURL),
		extclient.CheckURL("KEB_DIRECTOR_URL", c.DirectorURL),
		extclient.CheckURL("KEB_DIRECTOR_TOKEN_URL", c.DirectorTokenURL))
	if c.KubernetesVersion == "" {
		errs = append(errs, errors.New("KEB_RUNTIME_KUBERNETES_VERSION is empty: want a version such as 1.33.2"))
	}
	for name, d := range map[string]time.Duration{
		"KEB_PROVISIONER_TIMEOUT": c.ProvisionerTimeout, "KEB_PROVISIONER_RETRY_INTERVAL": c.RetryInterval,
		"KEB_PROVISIONER_ERROR_INTERVAL": c.ErrorInterval, "KEB_PROVISIONER_POLL_INTERVAL": c.PollInterval,
		"KEB_PROVISIONER_UPGRADE_POLL_INTERVAL": c.UpgradePollInterval,
		"KEB_PROVISIONER_REMOVAL_POLL_INTERVAL": c.RemovalPollInterval, "KEB_PROVISIONER_KUBECONFIG_INTERVAL": c.KubeconfigInterval,
	} {
		if d <= 0 {
			errs = append(errs, fmt.Errorf("%s is %s: want more than 0", name, d))
		}
	}
	return errors.Join(errs...)
}
