package broker

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/access"
	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/services/broker/internal/auth"
	"github.com/kyma-project/keb/services/broker/internal/catalog"
	"github.com/kyma-project/keb/services/broker/internal/runtimes"
)

// Config is the broker's configuration, read from the environment. Code starts from service.Defaults.
type Config struct {
	// Database is where the broker keeps its schema, and MaxConnections the size of its pool.
	Database postgres.Address
	// StatementTimeout is the deadline of a statement in the database, for tests; zero means 10 s.
	StatementTimeout time.Duration `env:"-"`
	MaxConnections   int           `env:"KEB_DATABASE_MAX_CONNECTIONS" envDefault:"16"`

	// User and Password are the basic credentials of the platform; both or neither.
	User     string `env:"KEB_OSB_USER"`
	Password string `env:"KEB_OSB_PASSWORD"`

	// JWTIssuer enables bearer tokens. A token must have this issuer, JWTAudience and JWTScope. Set either JWTKeySetURL or
	// JWTKeySetFile (JWKS) as the source of the keys.
	JWTIssuer     string `env:"KEB_OSB_JWT_ISSUER"`
	JWTAudience   string `env:"KEB_OSB_JWT_AUDIENCE"`
	JWTKeySetURL  string `env:"KEB_OSB_JWT_KEY_SET_URL"`
	JWTKeySetFile string `env:"KEB_OSB_JWT_KEY_SET_FILE"`
	JWTScope      string `env:"KEB_OSB_JWT_SCOPE" envDefault:"broker:write"`

	// Access grants access to the operator routes, in addition to the platform's credentials. The zero value grants none.
	Access access.Config

	// Plans are the names of the offered plans.
	Plans []string `env:"KEB_PLANS" envDefault:"azure,azure_lite,aws,gcp,openstack,trial,free,own_cluster,preview"`
	// DefaultRegion is the platform region of requests whose path names no region.
	DefaultRegion string `env:"KEB_DEFAULT_PLATFORM_REGION" envDefault:"cf-eu10"`
	// TrialProvider is the provider of trials that name no provider.
	TrialProvider string `env:"KEB_TRIAL_PROVIDER" envDefault:"azure"`
	// LandscapeURL is the URL of the dashboard.
	LandscapeURL string `env:"KEB_LANDSCAPE_DASHBOARD_URL" envDefault:"https://dashboard.kyma.local"`
	// ShootDomainSuffix is the end of each runtime's domain, after the name of the shoot.
	ShootDomainSuffix string `env:"KEB_SHOOT_DOMAIN_SUFFIX" envDefault:"kyma.local"`
	// OnDemandVersions allows orders to choose their Kyma version.
	OnDemandVersions bool `env:"KEB_ON_DEMAND_VERSIONS"`
	// AdditionalParameters includes oidc and administrators in the schemas of the plans.
	AdditionalParameters bool `env:"KEB_ADDITIONAL_PARAMETERS" envDefault:"true"`
	// MaintenanceVersion is the version in the plans' maintenance_info. Empty publishes no maintenance_info.
	MaintenanceVersion string `env:"KEB_MAINTENANCE_VERSION"`
	// CatalogModified is the catalog's Last-Modified. Change it together with any setting that the catalog contains.
	CatalogModified time.Time `env:"KEB_CATALOG_MODIFIED" envDefault:"2026-11-21T00:00:00Z"`
	// RequireOrgSpace rejects orders without organization_guid and space_guid.
	RequireOrgSpace bool `env:"KEB_REQUIRE_ORG_SPACE"`
	// EUAccounts may order in platform regions with EU access. EURejection is the answer to all other global accounts.
	EUAccounts  []string `env:"KEB_EU_ACCESS_ACCOUNTS"`
	EURejection string   `env:"KEB_EU_ACCESS_REJECTION" envDefault:"this global account is not allowed to order in a region with EU access: contact support"`

	// PlanChanges lists the allowed plan changes of an update: "azure_lite:azure,free:aws|azure".
	PlanChanges map[string]string `env:"KEB_PLAN_CHANGES"`
	// SubaccountMovement allows an update to move an instance to another global account.
	SubaccountMovement bool `env:"KEB_SUBACCOUNT_MOVEMENT"`
	// SingleTrial limits a global account to one instance of plan trial.
	SingleTrial bool `env:"KEB_SINGLE_TRIAL"`
	// TrialLifetime and FreeLifetime are the ages from which instances of these plans can expire.
	TrialLifetime time.Duration `env:"KEB_TRIAL_LIFETIME" envDefault:"336h"`
	FreeLifetime  time.Duration `env:"KEB_FREE_LIFETIME" envDefault:"720h"`
	// TrialDocumentation is a URL that the metadata of trials contains. Empty omits it.
	TrialDocumentation string `env:"KEB_TRIAL_DOCUMENTATION_URL"`
	// PublicURL is the URL of this service for customers. If it is set, the metadata of an instance contains the URL of its
	// kubeconfig.
	PublicURL string `env:"KEB_BROKER_PUBLIC_URL"`

	// BindablePlans are the names of the bindable plans. Trial and free runtimes are for evaluation only, and the customer
	// already has the kubeconfig of an own cluster.
	BindablePlans []string `env:"KEB_BINDABLE_PLANS" envDefault:"azure,azure_lite,aws,gcp,openstack,preview"`
	// RotatablePlans are the bindable plans whose bindings can be rotated.
	RotatablePlans []string `env:"KEB_BINDING_ROTATABLE_PLANS" envDefault:"azure,azure_lite,aws,gcp,openstack,preview"`
	// BindingExpiration is the lifetime of a binding whose parameters set none. MinBindingExpiration and MaxBindingExpiration
	// limit the lifetime that the parameters can set. Whole seconds.
	BindingExpiration    time.Duration `env:"KEB_BINDING_EXPIRATION" envDefault:"10m"`
	MinBindingExpiration time.Duration `env:"KEB_BINDING_MIN_EXPIRATION" envDefault:"10m"`
	MaxBindingExpiration time.Duration `env:"KEB_BINDING_MAX_EXPIRATION" envDefault:"2h"`
	// BindingLimit is the maximum number of unexpired bindings of an instance.
	BindingLimit int `env:"KEB_BINDING_LIMIT" envDefault:"10"`
	// BindingTimeout is the time in which the worker runtime must create or remove the access of a binding, at most 25 s.
	BindingTimeout time.Duration `env:"KEB_BINDING_TIMEOUT" envDefault:"15s"`
	// BindingCleanup is the interval at which the access of ended bindings is removed. An unfinished binding is kept for
	// BindingGrace, so that the platform can repeat its request.
	BindingCleanup time.Duration `env:"-"`
	BindingGrace   time.Duration `env:"-"`
	// KubeconfigOrigins are the origins whose pages may read kubeconfigs: "*", or a list.
	KubeconfigOrigins []string `env:"KEB_KUBECONFIG_ALLOW_ORIGINS" envDefault:"*"`

	// SealKeys is the keyring for credentials: "id1:base64key,id2:base64key", see package seal. Required.
	SealKeys string `env:"KEB_SEAL_KEYS"`

	// ResealEvery is the interval of the search for secrets that an older key sealed. The broker also searches at its start.
	ResealEvery time.Duration `env:"KEB_BROKER_RESEAL_EVERY" envDefault:"10m"`

	// RetryAfter is the polling interval that the broker suggests to platforms.
	RetryAfter time.Duration `env:"KEB_OSB_RETRY_AFTER" envDefault:"10s"`
	// MaximumPolling is the time after which platforms stop polling. It must exceed the duration of every operation.
	MaximumPolling time.Duration `env:"KEB_OSB_MAXIMUM_POLLING" envDefault:"25h"`
	// StoreTimeout is the deadline of each database call.
	StoreTimeout time.Duration `env:"-"`
	// SweepEvery is the interval of the search for unpublished requests that are at least SweepAge old.
	SweepEvery time.Duration `env:"-"`
	SweepAge   time.Duration `env:"-"`
	// RepairEvery is the interval at which the broker queries operations that sent no fact for RepairSilence.
	RepairEvery   time.Duration `env:"-"`
	RepairSilence time.Duration `env:"-"`
	// KeepOperations and KeepTombstones are the retention times of deleted data.
	KeepOperations time.Duration `env:"KEB_BROKER_KEEP_OPERATIONS" envDefault:"168h"`
	KeepTombstones time.Duration `env:"KEB_BROKER_KEEP_TOMBSTONES" envDefault:"2160h"`
	// StepRetry is the delay before Remove_Instance runs again when a dependency is unavailable.
	StepRetry time.Duration `env:"-"`
}

