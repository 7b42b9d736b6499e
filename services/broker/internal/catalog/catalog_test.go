package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/osb"
)

func config() Config {
	return Config{
		Plans: PlanNames(), DefaultRegion: "cf-eu10", TrialProvider: ProviderAzure, LandscapeURL: "https://dashboard.example.org",
		ShootDomainSuffix: "kyma.example.org", AdditionalParameters: true,
		MaximumPolling: 25 * time.Hour, OIDC: DefaultOIDC(),
	}
}

func newCatalog(t *testing.T, change func(*Config)) *Catalog {
	t.Helper()
	cfg := config()
	if change != nil {
		change(&cfg)
	}
	c, err := New(cfg)
	require.NoError(t, err)
	return c
}

func plans(c *Catalog, region string) map[string]osb.Plan {
	out := make(map[string]osb.Plan)
	for _, p := range c.Document(region).Services[0].Plans {
		out[p.Name] = p
	}
	return out
}

func TestCatalog_Default_OffersPlansOf2023(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"azure": "4deee563-e5ec-4731-b9b1-53b42d855f0c", "azure_lite": "8cb22518-aa26-44c5-91a0-e669ec9bf443",
		"aws": "361c511f-f939-4621-b228-d0fb79a1fe15", "gcp": "ca6e5357-707f-4565-bbbd-b3ab732597c6",
		"openstack": "03b812ac-c991-4528-b5bd-08b303523a63", "trial": "7d55d31d-35ae-4438-bf13-6ffdfa107d9f",
		"free": "b1a5764e-2ea1-4f95-94c0-2b4538b37b55", "own_cluster": "03e3cb66-a4c6-4c6a-b4b0-5d42224debea",
		"preview": "5cb3d976-b85c-42ea-a636-79cadda109a9",
	}
	got := make(map[string]string)
	c := newCatalog(t, nil)
	for name, p := range plans(c, "") {
		got[name] = p.ID
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	s := c.Document("").Services[0]
	if s.ID != "47c9dcbf-ff30-448e-ab36-d3bad66ba281" || s.Name != "kymaruntime" || s.Bindable || s.PlanUpdateable {
		t.Errorf("service is %+v", s)
	}
}

func TestCatalog_DisabledPlan_IsNotOffered(t *testing.T) {
	t.Parallel()
	c := newCatalog(t, func(cfg *Config) { cfg.Plans = []string{AWS, Trial} })
	if got := plans(c, ""); len(got) != 2 || got[AWS].ID == "" || got[Trial].ID == "" {
		t.Errorf("plans are %v", got)
	}
	azure, _ := specPlan(Azure)
	if _, err := c.Resolve(Order{PlanID: azure.ID}); !errors.Is(err, ErrUnknownPlan) {
		t.Errorf("order of a plan that is not enabled: %v", err)
	}
	if p, ok := KnownPlan(azure.ID); !ok || p.Name != Azure {
		t.Errorf("plan is not known any more: %v", p)
	}
}

func specPlan(name string) (Plan, bool) {
	for _, s := range specs {
		if s.Name == name {
			return s.Plan, true
		}
	}
	return Plan{}, false
}

func TestCatalog_Restart_HasSameBytes(t *testing.T) {
	t.Parallel()
	first, err := json.Marshal(newCatalog(t, nil).Document("cf-eu10"))
	require.NoError(t, err)
	second, err := json.Marshal(newCatalog(t, nil).Document("cf-eu10"))
	require.NoError(t, err)
	if !bytes.Equal(first, second) {
		t.Error("two catalogs of one configuration differ")
	}
	for _, name := range []string{"create", "update"} {
		if !bytes.Contains(first, []byte(`"`+name+`":{"parameters":{`)) {
			t.Errorf("no %s schema in the catalog", name)
		}
	}
}

func TestCatalog_PlatformRegion_SelectsOffers(t *testing.T) {
	t.Parallel()
	c := newCatalog(t, nil)
	enum := func(region, plan string) []string {
		var s struct {
			Properties struct {
				Region struct {
					Enum []string `json:"enum"`
				} `json:"region"`
			} `json:"properties"`
		}
		require.NoError(t, json.Unmarshal(plans(c, region)[plan].Schemas.ServiceInstance.Create.Parameters, &s))
		return s.Properties.Region.Enum
	}
	for _, tc := range []struct {
		region, plan string
		want         []string
	}{
		{"cf-eu11", AWS, []string{"eu-central-1"}},
		{"cf-ch20", Azure, []string{"switzerlandnorth"}},
		{"cf-eu10", Azure, regions[ProviderAzure]},
		{"cf-us10", Free, regions[ProviderAWS]},
		{"cf-us20", Free, regions[ProviderAzure]},
		{"", Free, regions[ProviderAWS]},
		{"cf-ch20", GCP, regions[ProviderGCP]},
	} {
		if diff := cmp.Diff(tc.want, enum(tc.region, tc.plan)); diff != "" {
			t.Errorf("%s in %s: %s", tc.plan, tc.region, diff)
		}
	}
	if c.Document("cf-eu10") != c.Document("") {
		t.Error("the catalog of the default region is another one")
	}
}

