package provisioner

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
)

// Config is the configuration of the worker. The default intervals are those of the original broker.
type Config struct {
	ClientConfig
	KymaDefaults
	kube.Gardener

	// DirectorURL enables the search for an instance's runtime in the Director before the runtime is ordered or removed. Without it the worker
	// does not call the Director and ignores the other settings of the Director.
	DirectorURL          string `env:"KEB_DIRECTOR_URL"`
	DirectorTokenURL     string `env:"KEB_DIRECTOR_TOKEN_URL"`
	DirectorClientID     string `env:"KEB_DIRECTOR_CLIENT_ID" envDefault:"keb"`
	DirectorClientSecret string `env:"KEB_DIRECTOR_CLIENT_SECRET" envDefault:"keb"`

	// DirectorTimeout is the timeout of one call.
	DirectorTimeout time.Duration `env:"KEB_DIRECTOR_TIMEOUT" envDefault:"30s"`

	// KubernetesVersion, MachineImage and MachineImageVersion are those of new runtimes, and the defaults of cluster upgrades. An empty
	// image selects Gardener's default image; its version must then be empty, too.
	KubernetesVersion   string `env:"KEB_RUNTIME_KUBERNETES_VERSION" envDefault:"1.33.2"`
	MachineImage        string `env:"KEB_RUNTIME_MACHINE_IMAGE"`
	MachineImageVersion string `env:"KEB_RUNTIME_MACHINE_IMAGE_VERSION"`
	// KubernetesAutoUpdate and MachineImageAutoUpdate permit Gardener to update the cluster automatically.
	KubernetesAutoUpdate   bool `env:"KEB_RUNTIME_KUBERNETES_AUTO_UPDATE" envDefault:"false"`
	MachineImageAutoUpdate bool `env:"KEB_RUNTIME_MACHINE_IMAGE_AUTO_UPDATE" envDefault:"false"`
	// FloatingPool is the pool of openstack runtimes.
	FloatingPool string `env:"KEB_RUNTIME_OPENSTACK_FLOATING_POOL" envDefault:"FloatingIP-external-cp-kyma"`
	// MultiZone distributes new runtimes of the plans azure, aws, gcp and preview over three zones instead of one.
	MultiZone bool `env:"KEB_RUNTIME_MULTI_ZONE" envDefault:"false"`
	// Purpose is the purpose of new runtimes whose order and plan have none.
	Purpose string `env:"KEB_RUNTIME_PURPOSE" envDefault:"development"`
	// TrialNodes is the number of nodes of trial runtimes, which their upgrades also apply; 0 means that of the plan.
	TrialNodes int `env:"KEB_RUNTIME_TRIAL_NODES" envDefault:"1"`
	// ControlPlaneFailureTolerance is "node" or "zone" for new runtimes of the plans azure, aws, gcp and preview; empty means none.
	ControlPlaneFailureTolerance string `env:"KEB_RUNTIME_CONTROL_PLANE_FAILURE_TOLERANCE"`
	// DNSProvidersFile is a YAML file with the DNS providers of new runtimes: a list "providers" of domainsInclude, primary,
	// secretName and type. Without a file, runtimes use Gardener's own providers.
	DNSProvidersFile string `env:"KEB_RUNTIME_DNS_PROVIDERS_FILE"`

	// RetryInterval is the delay after an error, and while another operation of the runtime runs; 0 means that of the process file.
	RetryInterval time.Duration `env:"KEB_PACE" envDefault:"0s"`
	// The interval between two checks is PollInterval during a creation, UpgradePollInterval during an upgrade, RemovalPollInterval during
	// a removal, and KubeconfigInterval for a missing kubeconfig.
	PollInterval        time.Duration `env:"KEB_PACE" envDefault:"2m"`
	UpgradePollInterval time.Duration `env:"KEB_PACE" envDefault:"1m"`
	RemovalPollInterval time.Duration `env:"KEB_PACE" envDefault:"30s"`
	KubeconfigInterval  time.Duration `env:"KEB_PACE" envDefault:"30s"`
}

// ClientConfig is the connection to the Runtime Provisioner. Other workers that read runtimes embed it, too.
type ClientConfig struct {
	// ProvisionerURL is required.
	ProvisionerURL string `env:"KEB_PROVISIONER_URL"`
	// ProvisionerTimeout is the timeout of one call. It is shorter than the original's 120 s, so that the step can report a timeout within
	// its execution limit in the process file.
	ProvisionerTimeout time.Duration `env:"KEB_PROVISIONER_TIMEOUT" envDefault:"45s"`
}

// Validate reports every invalid field.
func (c Config) Validate() error {
	var errs []error
	errs = append(errs, extclient.CheckURL("KEB_PROVISIONER_URL", c.ProvisionerURL), c.Gardener.Validate())
	if c.DirectorURL != "" {
		errs = append(errs,
			extclient.CheckURL("KEB_DIRECTOR_URL", c.DirectorURL), extclient.CheckURL("KEB_DIRECTOR_TOKEN_URL", c.DirectorTokenURL))
	}
	if c.MachineImage == "" && c.MachineImageVersion != "" {
		errs = append(errs, errors.New("KEB_RUNTIME_MACHINE_IMAGE_VERSION is set without KEB_RUNTIME_MACHINE_IMAGE"))
	}
	if c.TrialNodes < 0 {
		errs = append(errs, fmt.Errorf("KEB_RUNTIME_TRIAL_NODES is %d: want 0 or more", c.TrialNodes))
	}
	if !slices.Contains([]string{"", "node", "zone"}, c.ControlPlaneFailureTolerance) {
		errs = append(errs, fmt.Errorf("KEB_RUNTIME_CONTROL_PLANE_FAILURE_TOLERANCE is %q: want node, zone or empty", c.ControlPlaneFailureTolerance))
	}
	if c.KubernetesVersion == "" {
		errs = append(errs, errors.New("KEB_RUNTIME_KUBERNETES_VERSION is empty: want a version such as 1.33.2"))
	}
	errs = append(errs, service.Positive("KEB_PROVISIONER_TIMEOUT", c.ProvisionerTimeout), service.Positive("KEB_PACE", min(c.PollInterval, c.UpgradePollInterval, c.RemovalPollInterval, c.KubeconfigInterval)))
	return errors.Join(errs...)
}
