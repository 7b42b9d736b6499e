package kube

import (
	"errors"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
)

// SystemGardener is the name of Gardener in errors, metrics and descriptions.
const SystemGardener = "gardener"

// Gardener is the connection to the Gardener project. Workers that use it embed it in their configuration.
type Gardener struct {
	// GardenerKubeconfig is the path of a kubeconfig. It takes precedence over GardenerURL and GardenerToken. Either a kubeconfig or a
	// URL is required.
	GardenerKubeconfig string        `env:"KEB_GARDENER_KUBECONFIG"`
	GardenerURL        string        `env:"KEB_GARDENER_URL"`
	GardenerToken      string        `env:"KEB_GARDENER_TOKEN" envDefault:"keb"`
	GardenerTimeout    time.Duration `env:"KEB_GARDENER_TIMEOUT" envDefault:"30s"`
	// Project is the Gardener project; its namespace is "garden-<project>".
	Project string `env:"KEB_GARDENER_PROJECT" envDefault:"kyma"`
}

// Validate reports every invalid field.
func (c Gardener) Validate() error {
	var errs []error
	if c.GardenerKubeconfig == "" {
		errs = append(errs, extclient.CheckURL("KEB_GARDENER_URL (or KEB_GARDENER_KUBECONFIG)", c.GardenerURL))
	}
	if c.Project == "" {
		errs = append(errs, errors.New("KEB_GARDENER_PROJECT is empty: want the name of a Gardener project"))
	}
	return errors.Join(errs...)
}

// Open creates a client of the project.
func (c Gardener) Open(deps extclient.Deps) (*Client, error) {
	return Open(SystemGardener, Config{
		Kubeconfig: c.GardenerKubeconfig, URL: c.GardenerURL, Token: c.GardenerToken, Timeout: c.GardenerTimeout,
	}, deps)
}

// Namespace returns the namespace of the project.
func (c Gardener) Namespace() string { return "garden-" + c.Project }
