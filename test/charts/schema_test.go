package charts_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

func TestSchema_InvalidValues_AreNamed(t *testing.T) {
	t.Parallel()
	demo := readFile(t, kebDir+"demo.yaml")
	rejects(t, kebDir, demo, map[string]string{
		`replicas: 2`:                                                  "'replicas'",
		`broker: {replicas: -1}`:                                       "/broker/replicas",
		`broker: {replica: 1}`:                                         "'replica'",
		`broker: {env: {KEB_BINDING_LIMIT: 5}}`:                        "/broker/env/KEB_BINDING_LIMIT",
		`broker: {env: {KEB_TRIAL_LIFETIME: 5h}}`:                      "KEB_TRIAL_LIFETIME",
		`broker: {env: {KEB_BROKER_PUBLIC_URL: "https://keb"}}`:        "KEB_BROKER_PUBLIC_URL",
		`jobDefaults: {env: {KEB_FREE_LIFETIME: 5h}}`:                  "KEB_FREE_LIFETIME",
		`lifetimes: {trial: 14d}`:                                      "/lifetimes/trial",
		`osb: {publicURL: keb.example}`:                                "/osb/publicURL",
		`broker: {env: {KEB_DATABASE_URL: "postgres://"}}`:             "KEB_DATABASE_URL",
		`broker: {env: {trial: x}}`:                                    "trial",
		`broker: {secretEnv: {KEB_PLANS: plans}}`:                      "/broker/secretEnv/KEB_PLANS",
		`broker: {secretEnv: {KEB_PLANS: {name: plans}}}`:              "'key'",
		`broker: {resources: {limit: {}}}`:                             "'limit'",
		`broker: {podDisruptionBudget: {minAvailable: 1}}`:             "'minAvailable'",
		`broker: {podDisruptionBudget: {maxUnavailable: half}}`:        "/broker/podDisruptionBudget/maxUnavailable",
		`orchestrator: {admission: {provision: 5}}`:                    "'admission'", // an installation of an earlier release
		`orchestrator: {overlays: {mine: x}}`:                          "mine",
		`workers: {avs: {enabled: 1}}`:                                 "/workers/avs/enabled",
		`workers: {avs: {replica: 1}}`:                                 "'replica'",
		`workers: {AVS: {}}`:                                           "AVS",
		`workers: {avs: {autoscaling: {mode: vpa}}}`:                   "/workers/avs/autoscaling/mode",
		`workers: {avs: {drainSeconds: 0}}`:                            "/workers/avs/drainSeconds",
		`workers: {avs: {env: {KEB_STAGE_KEYS: x}}}`:                   "KEB_STAGE_KEYS",
		`workers: {avs: {topologySpread: {whenUnsatisfiable: Maybe}}}`: "/workers/avs/topologySpread/whenUnsatisfiable",
		`jobs: {trial-expiry: {schedule: daily}}`:                      "/jobs/trial-expiry/schedule",
		`jobs: {trial-expired: {}}`:                                    "'trial-expired'",
		`image: {pullPolicy: Sometimes}`:                               "/image/pullPolicy",
		`image: {pullSecrets: [{name: x}]}`:                            "/image/pullSecrets/0",
		`nats: {url: "nats://user:secret@host:4222"}`:                  "/nats/url",
		`nats: {url: "http://host"}`:                                   "/nats/url",
		`nats: {bundled: {maxFile: lots}}`:                             "/nats/bundled/maxFile",
		`postgres: {url: "postgres://u:p@h/d"}`:                        "'url'",
		`postgres: {existingSecret: My_Secret}`:                        "/postgres/existingSecret",
		`access: {oidc: {issuer: "http://issuer"}}`:                    "/access/oidc/issuer",
		`access: {publicURL: "https://keb.example/console"}`:           "/access/publicURL",
		`access: {tokens: {token: secret}}`:                            "'token'",
		`log: {level: loud}`:                                           "/log/level",
		`tracing: {endpoint: otel:4318}`:                               "/tracing/endpoint",
		`networkPolicy: {externalPorts: []}`:                           "/networkPolicy/externalPorts",
		`networkPolicy: {externalPorts: [0]}`:                          "/networkPolicy/externalPorts/0",
		`networkPolicy: {metricsFrom: [{podselector: {}}]}`:            "'podselector'",
		`podMonitor: {interval: often}`:                                "/podMonitor/interval",
		`dashboards: {labels: {grafana_dashboard: 1}}`:                 "/dashboards/labels/grafana_dashboard",
		`ingress: {osb: {host: "https://keb"}}`:                        "/ingress/osb/host",
		`landscape: {env: {KEB_LANDSCAPE_ADDR: ":1"}}`:                 "KEB_LANDSCAPE_ADDR",
		// What the schema cannot say is said when the chart is rendered.
		`access: {none: true, oidc: {issuer: "https://i", audience: a, viewers: [x]}}`: "access.none: contradicts",
		`secrets: {create: false}`:              "keys.existingSecret: name the Secret",
		`nats: {url: "nats://host:4222"}`:       "nats.url: must be empty with nats.bundled.enabled",
		`nats: {bundled: {enabled: false}}`:     "nats.url: say where NATS is",
		`postgres: {bundled: {enabled: false}}`: "postgres.existingSecret: name the Secret",
		`landscape: {enabled: false}`:           "workers.avs.env.KEB_PROVISIONER_URL: is required",
		`workers: {mine: {}}`:                   "workers.mine.image: is required",
		`workers: {avs: {autoscaling: {mode: hpa, minReplicas: 5, maxReplicas: 3}}}`: "workers.avs.autoscaling.minReplicas: 5 is more than maxReplicas, 3",
		`networkPolicy: {externalPorts: [443, 5432]}`:                                "networkPolicy.externalPorts: 5432 is the port of Postgres",
		`ingress: {console: {enabled: true}}`:                                        "ingress.console.host: is required",
		`gateway: {osb: {enabled: true}}`:                                            "gateway.osb.parentRefs: is required",
		`access: {oidc: {issuer: "https://i"}}`:                                      "access.oidc.audience: is required",
		`osb: {jwt: {issuer: "https://i"}}`:                                          "osb.jwt.audience: is required",
		`osb: {jwt: {issuer: "https://i", audience: a}}`:                             "osb.jwt.keySetURL: set either",
		`{osb: {jwt: {issuer: "https://i", audience: a, keySetURL: "https://i/k"}}, broker: {secretFiles: {KEB_OSB_JWT_KEY_SET_FILE: {name: k, key: k}}}}`: "osb.jwt.keySetURL: set either",
		`workers: {avs: {autoscaling: {mode: hpa, minReplicas: 0}}}`:                                                                                       "workers.avs.autoscaling.minReplicas: must be at least 1",
		`{landscape: {enabled: false}, jobs: {subaccount-cleanup: {enabled: true, env: {KEB_CIS_CLIENT_ID: a}}}}`:                                          "jobs.subaccount-cleanup.env.KEB_CIS_CLIENT_SECRET: is required",
	})
}

