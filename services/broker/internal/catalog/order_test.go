package catalog

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kyma-project/keb/libs/event"
)

const shootID = "1abc2def-0000-4000-8000-000000000000"

func resolve(t *testing.T, c *Catalog, plan, region, parameters string) (*Resolved, error) {
	t.Helper()
	p, ok := specPlan(plan)
	if !ok {
		t.Fatalf("no plan %s", plan)
	}
	return c.Resolve(Order{
		PlanID: p.ID, PlatformRegion: region, InstanceID: "i 1", UserID: "user@example.org",
		Parameters: json.RawMessage(parameters), ShootID: shootID,
	})
}

func TestResolve_Order_GetsPlanDefaults(t *testing.T) {
	t.Parallel()
	c := newCatalog(t, nil)
	for _, tc := range []struct {
		plan, region, parameters string
		runtime                  event.Runtime
		machine                  string
		low, high, volume        float64
	}{
		{Azure, "", `{"name":"n"}`, event.Runtime{Provider: "azure", Region: "eastus"}, "Standard_D4_v3", 3, 20, 50},
		{AzureLite, "", `{"name":"n"}`, event.Runtime{Provider: "azure", Region: "eastus"}, "Standard_D4_v3", 2, 10, 50},
		{AWS, "", `{"name":"n"}`, event.Runtime{Provider: "aws", Region: "eu-central-1"}, "m5.xlarge", 3, 20, 50},
		{
			AWS, "", `{"name":"n","region":"us-east-1","machineType":"m5.2xlarge","autoScalerMin":4.0,"autoScalerMax":5,"volumeSizeGb":80}`,
			event.Runtime{Provider: "aws", Region: "us-east-1"},
			"m5.2xlarge", 4, 5, 80,
		},
		{GCP, "", `{"name":"n"}`, event.Runtime{Provider: "gcp", Region: "europe-west3"}, "n2-standard-4", 3, 20, 50},
		{OpenStack, "", `{"name":"n"}`, event.Runtime{Provider: "openstack", Region: "eu-de-2"}, "g_c4_m16", 4, 8, 0},
		{Preview, "", `{"name":"n"}`, event.Runtime{Provider: "aws", Region: "eu-central-1"}, "m5.xlarge", 3, 20, 50},
		{Azure, "cf-ch20", `{"name":"n"}`, event.Runtime{Provider: "azure", Region: "switzerlandnorth"}, "Standard_D4_v3", 3, 20, 50},
		{AWS, "cf-eu11", `{"name":"n"}`, event.Runtime{Provider: "aws", Region: "eu-central-1"}, "m5.xlarge", 3, 20, 50},
		{OpenStack, "", `{"name":"n","region":"eu-de-2"}`, event.Runtime{Provider: "openstack", Region: "eu-de-2"}, "g_c4_m16", 4, 8, 0},
		{AzureLite, "cf-ch20", `{"name":"n"}`, event.Runtime{Provider: "azure", Region: "switzerlandnorth"}, "Standard_D4_v3", 2, 10, 50},
		{Free, "cf-us20", `{"name":"n"}`, event.Runtime{Provider: "azure", Region: "eastus"}, "Standard_D4_v3", 1, 1, 50},
		{Free, "cf-ch20", `{"name":"n"}`, event.Runtime{Provider: "azure", Region: "eastus"}, "Standard_D4_v3", 1, 1, 50},
		{Trial, "cf-eu20", `{"name":"n"}`, event.Runtime{Provider: "azure", Region: "eastus"}, "Standard_D4_v3", 1, 1, 50},
		{Trial, "cf-eu20", `{"name":"n","provider":"AWS"}`, event.Runtime{Provider: "aws", Region: "eu-west-1"}, "m5.xlarge", 1, 1, 50},
		{Trial, "cf-eu20", `{"name":"n","provider":"GCP"}`, event.Runtime{Provider: "gcp", Region: "europe-west3"}, "n2-standard-4", 1, 1, 30},
		{Trial, "cf-ch20", `{"name":"n","region":"us"}`, event.Runtime{Provider: "azure", Region: "switzerlandnorth"}, "Standard_D4_v3", 1, 1, 50},
		{
			Free, "cf-eu10", `{"name":"n","region":"us-west-1","autoScalerMin":7}`,
			event.Runtime{Provider: "aws", Region: "us-west-1"},
			"m5.xlarge", 1, 1, 50,
		},
		{Trial, "cf-eu10", `{"name":"n"}`, event.Runtime{Provider: "azure", Region: "westeurope"}, "Standard_D4_v3", 1, 1, 50},
		{Trial, "cf-us10", `{"name":"n"}`, event.Runtime{Provider: "azure", Region: "eastus"}, "Standard_D4_v3", 1, 1, 50},
		{Trial, "cf-apj21", `{"name":"n","provider":"AWS"}`, event.Runtime{Provider: "aws", Region: "ap-southeast-1"}, "m5.xlarge", 1, 1, 50},
		{
			Trial, "cf-eu10", `{"name":"n","provider":"gcp","region":"asia","machineType":"n2-standard-48"}`,
			event.Runtime{Provider: "gcp", Region: "asia-south1"},
			"n2-standard-4", 1, 1, 30,
		},
	} {
		t.Run(tc.plan+" "+tc.region+" "+tc.parameters, func(t *testing.T) {
			t.Parallel()
			r, err := resolve(t, c, tc.plan, tc.region, tc.parameters)
			require.NoError(t, err)
			tc.runtime.Name, tc.runtime.ShootName = "n", "c-1abc2de"
			tc.runtime.ShootDomain = "c-1abc2de.kyma.example.org"
			if diff := cmp.Diff(tc.runtime, r.Runtime); diff != "" {
				t.Error(diff)
			}
			var e struct {
				MachineType, Region, Provider, KymaVersion string
				AutoScalerMin, AutoScalerMax, VolumeSizeGb float64
				OIDC                                       OIDC
				Administrators                             []string
			}
			require.NoError(t, json.Unmarshal(r.Effective, &e))
			if e.MachineType != tc.machine || e.AutoScalerMin != tc.low || e.AutoScalerMax != tc.high || e.VolumeSizeGb != tc.volume {
				t.Errorf("effective parameters are %s", r.Effective)
			}
			if e.Region != tc.runtime.Region || e.Provider != tc.runtime.Provider || e.KymaVersion != "" {
				t.Errorf("effective parameters are %s", r.Effective)
			}
			if diff := cmp.Diff(DefaultOIDC(), e.OIDC); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]string{"user@example.org"}, e.Administrators); diff != "" {
				t.Error(diff)
			}
			if r.DashboardURL != "https://dashboard.example.org/?kubeconfigID=i+1" {
				t.Errorf("dashboard is %s", r.DashboardURL)
			}
		})
	}
}

