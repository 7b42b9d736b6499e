package provisioner

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
)

// Config is the configuration of the worker. By default it polls as the original does.
type Config struct {
	ClientConfig
	KymaDefaults
	kube.Gardener

	// DirectorURL switches on the look-up of an instance's runtime in the Director before it is ordered or removed; empty, the
	// worker makes no call to the Director. The other settings of the Director count only with it.
	DirectorURL          string `env:"KEB_DIRECTOR_URL"`
	DirectorTokenURL     string `env:"KEB_DIRECTOR_TOKEN_URL"`
	DirectorClientID     string `env:"KEB_DIRECTOR_CLIENT_ID" envDefault:"keb"`
	DirectorClientSecret string `env:"KEB_DIRECTOR_CLIENT_SECRET" envDefault:"keb"`

	// DirectorTimeout is the deadline of one call.
	DirectorTimeout time.Duration `env:"KEB_DIRECTOR_TIMEOUT" envDefault:"30s"`

	// KubernetesVersion, MachineImage and MachineImageVersion go into each new runtime, and into upgrades of clusters that
	// name no other; an empty image is Gardener's default one, and then its version is empty too.
	KubernetesVersion   string `env:"KEB_RUNTIME_KUBERNETES_VERSION" envDefault:"1.33.2"`
	MachineImage        string `env:"KEB_RUNTIME_MACHINE_IMAGE"`
	MachineImageVersion string `env:"KEB_RUNTIME_MACHINE_IMAGE_VERSION"`
	// KubernetesAutoUpdate and MachineImageAutoUpdate let Gardener update the cluster by itself.
	KubernetesAutoUpdate   bool `env:"KEB_RUNTIME_KUBERNETES_AUTO_UPDATE" envDefault:"false"`
	MachineImageAutoUpdate bool `env:"KEB_RUNTIME_MACHINE_IMAGE_AUTO_UPDATE" envDefault:"false"`
	// FloatingPool is the pool of openstack runtimes.
	FloatingPool string `env:"KEB_RUNTIME_OPENSTACK_FLOATING_POOL" envDefault:"FloatingIP-external-cp-kyma"`
	// MultiZone puts new runtimes of the plans azure, aws, gcp and preview into three zones instead of one.
	MultiZone bool `env:"KEB_RUNTIME_MULTI_ZONE" envDefault:"false"`
	// Purpose is that of new runtimes whose order and plan have none.
	Purpose string `env:"KEB_RUNTIME_PURPOSE" envDefault:"development"`
	// TrialNodes is the number of nodes of trial runtimes, also from their next upgrade on; 0 means that of the plan.
	TrialNodes int `env:"KEB_RUNTIME_TRIAL_NODES" envDefault:"1"`
	// ControlPlaneFailureTolerance is "node" or "zone" for new runtimes of the plans azure, aws, gcp and preview; empty means none.
	ControlPlaneFailureTolerance string `env:"KEB_RUNTIME_CONTROL_PLANE_FAILURE_TOLERANCE"`
	// DNSProvidersFile is a YAML file with the DNS providers of new runtimes: a list "providers" of domainsInclude, primary,
	// secretName and type. Without a file runtimes have Gardener's own.
	DNSProvidersFile string `env:"KEB_RUNTIME_DNS_PROVIDERS_FILE"`

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
	// ProvisionerURL is required.
	ProvisionerURL string `env:"KEB_PROVISIONER_URL"`
	// ProvisionerTimeout is the deadline of one call. It is less than the original's 120 s, as it must leave the step
	// time to report within its execution limit in the process file.
	ProvisionerTimeout time.Duration `env:"KEB_PROVISIONER_TIMEOUT" envDefault:"45s"`
}

// Validate names every field that cannot work.
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
		errs = append(errs, fmt.Errorf("KEB_RUNTIME_CONTROL_PLANE_FAILURE_TOLERANCE is %q: want node, zone or nothing", c.ControlPlaneFailureTolerance))
	}
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