// completed sets the times that only tests set. They are no variables: they bound how late the broker notices that the bus or a worker was
// away, and an operator has no reason to change that.
func (c Config) completed() Config {
	c.BindingCleanup = cmp.Or(c.BindingCleanup, 10*time.Second)
	c.BindingGrace = cmp.Or(c.BindingGrace, time.Minute)
	c.StoreTimeout = cmp.Or(c.StoreTimeout, 10*time.Second)
	c.SweepEvery = cmp.Or(c.SweepEvery, 2*time.Second)
	c.SweepAge = cmp.Or(c.SweepAge, 2*time.Second)
	c.RepairEvery = cmp.Or(c.RepairEvery, 5*time.Second)
	c.RepairSilence = cmp.Or(c.RepairSilence, 15*time.Second)
	c.StepRetry = cmp.Or(c.StepRetry, 2*time.Second)
	return c
}

// LogValue omits the secrets.
func (c Config) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("user", c.User), slog.String("jwt_issuer", c.JWTIssuer), slog.String("jwt_audience", c.JWTAudience),
		slog.Any("plans", c.Plans), slog.String("default_region", c.DefaultRegion),
		slog.String("trial_provider", c.TrialProvider), slog.String("landscape_url", c.LandscapeURL),
		slog.String("shoot_domain_suffix", c.ShootDomainSuffix),
		slog.Bool("require_org_space", c.RequireOrgSpace), slog.Int("eu_accounts", len(c.EUAccounts)),
		slog.Duration("maximum_polling", c.MaximumPolling),
	)
}