func TestResolve_InvalidMember_NamesItAndTheRule(t *testing.T) {
	t.Parallel()
	c := newCatalog(t, nil)
	for _, tc := range []struct{ plan, parameters, pointer, allowed string }{
		{Azure, ``, "/name", "is required"},
		{Azure, `{}`, "/name", "is required"},
		{Azure, `[]`, "parameters", "object"},
		{Azure, `"x"`, "parameters", "object"},
		{Azure, `{"name":""}`, "/name", "at least 1"},
		{Azure, `{"name":"a b"}`, "/name", "^[a-zA-Z0-9-]*$"},
		{Azure, `{"name":"n","region":"mars"}`, "/region", "eastus"},
		{Azure, `{"name":"n","machineType":"m5.xlarge"}`, "/machineType", "Standard_D4_v3"},
		{AzureLite, `{"name":"n","machineType":"Standard_D8_v3"}`, "/machineType", "must be one of Standard_D4_v3"},
		{Azure, `{"name":"n","autoScalerMin":2}`, "/autoScalerMin", "at least 3"},
		{Azure, `{"name":"n","autoScalerMax":81}`, "/autoScalerMax", "at most 80"},
		{Azure, `{"name":"n","autoScalerMin":"4"}`, "/autoScalerMin", "type integer"},
		{Azure, `{"name":"n","autoScalerMin":1e400000}`, "/autoScalerMin", "fits into 64 bits"},
		{Azure, `{"name":"n","x":{"y":[0,1e700]}}`, "/x/y/1", "fits into 64 bits"},
		{Azure, `{"name":"n","autoScalerMin":9,"autoScalerMax":5}`, "/autoScalerMin (9)", "/autoScalerMax (5)"},
		{Azure, `{"name":"n","autoScalerMin":21}`, "/autoScalerMin (21)", "/autoScalerMax (20, the plan's default)"},
		{Azure, `{"name":"n","oidc":{"clientID":"c"}}`, "/oidc/issuerURL", "is required"},
		{Azure, `{"name":"n","oidc":{"clientID":" ","issuerURL":"https://e.org"}}`, "/oidc/clientID", "not be empty"},
		{Azure, `{"name":"n","oidc":{"clientID":"c","issuerURL":"http://e.org"}}`, "/oidc/issuerURL", "https"},
		{Azure, `{"name":"n","oidc":{"clientID":"c","issuerURL":"https://e.org","signingAlgs":["HS256"]}}`, "/oidc/signingAlgs/0", "RS256"},
		{Azure, `{"name":"n","administrators":[1]}`, "/administrators/0", "type string"},
		{Azure, `{"name":"n","volumeSizeGb":"big"}`, "/volumeSizeGb", "type integer"},
		{AWS, `{"name":"n","machineType":"m6i.xlarge"}`, "/machineType", "m5.xlarge"},
		{Trial, `{"name":"n","region":"mars"}`, "/region", "europe, us, asia"},
		{Trial, `{"name":"n","provider":"openstack"}`, "/provider", "azure, aws, gcp"},
		{Free, `{"name":"n","region":"westeurope"}`, "/region", "eu-central-1"},
		{OwnCluster, `{"name":"n"}`, "/kubeconfig", "/shootName"},
		{OwnCluster, `{"name":"n","kubeconfig":"%%%","shootName":"s","shootDomain":"d.e"}`, "/kubeconfig", "base64"},
		{OwnCluster, strings.Replace(ownClusterOrder, `"s"`, `"`+strings.Repeat("s", 64)+`"`, 1), "/shootName", "match"},
		{OwnCluster, strings.Replace(ownClusterOrder, `"s"`, `"-s"`, 1), "/shootName", "match"},
		{OwnCluster, strings.Replace(ownClusterOrder, `d.org`, strings.Repeat("d", 254), 1), "/shootDomain", "at most 253 characters"},
		{Azure, `{"name":"n","maxSurge":0}`, "/maxSurge", "/maxUnavailable"},
		{Azure, `{"name":"n","maxSurge":0.0,"maxUnavailable":0}`, "/maxSurge", "/maxUnavailable"},
		{Azure, `{"name":"n","x":"` + strings.Repeat("x", 70_000) + `"}`, "parameters", "65536 bytes"},
	} {
		_, err := resolve(t, c, tc.plan, "", tc.parameters)
		if err == nil || !strings.Contains(err.Error(), tc.pointer) || !strings.Contains(err.Error(), tc.allowed) {
			t.Errorf("%s %.80s: %v, want %q and %q", tc.plan, tc.parameters, err, tc.pointer, tc.allowed)
		}
		if _, ok := errors.AsType[Problems](err); !ok {
			t.Errorf("%s %.80s: error is a %T", tc.plan, tc.parameters, err)
		}
	}
}

