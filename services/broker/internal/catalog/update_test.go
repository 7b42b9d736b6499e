package catalog

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

var ownClusterOrder = `{"name":"n","shootName":"s","shootDomain":"d.org","kubeconfig":"` +
	base64.StdEncoding.EncodeToString([]byte(kubeconfig)) + `"}`

// ordered returns an order in the form that an update reads.
func ordered(t testing.TB, c *Catalog, plan, parameters string) Update {
	t.Helper()
	p, ok := specPlan(plan)
	if !ok {
		t.Fatalf("no plan %s", plan)
	}
	r, err := c.Resolve(Order{PlanID: p.ID, InstanceID: "i", UserID: "u", Parameters: json.RawMessage(parameters), ShootID: shootID})
	require.NoError(t, err)
	return Update{PlanID: p.ID, Runtime: r.Runtime, Sent: r.Sent, Effective: r.Effective}
}

func resolveUpdate(t testing.TB, plan, parameters, patch string) (*Changed, error) {
	t.Helper()
	c, err := New(config())
	require.NoError(t, err)
	u := ordered(t, c, plan, parameters)
	u.Parameters = json.RawMessage(patch)
	return c.ResolveUpdate(u)
}

func TestResolveUpdate_Patch_ChangesOnlyItsMembers(t *testing.T) {
	t.Parallel()
	const login = `"oidc":{"clientID":"c","issuerURL":"https://e.org"}`
	for _, tc := range []struct {
		name, plan, parameters, patch string
		// changes is empty if nothing changes.
		changes, sent string
	}{
		{"nothing", Azure, `{"name":"n"}`, ``, ``, `{"name":"n"}`},
		{"null", Azure, `{"name":"n"}`, `null`, ``, `{"name":"n"}`},
		{"unknown", Azure, `{"name":"n"}`, `{"future":{"a":1},"targetSecret":"x","expired":true}`, ``, `{"name":"n"}`},
		{"a default that is chosen", Azure, `{"name":"n"}`, `{"autoScalerMax":20.0}`, ``, `{"name":"n","autoScalerMax":20}`},
		{"machine", AWS, `{"name":"n"}`, `{"machineType":"m6i.xlarge"}`, `{"machineType":"m6i.xlarge"}`, `{"name":"n","machineType":"m6i.xlarge"}`},
		{"hidden", GCP, `{"name":"n"}`, `{"maxSurge":3,"maxUnavailable":0}`, `{"maxSurge":3,"maxUnavailable":0}`, `{"name":"n","maxSurge":3,"maxUnavailable":0}`},
		{"no surge", GCP, `{"name":"n","maxUnavailable":1}`, `{"maxSurge":0}`, `{"maxSurge":0}`, `{"name":"n","maxSurge":0,"maxUnavailable":1}`},
		{"settled but the same", Azure, `{"name":"n","volumeSizeGb":60}`, `{"name":"n","region":"eastus","volumeSizeGb":60.0}`, ``, `{"name":"n","volumeSizeGb":60}`},
		{"size of a small plan", Trial, `{"name":"n"}`, `{"machineType":"huge","autoScalerMin":7}`, ``, `{"name":"n"}`},
		{"size of an own cluster", OwnCluster, ownClusterOrder, `{"autoScalerMin":7}`, ``, `{"name":"n","shootName":"s","shootDomain":"d.org"}`},
		{
			"login to an own cluster", OwnCluster, ownClusterOrder, `{` + login + `,"administrators":["x"]}`,
			`{"administrators":["x"]}`, `{"name":"n","shootName":"s","shootDomain":"d.org","administrators":["x"]}`,
		},
		{
			"part of OIDC", Azure, `{"name":"n",` + login + `}`, `{"oidc":{"clientID":"d","signingAlgs":[],"groupsClaim":""}}`,
			`{"oidc":{"clientID":"d","groupsClaim":"groups","issuerURL":"https://e.org","signingAlgs":["RS256"],"usernameClaim":"sub","usernamePrefix":"-"}}`,
			`{"name":"n","oidc":{"clientID":"d","issuerURL":"https://e.org"}}`,
		},
		{
			"OIDC of who had none", Trial, `{"name":"n"}`, `{"oidc":{"issuerURL":"https://e.org"}}`,
			`{"oidc":{"clientID":"9bd05ed7-a930-44e6-8c79-e6defeb7dec9","groupsClaim":"groups","issuerURL":"https://e.org","signingAlgs":["RS256"],"usernameClaim":"sub","usernamePrefix":"-"}}`,
			`{"name":"n","oidc":{"issuerURL":"https://e.org"}}`,
		},
		{"administrators", Azure, `{"name":"n"}`, `{"administrators":["x"]}`, `{"administrators":["x"]}`, `{"name":"n","administrators":["x"]}`},
	} {
		got, err := resolveUpdate(t, tc.plan, tc.parameters, tc.patch)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		sameObject(t, tc.name+": changes", tc.changes, got.Parameters)
		sameObject(t, tc.name+": sent", tc.sent, got.Sent)
	}
}

