package broker

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/kyma-project/keb/libs/access"
	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/services/broker/internal/auth"
	"github.com/kyma-project/keb/services/broker/internal/catalog"
	"github.com/kyma-project/keb/services/broker/internal/kubeconfig"
)

// Config is the broker's configuration, read from the environment. Start from Defaults.
type Config struct {
	// User and Password are the basic credentials of the platform; both or neither.
	User     string `env:"KEB_OSB_USER"`
	Password string `env:"KEB_OSB_PASSWORD"`

	// JWTIssuer turns on bearer tokens: it must have issued them, for JWTAudience, with JWTScope. The keys are at JWTKeySetURL or in
	// JWTKeySetFile (JWKS); one of the two.
	JWTIssuer     string `env:"KEB_OSB_JWT_ISSUER"`
	JWTAudience   string `env:"KEB_OSB_JWT_AUDIENCE"`
	JWTKeySetURL  string `env:"KEB_OSB_JWT_KEY_SET_URL"`
	JWTKeySetFile string `env:"KEB_OSB_JWT_KEY_SET_FILE"`
	JWTScope      string `env:"KEB_OSB_JWT_SCOPE" envDefault:"broker:write"`

	// Access says who may use the routes for operators besides the platform. Zero is nobody.
	Access access.Config

	// Plans are the names of the plans on offer.
	Plans []string `env:"KEB_PLANS" envDefault:"azure,azure_lite,aws,gcp,openstack,trial,free,own_cluster,preview"`
	// DefaultRegion is the platform region of requests without one in their path.
	DefaultRegion string `env:"KEB_DEFAULT_PLATFORM_REGION" envDefault:"cf-eu10"`
	// TrialProvider is the provider of trials that name none.
	TrialProvider string `env:"KEB_TRIAL_PROVIDER" envDefault:"azure"`
	// LandscapeURL is the address of the dashboard.
	LandscapeURL string `env:"KEB_LANDSCAPE_DASHBOARD_URL" envDefault:"https://dashboard.kyma.local"`
	// ShootDomainSuffix follows the shoot's name in the domain of a runtime.
	ShootDomainSuffix string `env:"KEB_SHOOT_DOMAIN_SUFFIX" envDefault:"kyma.local"`
	// OnDemandVersions lets orders choose their Kyma version.
	OnDemandVersions bool `env:"KEB_ON_DEMAND_VERSIONS"`
	// AdditionalParameters publishes oidc and administrators in the plans' schemas.
	AdditionalParameters bool `env:"KEB_ADDITIONAL_PARAMETERS" envDefault:"true"`
	// MaintenanceVersion is the version in the plans' maintenance_info; empty publishes none.
	MaintenanceVersion string `env:"KEB_MAINTENANCE_VERSION"`
	// CatalogModified is the catalog's Last-Modified: move it on together with any setting that the catalog shows.
	CatalogModified time.Time `env:"KEB_CATALOG_MODIFIED" envDefault:"2026-11-21T00:00:00Z"`
	// RequireOrgSpace refuses orders without organization_guid and space_guid.
	RequireOrgSpace bool `env:"KEB_REQUIRE_ORG_SPACE"`
	// EUAccounts are the global accounts that may order in platform regions with EU access; others get EURejection.
	EUAccounts  []string `env:"KEB_EU_ACCESS_ACCOUNTS"`
	EURejection string   `env:"KEB_EU_ACCESS_REJECTION" envDefault:"this global account is not allowed to order in a region with EU access: contact support"`

	// PlanChanges are the plans that the instances of a plan may change to: "azure_lite:azure,free:aws|azure".
	PlanChanges map[string]string `env:"KEB_PLAN_CHANGES"`
	// SubaccountMovement lets an update move an instance to another global account.
	SubaccountMovement bool `env:"KEB_SUBACCOUNT_MOVEMENT"`
	// SingleTrial allows a global account one instance of plan trial.
	SingleTrial bool `env:"KEB_SINGLE_TRIAL"`
	// TrialLifetime and FreeLifetime are how old instances of these plans must be to expire.
	TrialLifetime time.Duration `env:"KEB_TRIAL_LIFETIME" envDefault:"336h"`
	FreeLifetime  time.Duration `env:"KEB_FREE_LIFETIME" envDefault:"720h"`
	// TrialDocumentation is the address that trials are shown with; empty shows none.
	TrialDocumentation string `env:"KEB_TRIAL_DOCUMENTATION_URL"`
	// PublicURL is the address of this service as customers reach it. With it, instances are shown with the address of their
	// kubeconfig.
	PublicURL string `env:"KEB_BROKER_PUBLIC_URL"`

	// BindablePlans are the names of the plans whose instances can be bound. A trial or a free runtime is for trying out, and
	// of an own cluster the customer has the kubeconfig.
	BindablePlans []string `env:"KEB_BINDABLE_PLANS" envDefault:"azure,azure_lite,aws,gcp,openstack,preview"`
	// RotatablePlans are those of them whose bindings can be rotated.
	RotatablePlans []string `env:"KEB_BINDING_ROTATABLE_PLANS" envDefault:"azure,azure_lite,aws,gcp,openstack,preview"`
	// BindingExpiration is how long a binding lasts, unless its parameters say; MinBindingExpiration and MaxBindingExpiration
	// are what they may say. Whole seconds.
	BindingExpiration    time.Duration `env:"KEB_BINDING_EXPIRATION" envDefault:"10m"`
	MinBindingExpiration time.Duration `env:"KEB_BINDING_MIN_EXPIRATION" envDefault:"10m"`
	MaxBindingExpiration time.Duration `env:"KEB_BINDING_MAX_EXPIRATION" envDefault:"2h"`
	// BindingLimit is how many bindings of an instance there may be that have not expired.
	BindingLimit int `env:"KEB_BINDING_LIMIT" envDefault:"10"`
	// BindingTimeout is how long the worker runtime may take to make or remove the access of a binding, at most 25 s.
	BindingTimeout time.Duration `env:"KEB_BINDING_TIMEOUT" envDefault:"15s"`
	// BindingCleanup is how often the access of bindings that are over is removed. One that was not finished is left for the
	// same request to come again for BindingGrace.
	BindingCleanup time.Duration `env:"KEB_BINDING_CLEANUP_EVERY" envDefault:"10s"`
	BindingGrace   time.Duration `env:"KEB_BINDING_GRACE" envDefault:"1m"`
	// KubeconfigOrigins are the origins whose pages may read kubeconfigs: "*", or a list.
	KubeconfigOrigins []string `env:"KEB_KUBECONFIG_ALLOW_ORIGINS" envDefault:"*"`

	// SealKeys is the keyring for credentials: "id1:base64key,id2:base64key", see package seal. Required.
	SealKeys string `env:"KEB_SEAL_KEYS"`

	// ResealEvery is how often secrets that were sealed with an older key are looked for, besides once at the start.
	ResealEvery time.Duration `env:"KEB_BROKER_RESEAL_EVERY" envDefault:"10m"`

	// RetryAfter is when a platform is told to poll again.
	RetryAfter time.Duration `env:"KEB_OSB_RETRY_AFTER" envDefault:"10s"`
	// MaximumPolling is how long a platform polls at most: longer than any operation takes.
	MaximumPolling time.Duration `env:"KEB_OSB_MAXIMUM_POLLING" envDefault:"25h"`
	// StoreTimeout bounds each use of the database.
	StoreTimeout time.Duration `env:"KEB_BROKER_STORE_TIMEOUT" envDefault:"10s"`
	// SweepEvery is how often requests that were not published are looked for, once they are SweepAge old.
	SweepEvery time.Duration `env:"KEB_BROKER_SWEEP_EVERY" envDefault:"2s"`
	SweepAge   time.Duration `env:"KEB_BROKER_SWEEP_AGE" envDefault:"2s"`
	// RepairEvery is how often the orchestrator is asked about operations that were silent for RepairSilence.
	RepairEvery   time.Duration `env:"KEB_BROKER_REPAIR_EVERY" envDefault:"5s"`
	RepairSilence time.Duration `env:"KEB_BROKER_REPAIR_SILENCE" envDefault:"15s"`
	// KeepOperations and KeepTombstones are how long is remembered what was deleted.
	KeepOperations time.Duration `env:"KEB_BROKER_KEEP_OPERATIONS" envDefault:"168h"`
	KeepTombstones time.Duration `env:"KEB_BROKER_KEEP_TOMBSTONES" envDefault:"2160h"`
	// StepRetry is when Remove_Instance is taken up again after something that it needs was away.
	StepRetry time.Duration `env:"KEB_BROKER_STEP_RETRY" envDefault:"2s"`
}