const kubeconfig = `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: "https://api.example.org"}}]
users: [{name: u, user: {token: CANARY}}]
`

func own(t *testing.T, c *Catalog, kubeconfig string) (*Resolved, error) {
	t.Helper()
	return resolve(t, c, OwnCluster, "", `{"name":"n","shootName":"s-1","shootDomain":"s-1.example.org","kubeconfig":"`+
		base64.StdEncoding.EncodeToString([]byte(kubeconfig))+`"}`)
}

func TestResolve_OwnCluster_SeparatesKubeconfig(t *testing.T) {
	t.Parallel()
	r, err := own(t, newCatalog(t, nil), kubeconfig)
	require.NoError(t, err)
	if string(r.Kubeconfig) != kubeconfig {
		t.Errorf("kubeconfig is %q", r.Kubeconfig)
	}
	for _, raw := range []json.RawMessage{r.Sent, r.Effective} {
		if strings.Contains(string(raw), "kubeconfig") {
			t.Errorf("parameters hold a kubeconfig: %s", raw)
		}
	}
	want := event.Runtime{Name: "n", ShootName: "s-1", ShootDomain: "s-1.example.org", Provider: "custom"}
	if diff := cmp.Diff(want, r.Runtime); diff != "" {
		t.Error(diff)
	}
	if r.DashboardURL != "https://dashboard.example.org" {
		t.Errorf("dashboard is %s", r.DashboardURL)
	}
}