// With tokens alone, jobs have no credentials unless the values give them some.
func TestJobs_TokensOnly_NeedCredentials(t *testing.T) {
	t.Parallel()
	tokens := merged(t, production, `osb: {existingSecret: "", jwt: {issuer: "https://i", audience: a, keySetURL: "https://i/keys"}}`)
	rejects(t, kebDir, tokens, map[string]string{
		"": "jobs.trial-expiry: has no credentials for the broker; set KEB_BROKER_TOKEN_URL and KEB_BROKER_CLIENT_ID in jobDefaults.env",
		"jobs: {trial-expiry: {env: {KEB_BROKER_TOKEN_URL: x}}}": "jobs.deprovision-retrigger: has no credentials",
	})
	for _, given := range []string{
		`jobDefaults: {env: {KEB_BROKER_TOKEN_URL: "https://i/token", KEB_BROKER_CLIENT_ID: jobs}, secretEnv: {KEB_BROKER_CLIENT_SECRET: {name: jobs, key: secret}}}`,
		`jobDefaults: {secretEnv: {KEB_BROKER_TOKEN_URL: {name: jobs, key: url}}}`,
		`jobs: {trial-expiry: {enabled: false}, deprovision-retrigger: {enabled: false}}`,
		`osb: {existingSecret: platform}`,
	} {
		if _, err := renderChart(t, kebDir, merged(t, tokens, given)); err != nil {
			t.Errorf("%s: %v", given, err)
		}
	}
}

// rejects wants an error that contains a text for each of some values over others.
func rejects(t *testing.T, dir, base string, wanted map[string]string) {
	t.Helper()
	for values, want := range wanted {
		if _, err := renderChart(t, dir, merged(t, base, values)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", values, err, want)
		}
	}
}

// merged puts values over others, as a second --values does.
func merged(t *testing.T, base, over string) string {
	t.Helper()
	all := map[string]any{}
	for _, text := range []string{base, over} {
		var values map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(text), &values))
		merge(all, values)
	}
	text, err := yaml.Marshal(all)
	require.NoError(t, err)
	return string(text)
}

func merge(into, from map[string]any) {
	for k, v := range from {
		under, ok := v.(map[string]any)
		if old, both := into[k].(map[string]any); ok && both {
			merge(old, under)
			continue
		}
		into[k] = v
	}
}

func TestSchema_NoValues_AllMissingAreNamed(t *testing.T) {
	t.Parallel()
	_, err := renderChart(t, kebDir, "")
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"postgres.existingSecret", "nats.url", "keys.existingSecret", "osb.existingSecret", "access:", "workers.kyma.env.KEB_KCP_URL or KEB_KCP_KUBECONFIG", "demo.yaml"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
}

func TestSchema_Closed_HasEachValue(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{kebDir, workerDir, repository + "deploy/helm/btp-manager/"} {
		var schema map[string]any
		require.NoError(t, json.Unmarshal([]byte(readFile(t, dir+"values.schema.json")), &schema))
		var values map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(readFile(t, dir+"values.yaml")), &values))
		defs, _ := schema["$defs"].(map[string]any)
		var walk func(path string, s map[string]any)
		walk = func(path string, s map[string]any) {
			properties, ok := s["properties"].(map[string]any)
			if ok && s["additionalProperties"] != false {
				t.Errorf("%s%s accepts unknown properties", dir, path)
			}
			for name, p := range properties {
				if under, ok := p.(map[string]any); ok {
					walk(path+"/"+name, under)
				}
			}
		}
		walk("", schema)
		for name, def := range defs {
			if under, ok := def.(map[string]any); ok {
				walk("/$defs/"+name, under)
			}
		}
		properties, _ := schema["properties"].(map[string]any)
		known := slices.DeleteFunc(slices.Sorted(maps.Keys(properties)), func(name string) bool { return name == "global" })
		if got := slices.Sorted(maps.Keys(values)); !slices.Equal(known, got) {
			t.Errorf("%s: values.yaml has %v, the schema %v", dir, got, known)
		}
	}
}

func TestReadme_EachValue_IsDocumented(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{kebDir, workerDir} {
		var values map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(readFile(t, dir+"values.yaml")), &values))
		readme := readFile(t, dir+"README.md")
		for name := range values {
			if !strings.Contains(readme, "`"+name+"`") && !strings.Contains(readme, "`"+name+".") {
				t.Errorf("%sREADME.md does not tell of %s", dir, name)
			}
		}
	}
}