// Defaults is a configuration with everything set that has a default.
func Defaults() Config {
	var c Config
	// The defaults are constants of the struct's tags; a test reads them.
	_ = env.ParseWithOptions(&c, env.Options{Environment: map[string]string{}})
	return c
}

// LogValue leaves the secrets out.
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

// Validate names every setting that is missing or cannot be; it needs no network.
func (c Config) Validate() error {
	_, err := c.offers()
	return err
}

// offers is the catalog of a configuration that is valid; the error is that of Validate.
func (c Config) offers() (*catalog.Catalog, error) {
	var errs []error
	if (c.User == "") != (c.Password == "") {
		errs = append(errs, errors.New("KEB_OSB_USER and KEB_OSB_PASSWORD: set both or neither"))
	}
	if c.User == "" && c.JWTIssuer == "" {
		errs = append(errs, errors.New("nobody could log on: set KEB_OSB_USER and KEB_OSB_PASSWORD, or KEB_OSB_JWT_ISSUER"))
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
	offers, err := catalog.New(c.catalog())
	if err != nil {
		errs = append(errs, err)
	}
	if u, err := url.Parse(c.PublicURL); c.PublicURL != "" && (err != nil || u.Host == "" || u.RawQuery != "") {
		errs = append(errs, fmt.Errorf("KEB_BROKER_PUBLIC_URL: %q must be an absolute URL without a query", c.PublicURL))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"KEB_TRIAL_LIFETIME", c.TrialLifetime},
		{"KEB_FREE_LIFETIME", c.FreeLifetime},
		{"KEB_OSB_RETRY_AFTER", c.RetryAfter},
		{"KEB_BROKER_STORE_TIMEOUT", c.StoreTimeout},
		{"KEB_BROKER_SWEEP_EVERY", c.SweepEvery},
		{"KEB_BROKER_REPAIR_EVERY", c.RepairEvery},
		{"KEB_BROKER_REPAIR_SILENCE", c.RepairSilence},
		{"KEB_BROKER_KEEP_OPERATIONS", c.KeepOperations},
		{"KEB_BROKER_KEEP_TOMBSTONES", c.KeepTombstones},
		{"KEB_BROKER_STEP_RETRY", c.StepRetry},
		{"KEB_BROKER_RESEAL_EVERY", c.ResealEvery},
		{"KEB_BINDING_TIMEOUT", c.BindingTimeout},
		{"KEB_BINDING_CLEANUP_EVERY", c.BindingCleanup},
		{"KEB_BINDING_GRACE", c.BindingGrace},
	} {
		if d.value <= 0 {
			errs = append(errs, fmt.Errorf("%s: %s must be positive", d.name, d.value))
		}
	}
	if c.BindingTimeout > maxBindingTimeout {
		errs = append(errs, fmt.Errorf("KEB_BINDING_TIMEOUT: %s is longer than %s, within which a request is answered", c.BindingTimeout, maxBindingTimeout))
	}
	if c.BindingLimit < 1 {
		errs = append(errs, fmt.Errorf("KEB_BINDING_LIMIT: %d must be at least 1", c.BindingLimit))
	}
	if err := kubeconfig.CheckOrigins(c.KubeconfigOrigins); err != nil {
		errs = append(errs, fmt.Errorf("KEB_KUBECONFIG_ALLOW_ORIGINS: %w", err))
	}
	return offers, errors.Join(errs...)
}

// maxBindingTimeout leaves a request time to write down what came of it.
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
