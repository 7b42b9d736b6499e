package kube

import (
	"time"

	"github.com/kyma-project/keb/libs/extclient"
)

// ControlPlane is the connection to the Kyma control plane. Workers that use it embed it in their configuration.
type ControlPlane struct {
	// KCPKubeconfig is the path of a kubeconfig. It takes precedence over KCPURL and KCPToken. Either a kubeconfig or a URL is required.
	KCPKubeconfig string        `env:"KEB_KCP_KUBECONFIG"`
	KCPURL        string        `env:"KEB_KCP_URL"`
	KCPToken      string        `env:"KEB_KCP_TOKEN" envDefault:"keb"`
	KCPTimeout    time.Duration `env:"KEB_KCP_TIMEOUT" envDefault:"30s"`
}

// Validate reports every invalid field.
func (c ControlPlane) Validate() error {
	if c.KCPKubeconfig != "" {
		return nil
	}
	return extclient.CheckURL("KEB_KCP_URL (or KEB_KCP_KUBECONFIG)", c.KCPURL)
}

// Open creates a client of the control plane.
func (c ControlPlane) Open(deps extclient.Deps) (*Client, error) {
	return Open("control-plane", Config{Kubeconfig: c.KCPKubeconfig, URL: c.KCPURL, Token: c.KCPToken, Timeout: c.KCPTimeout}, deps)
}
