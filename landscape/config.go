package landscape

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"time"
)

// Config configures the landscape. The zero value is valid: all data is in memory, operations take no time, and every user, client id and
// secret is "keb". Only tests set the fields without a variable.
type Config struct {
	// DataDir is the folder of the journals, one per system; "" keeps all data in memory.
	DataDir string `env:"KEB_LANDSCAPE_DATA_DIR"`
	// ExternalURL is the base URL of the landscape for workers. Kubeconfigs contain it. "" derives it from each request.
	ExternalURL string `env:"KEB_LANDSCAPE_EXTERNAL_URL"`
	// ClusterTime is the creation time of a cluster; its removal and upgrades take half of it. 0 means no time.
	ClusterTime time.Duration `env:"KEB_LANDSCAPE_CLUSTER_TIME" envDefault:"3s"`
	// ReconcileTime is the time that the Reconciler, the Lifecycle Manager, a tenant of LMS and an Event Hubs namespace of Azure take. A
	// deletion and a certificate take half of it. 0 means no time.
	ReconcileTime time.Duration `env:"KEB_LANDSCAPE_RECONCILE_TIME" envDefault:"1s"`
	// CleanTime is the time after which the cleanup job releases a secret binding that is marked dirty and that no shoot uses. 0 means one
	// minute.
	CleanTime time.Duration `env:"-"`
	// KymaVersion is the version whose overrides and Kyma template exist from the start; "" means 2.20.0.
	KymaVersion string `env:"-"`
	// NextKymaVersion is a version for upgrades. The subaccount kyma-next has it from the start. "" means 2.21.0.
	NextKymaVersion string `env:"-"`
	// Bindings is the initial number of unclaimed secret bindings per hyperscaler; 0 means 500.
	Bindings int `env:"KEB_LANDSCAPE_BINDINGS"`

	AvSClientID string `env:"-"` // Its secret is empty.
	AvSUsername string `env:"-"`
	AvSPassword string `env:"-"`
	// AvSLookUp enables GET on the collection of AvS with the query parameter name. The real service is not known to support it.
	AvSLookUp        bool   `env:"KEB_LANDSCAPE_AVS_LOOK_UP"`
	EDPSecret        string `env:"-"` // Of client id edp-namespace;<any namespace>
	IASUsername      string `env:"-"`
	IASPassword      string `env:"-"`
	DirectorClientID string `env:"-"`
	DirectorSecret   string `env:"-"`
	CISClientID      string `env:"-"`
	CISSecret        string `env:"-"`
	LMSToken         string `env:"-"`
	AzureClientID    string `env:"-"`
	AzureSecret      string `env:"-"`
	// KubernetesToken is the bearer token of the control plane and of Gardener. Kubeconfigs of runtimes contain their own.
	KubernetesToken string `env:"-"`

	// DirectorLookUp enables runtimes(filter) in the Director, for a KEB with KEB_DIRECTOR_URL. Without it such a query violates the
	// contract.
	DirectorLookUp bool `env:"KEB_LANDSCAPE_DIRECTOR_LOOK_UP"`
}

// The values that replace zero values.
const (
	DefaultCredential  = "keb"
	DefaultKymaVersion = "2.20.0"
	DefaultNextVersion = "2.21.0"
	DefaultBindings    = 500
	DefaultCleanTime   = time.Minute
)

func (c Config) withDefaults() Config {
	for _, s := range []*string{
		&c.AvSClientID, &c.AvSUsername, &c.AvSPassword, &c.EDPSecret, &c.IASUsername, &c.IASPassword,
		&c.DirectorClientID, &c.DirectorSecret, &c.CISClientID, &c.CISSecret, &c.LMSToken, &c.AzureClientID, &c.AzureSecret,
		&c.KubernetesToken,
	} {
		*s = cmp.Or(*s, DefaultCredential)
	}
	c.KymaVersion = cmp.Or(c.KymaVersion, DefaultKymaVersion)
	c.NextKymaVersion = cmp.Or(c.NextKymaVersion, DefaultNextVersion)
	c.CleanTime = cmp.Or(c.CleanTime, DefaultCleanTime)
	c.Bindings = cmp.Or(c.Bindings, DefaultBindings)
	return c
}

// Validate reports every invalid field and the valid values.
func (c Config) Validate() error {
	var errs []error
	if c.ClusterTime < 0 {
		errs = append(errs, fmt.Errorf("cluster time: %s is negative, use 0s or more", c.ClusterTime))
	}
	if c.ReconcileTime < 0 {
		errs = append(errs, fmt.Errorf("reconcile time: %s is negative, use 0s or more", c.ReconcileTime))
	}
	if c.CleanTime < 0 {
		errs = append(errs, fmt.Errorf("clean time: %s is negative, use 0s for a minute or more", c.CleanTime))
	}
	if c.Bindings < 0 {
		errs = append(errs, fmt.Errorf("bindings: %d is negative, use 0 or more", c.Bindings))
	}
	if u, err := url.Parse(c.ExternalURL); c.ExternalURL != "" && (err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https")) {
		errs = append(errs, fmt.Errorf("external URL: %q is not an http or https URL", c.ExternalURL))
	}
	return errors.Join(errs...)
}