// Validate reports every missing or invalid setting. It needs no network.
func (c Config) Validate() error {
	errs := []error{c.Database.Validate()}
	if (c.User == "") != (c.Password == "") {
		errs = append(errs, errors.New("KEB_OSB_USER and KEB_OSB_PASSWORD: set both or neither"))
	}
	if c.User == "" && c.JWTIssuer == "" {
		errs = append(errs, errors.New("no credentials are configured: set KEB_OSB_USER and KEB_OSB_PASSWORD, or KEB_OSB_JWT_ISSUER"))
	}
	if c.JWTIssuer != "" {
		if err := c.jwt().Validate(); err != nil {
			errs = append(errs, fmt.Errorf("KEB_OSB_JWT_*: %w", err))
		}
	}
	if err := c.Access.Validate(); err != nil {
		errs = append(errs, err)
	}
	if _, err := seal.ParseKeyring(c.SealKeys); err != nil {
		errs = append(errs, fmt.Errorf("KEB_SEAL_KEYS: %w", err))
	}
	if _, err := catalog.New(c.catalog()); err != nil {
		errs = append(errs, err)
	}
	if u, err := url.Parse(c.PublicURL); c.PublicURL != "" && (err != nil || u.Host == "" || u.RawQuery != "") {
		errs = append(errs, fmt.Errorf("KEB_BROKER_PUBLIC_URL: %q must be an absolute URL without a query", c.PublicURL))
	}
	errs = append(errs,
		service.Positive("KEB_TRIAL_LIFETIME", c.TrialLifetime),
		service.Positive("KEB_FREE_LIFETIME", c.FreeLifetime),
		service.Positive("KEB_OSB_RETRY_AFTER", c.RetryAfter),
		service.Positive("KEB_BROKER_KEEP_OPERATIONS", c.KeepOperations),
		service.Positive("KEB_BROKER_KEEP_TOMBSTONES", c.KeepTombstones),
		service.Positive("KEB_BROKER_RESEAL_EVERY", c.ResealEvery),
		service.Positive("KEB_BINDING_TIMEOUT", c.BindingTimeout),
	)
	if c.BindingTimeout > maxBindingTimeout {
		errs = append(errs, fmt.Errorf("KEB_BINDING_TIMEOUT: %s must be at most %s, to answer requests in time", c.BindingTimeout, maxBindingTimeout))
	}
	if c.MaxConnections < 1 {
		errs = append(errs, fmt.Errorf("KEB_DATABASE_MAX_CONNECTIONS: %d must be at least 1", c.MaxConnections))
	}
	if c.BindingLimit < 1 {
		errs = append(errs, fmt.Errorf("KEB_BINDING_LIMIT: %d must be at least 1", c.BindingLimit))
	}
	if err := runtimes.CheckOrigins(c.KubeconfigOrigins); err != nil {
		errs = append(errs, fmt.Errorf("KEB_KUBECONFIG_ALLOW_ORIGINS: %w", err))
	}
	return errors.Join(errs...)
}

// maxBindingTimeout leaves time to store the result before the request times out.
const maxBindingTimeout = osb.DefaultTimeout - 5*time.Second

func (c Config) jwt() auth.Config {
	return auth.Config{
		Issuer: c.JWTIssuer, Audience: c.JWTAudience, KeySetURL: c.JWTKeySetURL, KeySetFile: c.JWTKeySetFile, Scope: c.JWTScope,
	}
}

func (c Config) planChanges() map[string][]string {
	changes := make(map[string][]string, len(c.PlanChanges))
	for from, to := range c.PlanChanges {
		changes[from] = strings.Split(to, "|")
	}
	return changes
}

func (c Config) catalog() catalog.Config {
	return catalog.Config{
		Plans: c.Plans, DefaultRegion: c.DefaultRegion, TrialProvider: c.TrialProvider, LandscapeURL: c.LandscapeURL,
		ShootDomainSuffix: c.ShootDomainSuffix, OnDemandVersions: c.OnDemandVersions,
		AdditionalParameters: c.AdditionalParameters, MaintenanceVersion: c.MaintenanceVersion,
		Modified: c.CatalogModified, MaximumPolling: c.MaximumPolling, OIDC: catalog.DefaultOIDC(), PlanChanges: c.planChanges(),
		Bindings: catalog.Bindings{
			Plans: c.BindablePlans, Rotatable: c.RotatablePlans, Expiration: c.BindingExpiration,
			MinExpiration: c.MinBindingExpiration, MaxExpiration: c.MaxBindingExpiration,
		},
	}
}
