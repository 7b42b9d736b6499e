package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/kyma-project/keb/libs/osb"
)

// Config holds the settings of an installation for the catalog.
type Config struct {
	// Plans are the names of the offered plans, in any order.
	Plans []string
	// DefaultRegion is the platform region of requests whose path names no region.
	DefaultRegion string
	// TrialProvider is the provider of plan trial for orders that name no provider: azure, aws or gcp.
	TrialProvider string
	// LandscapeURL is the URL of the dashboard, without a query.
	LandscapeURL string
	// ShootDomainSuffix is the end of each runtime's domain, after the name of the shoot.
	ShootDomainSuffix string
	// OnDemandVersions allows an order to choose kymaVersion and overridesVersion.
	OnDemandVersions bool
	// AdditionalParameters includes oidc and administrators in the schemas. The broker accepts them in any case.
	AdditionalParameters bool
	// MaintenanceVersion is the semantic version in maintenance_info. Empty publishes no maintenance_info.
	MaintenanceVersion string
	// Modified is the time of the last change of the catalog's configuration. Zero omits it.
	Modified time.Time
	// MaximumPolling is the time after which platforms stop polling.
	MaximumPolling time.Duration
	// OIDC is the default of orders without oidc.
	OIDC     OIDC
	Bindings Bindings
	// PlanChanges lists the plans that the instances of a plan may change to, by plan name. Both plans must have the same provider. A
	// free instance can change to a plan with the provider of its runtime.
	PlanChanges map[string][]string
}

// Catalog is the set of offered plans. It is read-only and safe for concurrent use.
type Catalog struct {
	cfg      Config
	known    []spec
	variants map[variantKey]*variant
	// updates are the schemas of updates by plan id. They include disabled plans: an instance can exist longer than its plan is
	// enabled.
	updates map[string]*jsonschema.Schema
	// binding is the schema of the parameters of bindings, the same for all plans.
	binding *jsonschema.Schema
}

// variantKey holds the properties of a platform region that determine its offers.
type variantKey struct {
	provider string
	eu       bool
}

type variant struct {
	document *osb.Catalog
	plans    map[string]*offer
}

// offer is one plan as offered in the platform regions of a variant.
type offer struct {
	spec     spec
	provider string
	order    *jsonschema.Schema
}

var (
	semanticVersion = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)
	domain          = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)
)

// New builds and validates the catalog. The error reports every invalid setting.
func New(cfg Config) (*Catalog, error) {
	return build(cfg, specs)
}

func build(cfg Config, known []spec) (*Catalog, error) {
	if err := errors.Join(cfg.check(known), unique(known)); err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	c := &Catalog{cfg: cfg, known: known, variants: make(map[variantKey]*variant), updates: make(map[string]*jsonschema.Schema)}
	compiled := schemas{}
	for _, s := range known {
		_, update, err := compiled.add(s, changeSchema(s))
		if err != nil {
			return nil, fmt.Errorf("catalog: %w", err)
		}
		c.updates[s.ID] = update
	}
	var err error
	if _, c.binding, err = compiled.add(spec{}, cfg.Bindings.schema()); err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	for _, provider := range []string{ProviderAWS, ProviderAzure} {
		for _, eu := range []bool{false, true} {
			v, err := c.buildVariant(compiled, known, provider, eu)
			if err != nil {
				return nil, fmt.Errorf("catalog: %w", err)
			}
			c.variants[variantKey{provider, eu}] = v
		}
	}
	return c, nil
}