// The workers reject a kubeconfig if any of its users runs a program, not only the user of the current context.
func TestResolve_KubeconfigOfManyClusters_KeepsCurrentOne(t *testing.T) {
	t.Parallel()
	r, err := own(t, newCatalog(t, nil), `
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}, {name: c2, context: {cluster: k2, user: u2}}]
clusters: [{name: k, cluster: {server: "https://api.example.org"}}, {name: k2, cluster: {server: "https://x", certificate-authority: /x}}]
users: [{name: u, user: {token: CANARY}}, {name: u2, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: x}}}]
`)
	require.NoError(t, err)
	got, err := clientcmd.Load(r.Kubeconfig)
	require.NoError(t, err)
	want, err := clientcmd.Load([]byte(kubeconfig))
	require.NoError(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestResolve_KubeconfigWithReferences_IsRejected(t *testing.T) {
	t.Parallel()
	c := newCatalog(t, nil)
	replace := func(old, with string) string { return strings.Replace(kubeconfig, old, with, 1) }
	for _, tc := range []struct{ name, kubeconfig, want string }{
		{"not YAML", "CANARY: [", "YAML or JSON"},
		{"no context", replace("current-context: c", "current-context: x"), "current-context"},
		{"no cluster", replace("name: k, cluster", "name: z, cluster"), "cluster"},
		{"no user", replace("name: u, user", "name: z, user"), "user"},
		{"http", replace("https://api", "http://api"), "https"},
		{"exec", replace("token: CANARY", "exec: {apiVersion: client.authentication.k8s.io/v1, command: CANARY}"), "exec"},
		{"token file", replace("token: CANARY", "tokenFile: /CANARY"), "files"},
		{"certificate file", replace(`.org"`, `.org", certificate-authority: /CANARY`), "files"},
		{"no credentials", replace("token: CANARY", "as: CANARY"), "token"},
		{"two ways to log on", replace("token: CANARY", "token: CANARY, username: CANARY, password: CANARY"), "one valid way"},
		{"certificate without key", replace("token: CANARY", "client-certificate-data: Q0FOQVJZ"), "valid cluster"},
		{"CA that is no certificate", replace(`.org"`, `.org", certificate-authority-data: Q0FOQVJZ`), "valid cluster"},
		{"CA that is not verified", replace(`.org"`, `.org", certificate-authority-data: Q0FOQVJZ, insecure-skip-tls-verify: true`), "valid cluster"},
	} {
		_, err := own(t, c, tc.kubeconfig)
		if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "/kubeconfig") {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
		if err != nil && strings.Contains(err.Error(), "CANARY") {
			t.Errorf("%s: the error repeats the kubeconfig: %v", tc.name, err)
		}
	}
}

func TestResolve_ServerSideMembers_AreDropped(t *testing.T) {
	t.Parallel()
	const order = `{"name":"n","targetSecret":"another account's","licence_type":"x","euAccess":true,"kymaVersion":"9.9.9","kubeconfig":"CANARY"}`
	r, err := resolve(t, newCatalog(t, nil), AzureLite, "", order)
	require.NoError(t, err)
	var e map[string]any
	require.NoError(t, json.Unmarshal(r.Effective, &e))
	if e["targetSecret"] != nil || e["licence_type"] != nil || e["kymaVersion"] != nil {
		t.Errorf("effective parameters are %s", r.Effective)
	}
	if strings.Contains(string(r.Sent)+string(r.Effective), "CANARY") {
		t.Error("a kubeconfig that the plan does not know is kept")
	}
	if e["euAccess"] != false {
		t.Errorf("euAccess is %v", e["euAccess"])
	}
	r, err = resolve(t, newCatalog(t, func(c *Config) { c.OnDemandVersions = true }), Azure, "", order)
	if err != nil || !strings.Contains(string(r.Effective), `"kymaVersion":"9.9.9"`) {
		t.Errorf("on-demand version: %v", err)
	}
}

// Parameters that the provisioner chooses by default are set only if they were ordered.
func TestResolve_SurgeZonesAndPurpose_AreLeftToTheProvisioner(t *testing.T) {
	t.Parallel()
	c := newCatalog(t, nil)
	for _, s := range specs {
		if s.Name == OwnCluster {
			continue
		}
		r, err := resolve(t, c, s.Name, "", `{"name":"n"}`)
		require.NoError(t, err)
		got, err := members(r.Effective)
		require.NoError(t, err)
		for _, name := range []string{"maxSurge", "maxUnavailable", "zones", "zonesCount", "purpose", "licence_type"} {
			if value, ok := got[name]; ok {
				t.Errorf("%s: %s is %v", s.Name, name, value)
			}
		}
	}
	r, err := resolve(t, c, Free, "", `{"name":"n","zones":["a"],"purpose":"testing","zonesCount":"not read"}`)
	require.NoError(t, err)
	got, err := members(r.Effective)
	if err != nil || got["purpose"] != "testing" || !reflect.DeepEqual(got["zones"], []any{"a"}) {
		t.Errorf("effective parameters are %s, %v; want zones and purpose as ordered", r.Effective, err)
	}
}

func TestResolve_PartialOIDC_GetsDefaults(t *testing.T) {
	t.Parallel()
	r, err := resolve(t, newCatalog(t, nil), Azure, "",
		`{"name":"n","oidc":{"clientID":"c","issuerURL":"https://e.org","usernameClaim":"email"},"administrators":["a","b"]}`)
	require.NoError(t, err)
	var e struct {
		OIDC           OIDC
		Administrators []string
	}
	require.NoError(t, json.Unmarshal(r.Effective, &e))
	want := DefaultOIDC()
	want.ClientID, want.IssuerURL, want.UsernameClaim = "c", "https://e.org", "email"
	if diff := cmp.Diff(want, e.OIDC); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"a", "b"}, e.Administrators); diff != "" {
		t.Error(diff)
	}
}