func sameObject(t *testing.T, what, want string, got json.RawMessage) {
	t.Helper()
	read := func(raw []byte) (m map[string]any) {
		if len(raw) > 0 {
			if err := json.Unmarshal(raw, &m); err != nil {
				t.Errorf("%s: %v in %s", what, err, raw)
			}
		}
		return m
	}
	if diff := cmp.Diff(read([]byte(want)), read(got)); diff != "" {
		t.Errorf("%s: %s", what, diff)
	}
}

func TestResolveUpdate_Invalid_IsRejected(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ plan, parameters, patch, want string }{
		{Azure, `{"name":"n"}`, `[]`, "parameters must be of type object, not array"},
		{Azure, `{"name":"n"}`, `{"autoScalerMin":1e400}`, "parameters/autoScalerMin must be a number that fits into 64 bits"},
		{Azure, `{"name":"n"}`, `{"autoScalerMin":2}`, "parameters/autoScalerMin must be at least 3"},
		{Azure, `{"name":"n"}`, `{"autoScalerMax":81}`, "parameters/autoScalerMax must be at most 80"},
		{Azure, `{"name":"n"}`, `{"maxSurge":0}`, "parameters/maxSurge must be at least 1 unless /maxUnavailable is"},
		{Azure, `{"name":"n","maxSurge":0,"maxUnavailable":1}`, `{"maxUnavailable":0}`, "parameters/maxSurge must be at least 1 unless /maxUnavailable is"},
		{Azure, `{"name":"n"}`, `{"autoScalerMax":null}`, "parameters/autoScalerMax must be of type integer, not null"},
		{Azure, `{"name":"n","autoScalerMin":9}`, `{"autoScalerMax":8}`, "parameters/autoScalerMin (9, the current value) must not be greater than /autoScalerMax (8)"},
		{Azure, `{"name":"n"}`, `{"zones":["1"],"provider":"gcp"}`, "parameters/provider is settled when the instance is ordered, and cannot be changed by an update; parameters/zones is settled"},
		{Trial, `{"name":"n"}`, `{"region":"us"}`, "parameters/region is settled"},
		{Trial, `{"name":"n"}`, `{"administrators":null}`, "parameters/administrators must be of type array"},
		{Azure, `{"name":"n"}`, `{"oidc":{"signingAlgs":["none"]}}`, "parameters/oidc/signingAlgs/0 must be one of RS256"},
		{Azure, `{"name":"n"}`, `{"oidc":null}`, "parameters/oidc must be of type object"},
		{OwnCluster, ownClusterOrder, `{"kubeconfig":"x"}`, "parameters/kubeconfig must be base64-encoded"},
		{OwnCluster, ownClusterOrder, `{"shootDomain":"x"}`, "parameters/shootDomain is settled"},
		{Azure, `{"name":"n"}`, `{"administrators":["` + strings.Repeat("x", maxParameters) + `"]}`, "parameters must be at most"},
	} {
		got, err := resolveUpdate(t, tc.plan, tc.parameters, tc.patch)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s %.80s: %+v, %v, want %q", tc.plan, tc.patch, got, err, tc.want)
		}
	}
}