func (cfg Config) check(known []spec) error {
	var errs []error
	names := make([]string, len(known))
	for i, s := range known {
		names[i] = s.Name
	}
	if len(cfg.Plans) == 0 {
		errs = append(errs, errors.New("KEB_PLANS: no plan is enabled; known plans are "+strings.Join(names, ", ")))
	}
	for _, name := range cfg.Plans {
		if !slices.Contains(names, name) {
			errs = append(errs, fmt.Errorf("KEB_PLANS: enabled plan %q is not known; known plans are %s", name, strings.Join(names, ", ")))
		}
	}
	if !slices.Contains(trialProviders, cfg.TrialProvider) {
		errs = append(errs, fmt.Errorf("KEB_TRIAL_PROVIDER: trial provider %q must be one of %s", cfg.TrialProvider, strings.Join(trialProviders, ", ")))
	}
	if u, err := url.Parse(cfg.LandscapeURL); err != nil || u.Host == "" || u.RawQuery != "" {
		errs = append(errs, fmt.Errorf("KEB_LANDSCAPE_DASHBOARD_URL: landscape URL %q must be an absolute URL without a query", cfg.LandscapeURL))
	}
	if !domain.MatchString(cfg.ShootDomainSuffix) {
		errs = append(errs, fmt.Errorf("KEB_SHOOT_DOMAIN_SUFFIX: shoot domain suffix %q must be a domain name in lower case", cfg.ShootDomainSuffix))
	}
	if cfg.MaintenanceVersion != "" && !semanticVersion.MatchString(cfg.MaintenanceVersion) {
		errs = append(errs, fmt.Errorf("KEB_MAINTENANCE_VERSION: maintenance version %q must be a semantic version", cfg.MaintenanceVersion))
	}
	errs = append(errs, cfg.checkPlanChanges(known)...)
	errs = append(errs, cfg.Bindings.check(known))
	if cfg.DefaultRegion == "" {
		errs = append(errs, errors.New("KEB_DEFAULT_PLATFORM_REGION: the default platform region must not be empty"))
	}
	if cfg.MaximumPolling < time.Second {
		errs = append(errs, errors.New("KEB_OSB_MAXIMUM_POLLING: the maximum polling duration must be at least one second"))
	}
	if found := cfg.OIDC.check(); len(found) > 0 {
		errs = append(errs, fmt.Errorf("default OIDC: %w", found))
	}
	return errors.Join(errs...)
}

// checkPlanChanges rejects changes that a runtime cannot follow: a runtime keeps its provider, and a small plan its size.
func (cfg Config) checkPlanChanges(known []spec) (errs []error) {
	byName := make(map[string]spec, len(known))
	for _, s := range known {
		byName[s.Name] = s
	}
	for _, from := range slices.Sorted(maps.Keys(cfg.PlanChanges)) {
		before, ok := byName[from]
		if !ok {
			errs = append(errs, fmt.Errorf("KEB_PLAN_CHANGES: plan changes: plan %q is not known", from))
			continue
		}
		for _, to := range cfg.PlanChanges[from] {
			after, ok := byName[to]
			switch {
			case !ok:
				errs = append(errs, fmt.Errorf("KEB_PLAN_CHANGES: plan changes: plan %q is not known", to))
			case from == to:
				errs = append(errs, fmt.Errorf("KEB_PLAN_CHANGES: plan changes: plan %q changes to itself", from))
			case !slices.Contains(cfg.Plans, to):
				errs = append(errs, fmt.Errorf("KEB_PLAN_CHANGES: plan changes: plan %q is not enabled", to))
			case after.nodes.fixed || after.Name == OwnCluster || before.Name == OwnCluster:
				errs = append(errs, fmt.Errorf("KEB_PLAN_CHANGES: plan changes: no instance of plan %q can become one of plan %q", from, to))
			case before.provider != "" && before.provider != after.provider:
				errs = append(errs, fmt.Errorf("KEB_PLAN_CHANGES: plan changes: plans %q and %q have different providers", from, to))
			}
		}
	}
	return errs
}

// unique rejects plans that share an id or a name.
func unique(known []spec) error {
	var errs []error
	ids, names := map[string]bool{ServiceID: true}, map[string]bool{}
	for _, s := range known {
		if ids[s.ID] {
			errs = append(errs, fmt.Errorf("plan %q: id %s is used twice", s.Name, s.ID))
		}
		if names[s.Name] {
			errs = append(errs, fmt.Errorf("plan name %q is used twice", s.Name))
		}
		ids[s.ID], names[s.Name] = true, true
	}
	return errors.Join(errs...)
}

func (c *Catalog) buildVariant(compiled schemas, known []spec, platform string, eu bool) (*variant, error) {
	v := &variant{plans: make(map[string]*offer)}
	service := osb.Service{
		ID: ServiceID, Name: ServiceName, Description: "Managed Kubernetes with Kyma", Tags: []string{"SAP", "Kyma"},
		InstancesRetrievable: true, AllowContextUpdates: true,
		Bindable: len(c.cfg.Bindings.Plans) > 0, BindingsRetrievable: len(c.cfg.Bindings.Plans) > 0,
		Metadata: map[string]any{
			"displayName": "Kyma", "providerDisplayName": "SAP SE",
			"longDescription":  "Kyma runtime: a managed Kubernetes cluster with Kyma, to extend applications with services and functions.",
			"documentationUrl": "https://kyma-project.io", "supportUrl": "https://kyma-project.io",
		},
	}
	for _, s := range known {
		if !slices.Contains(c.cfg.Plans, s.Name) {
			withdrawn := osb.Plan{ID: s.ID, Name: s.Name, Schemas: &osb.Schemas{}}
			if err := c.offerBindings(compiled, s, &withdrawn); err != nil {
				return nil, err
			}
			service.Withdrawn = append(service.Withdrawn, withdrawn)
			continue
		}
		provider := c.provider(s, platform)
		o := &offer{spec: s, provider: provider}
		plan, err := c.plan(compiled, s, provider, eu)
		if err != nil {
			return nil, err
		}
		if _, o.order, err = compiled.add(s, orderSchema(s, provider, eu)); err != nil {
			return nil, err
		}
		v.plans[s.ID] = o
		service.Plans = append(service.Plans, plan)
	}
	v.document = &osb.Catalog{Services: []osb.Service{service}, LastModified: c.cfg.Modified}
	return v, nil
}