// Any order is either rejected with a reason, or results in JSON objects, and nothing panics.
func FuzzResolve(f *testing.F) {
	c, err := New(config())
	require.NoError(f, err)
	for _, seed := range []string{
		`{"name":"n"}`, `{"name":"n","autoScalerMin":1e99999999}`, `{"name":"n","autoScalerMin":4,"autoScalerMax":3}`,
		`{"name":"n","oidc":{"clientID":"c","issuerURL":"https://e.org","signingAlgs":["RS256"]}}`, `{"name":"0","":1e700}`, `[`, `null`, `{"a":{}}`,
		`{"name":"n","shootName":"s","shootDomain":"d","kubeconfig":"YTogYg=="}`, `{"name":"n","zones":["a","b","c"]}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, parameters string) {
		for _, s := range specs {
			r, err := c.Resolve(Order{PlanID: s.ID, InstanceID: "i", Parameters: json.RawMessage(parameters), ShootID: shootID})
			if err != nil {
				if err.Error() == "" {
					t.Errorf("%s: empty error", s.Name)
				}
				continue
			}
			var sent, effective map[string]any
			if json.Unmarshal(r.Sent, &sent) != nil || json.Unmarshal(r.Effective, &effective) != nil || sent == nil {
				t.Errorf("%s: %q became %s and %s", s.Name, parameters, r.Sent, r.Effective)
			}
		}
	})
}