func TestPlanChanges_Impossible_AreRejected(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ from, to, want string }{
		{"x", Azure, `plan "x" is not known`},
		{Azure, "x", `plan "x" is not known`},
		{Azure, Azure, `plan "azure" changes to itself`},
		{Azure, AWS, `plans "azure" and "aws" have different providers`},
		{Azure, Trial, `no instance of plan "azure" can become one of plan "trial"`},
		{OwnCluster, Azure, `no instance of plan "own_cluster" can become one of plan "azure"`},
		{AWS, Preview, `plan "preview" is not enabled`},
	} {
		cfg := config()
		cfg.Plans = []string{Azure, AWS, Trial, OwnCluster}
		cfg.PlanChanges = map[string][]string{tc.from: {tc.to}}
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s to %s: %v, want %q", tc.from, tc.to, err, tc.want)
		}
	}
	c := newCatalog(t, func(cfg *Config) { cfg.PlanChanges = map[string][]string{AWS: {Preview}} })
	for name, p := range plans(c, "") {
		if got := p.PlanUpdateable != nil && *p.PlanUpdateable; got != (name == AWS) {
			t.Errorf("plan_updateable of %s is %t", name, got)
		}
	}
	u := ordered(t, c, AWS, `{"name":"n"}`)
	for id, want := range map[string]error{"x": ErrUnknownPlan, specs[0].ID: ErrPlanChange} {
		u.NewPlanID = id
		if _, err := c.ResolveUpdate(u); !errors.Is(err, want) {
			t.Errorf("to %s: %v, want %v", id, err, want)
		}
	}
}

// Any update is either rejected with a reason, or results in an instance that the workers can decode.
func FuzzResolveUpdate(f *testing.F) {
	cfg := config()
	cfg.PlanChanges = map[string][]string{AzureLite: {Azure}}
	c, err := New(cfg)
	require.NoError(f, err)
	lite := ordered(f, c, AzureLite, `{"name":"n","autoScalerMin":3}`)
	lite.NewPlanID = specs[0].ID
	before := []Update{
		ordered(f, c, Azure, `{"name":"n","oidc":{"clientID":"c","issuerURL":"https://e.org","a":{}}}`), ordered(f, c, Trial, `{"name":"n"}`),
		ordered(f, c, OwnCluster, ownClusterOrder), lite,
	}
	for _, seed := range []string{
		``, `{"autoScalerMin":4.0}`, `{"autoScalerMax":1e99999999}`, `{"oidc":{"clientID":"","signingAlgs":["RS256"]}}`, `[`, `null`, `{"oidc":{"x":[]}}`,
		`{"administrators":["a"],"zones":["a"],"name":"n"}`, `{"kubeconfig":"YTogYg=="}`, `{"maxSurge":0,"maxUnavailable":1000}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, patch string) {
		for _, u := range before {
			u.Parameters = json.RawMessage(patch)
			r, err := c.ResolveUpdate(u)
			if err != nil {
				if err.Error() == "" {
					t.Error("empty error")
				}
				continue
			}
			var sent, effective, changed map[string]any
			if json.Unmarshal(r.Sent, &sent) != nil || json.Unmarshal(r.Effective, &effective) != nil || sent["name"] != "n" {
				t.Fatalf("%q became %s and %s", patch, r.Sent, r.Effective)
			}
			lowest, _ := effective["autoScalerMin"].(float64)
			highest, _ := effective["autoScalerMax"].(float64)
			if lowest > highest {
				t.Errorf("%q became %s", patch, r.Effective)
			}
			if r.Parameters != nil && (json.Unmarshal(r.Parameters, &changed) != nil || len(changed) == 0) {
				t.Errorf("%q changes %s", patch, r.Parameters)
			}
			// A repeated update changes nothing.
			u.PlanID, u.NewPlanID, u.Sent, u.Effective = r.Plan.ID, "", r.Sent, r.Effective
			if again, err := c.ResolveUpdate(u); err != nil || again.Parameters != nil {
				t.Errorf("%q again: %+v, %v", patch, again, err)
			}
		}
	})
}