func TestSchemas_EveryPlan_AreSelfContained(t *testing.T) {
	t.Parallel()
	for _, region := range []string{"cf-eu10", "cf-us20", "cf-eu11", "cf-ch20"} {
		for name, p := range plans(newCatalog(t, nil), region) {
			for kind, s := range map[string]*osb.InputSchema{
				"create": p.Schemas.ServiceInstance.Create, "update": p.Schemas.ServiceInstance.Update,
			} {
				if len(s.Parameters) > 64<<10 {
					t.Errorf("%s %s: %d bytes", name, kind, len(s.Parameters))
				}
				if !bytes.Contains(s.Parameters, []byte(`"$schema":"http://json-schema.org/draft-04/schema#"`)) ||
					bytes.Contains(s.Parameters, []byte(`"$ref"`)) {
					t.Errorf("%s %s: %s", name, kind, s.Parameters)
				}
			}
		}
	}
}

func TestNew_InvalidConfig_IsRejected(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, want string
		change     func(*Config)
	}{
		{"unknown plan", `enabled plan "azur" is not known; known plans are azure`, func(c *Config) { c.Plans = []string{"azur"} }},
		{"no plan", "no plan is enabled", func(c *Config) { c.Plans = nil }},
		{"trial provider", `trial provider "ibm" must be one of azure, aws, gcp`, func(c *Config) { c.TrialProvider = "ibm" }},
		{"landscape URL", "landscape URL", func(c *Config) { c.LandscapeURL = "dashboard" }},
		{"shoot domain", "shoot domain suffix", func(c *Config) { c.ShootDomainSuffix = "a b" }},
		{"maintenance version", "semantic version", func(c *Config) { c.MaintenanceVersion = "2.0" }},
		{"default region", "default platform region", func(c *Config) { c.DefaultRegion = "" }},
		{"polling", "maximum polling duration", func(c *Config) { c.MaximumPolling = 0 }},
		{"OIDC", "/oidc/issuerURL", func(c *Config) { c.OIDC.IssuerURL = "http://example.org" }},
		{"bindable plan", `bindable plan: "azur" is not known`, func(c *Config) { c.Bindings.Plans = []string{"azur"} }},
		{"rotatable plan", `rotatable bindings: "gc" is not known`, func(c *Config) { c.Bindings.Rotatable = []string{"gc"} }},
		{"short bindings", "the minimum of Kubernetes", func(c *Config) { c.Bindings.MinExpiration = 5 * time.Minute }},
		{"fraction of a second", "not a whole number of seconds", func(c *Config) { c.Bindings.MaxExpiration += time.Millisecond }},
		{"default of bindings", "the default 3h0m0s must be from the min", func(c *Config) { c.Bindings.Expiration = 3 * time.Hour }},
	} {
		cfg := config()
		cfg.Bindings = bindings("azure")
		tc.change(&cfg)
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}

func TestNew_DuplicatePlanID_IsRejected(t *testing.T) {
	t.Parallel()
	twice := append([]spec{}, specs...)
	twice[1].ID = twice[0].ID
	_, err := build(config(), twice)
	if err == nil || !strings.Contains(err.Error(), twice[0].ID) || !strings.Contains(err.Error(), "azure_lite") {
		t.Errorf("error is %v", err)
	}
}

func TestNew_InvalidSchema_NamesThePlan(t *testing.T) {
	t.Parallel()
	for _, s := range []object{
		{"$schema": draft04, "type": "objekt"},
		{"$schema": draft04, "$ref": "https://example.org/other.json"},
		{"$schema": draft04, "properties": object{"name": object{"pattern": "("}}},
	} {
		if _, _, err := (schemas{}).add(specs[0], s); err == nil || !strings.Contains(err.Error(), specs[0].ID) {
			t.Errorf("%v: %v", s, err)
		}
	}
}