// provider returns the provider of a plan's clusters. An order for a trial can name another provider.
func (c *Catalog) provider(s spec, platform string) string {
	switch s.Name {
	case Free:
		return platform
	case Trial:
		return c.cfg.TrialProvider
	}
	return s.provider
}

func (c *Catalog) plan(compiled schemas, s spec, provider string, eu bool) (osb.Plan, error) {
	create, _, err := compiled.add(s, createSchema(s, provider, eu, c.cfg.AdditionalParameters))
	if err != nil {
		return osb.Plan{}, err
	}
	update, _, err := compiled.add(s, updateSchema(s, c.cfg.AdditionalParameters))
	if err != nil {
		return osb.Plan{}, err
	}
	p := osb.Plan{
		ID: s.ID, Name: s.Name, Description: s.description, Free: &s.free,
		Metadata: map[string]any{"displayName": s.display},
		Schemas: &osb.Schemas{ServiceInstance: &osb.InstanceSchemas{
			Create: &osb.InputSchema{Parameters: create}, Update: &osb.InputSchema{Parameters: update},
		}},
		MaximumPollingDuration: int(c.cfg.MaximumPolling / time.Second),
	}
	if len(c.cfg.PlanChanges[s.Name]) > 0 {
		updateable := true
		p.PlanUpdateable = &updateable
	}
	if err := c.offerBindings(compiled, s, &p); err != nil {
		return osb.Plan{}, err
	}
	if c.cfg.MaintenanceVersion != "" {
		p.MaintenanceInfo = &osb.MaintenanceInfo{Version: c.cfg.MaintenanceVersion}
	}
	return p, nil
}

// noLoader rejects references to external schemas.
type noLoader struct{}

func (noLoader) Load(address string) (any, error) {
	return nil, fmt.Errorf("reference %s leaves the schema", address)
}

// schemas are compiled schemas by their text. Plans and variants share most schemas, and compiling dominates the start-up time.
type schemas map[string]*jsonschema.Schema

// add encodes a schema and compiles it, unless an equal schema is already compiled.
func (known schemas) add(s spec, schema object) (json.RawMessage, *jsonschema.Schema, error) {
	raw, err := json.Marshal(schema)
	if err != nil {
		return nil, nil, fmt.Errorf("plan %s (%s): encode schema: %w", s.Name, s.ID, err)
	}
	if compiled, ok := known[string(raw)]; ok {
		return raw, compiled, nil
	}
	compiled, err := compile(raw)
	if err != nil {
		return nil, nil, fmt.Errorf("plan %s (%s): schema: %w", s.Name, s.ID, err)
	}
	known[string(raw)] = compiled
	return raw, compiled, nil
}

func compile(raw []byte) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	const address = "keb:///parameters"
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(noLoader{})
	compiler.DefaultDraft(jsonschema.Draft4)
	if err := compiler.AddResource(address, doc); err != nil {
		return nil, err
	}
	return compiler.Compile(address)
}

// PlatformRegion returns the platform region of a request: the one in its path, or the default.
func (c *Catalog) PlatformRegion(inPath string) string {
	if inPath == "" {
		return c.cfg.DefaultRegion
	}
	return inPath
}

// Document returns the catalog of a platform region. The result is shared and must not be changed.
func (c *Catalog) Document(platformRegion string) *osb.Catalog {
	return c.variant(c.PlatformRegion(platformRegion)).document
}

func (c *Catalog) variant(platformRegion string) *variant {
	return c.variants[variantKey{platformProvider(platformRegion), EUAccess(platformRegion)}]
}

// dashboard returns the dashboard URL of an instance. The broker has no kubeconfig of an own cluster to link.
func (cfg Config) dashboard(instanceID, plan string) string {
	if plan == OwnCluster {
		return cfg.LandscapeURL
	}
	return strings.TrimSuffix(cfg.LandscapeURL, "/") + "/?kubeconfigID=" + url.QueryEscape(instanceID)
}
