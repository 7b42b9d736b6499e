package up

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/access"
	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/broker"
	stepworkers "github.com/kyma-project/keb/services/step-workers"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// The page that test/internal/configdoc generates from the structs of the services; a test there holds the two together.
const variablesPage = "../../../../docs/configuration.md"

// installPage lists the variables that keb up sets itself.
const installPage = "../../../../docs/install.md"

// variable is a row of the page.
type variable struct{ name, byDefault string }

func variables(t *testing.T) []variable {
	t.Helper()
	page, err := os.ReadFile(variablesPage)
	require.NoError(t, err)
	var all []variable
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Z0-9_]+)` \\| (?:`([^`]*)`|[a-z]*) \\|").FindAllStringSubmatch(string(page), -1) {
		all = append(all, variable{m[1], m[2]})
	}
	if rows := strings.Count(string(page), "\n| `KEB_"); len(all) != rows || rows < 200 {
		t.Fatalf("%d of the %d variables of %s were read", len(all), rows, variablesPage)
	}
	return all
}

// seen is what the composition takes from the environment.
type seen struct {
	settings

	addresses addresses
}

func look(cfg Config) (seen, error) {
	addrs, err := cfg.addresses()
	if err != nil {
		return seen{}, err
	}
	s, err := cfg.load(addrs.places("k1:" + base64.StdEncoding.EncodeToString(make([]byte, 32))))
	for i := range s.Services {
		s.Services[i].Steps, s.Services[i].Questions = nil, nil // made from the configuration beside them
	}
	return seen{s, addrs}, err
}

// Each variable of the services changes what keb up is composed of, or is refused by name with what to do instead: nothing is ignored.
func TestUp_EveryVariableOfTheServices_CountsOrIsRefused(t *testing.T) {
	t.Parallel()
	cfg := Config{DataDir: t.TempDir(), Program: "keb"}
	values := newValues(t)
	own := map[string]bool{}
	for _, v := range cfg.owned(places{}) {
		own[v.name] = true
	}
	install, err := os.ReadFile(installPage)
	require.NoError(t, err)
	page := map[string]bool{}
	for _, v := range variables(t) {
		if page[v.name] {
			continue // of another service, too
		}
		page[v.name] = true
		beside := values.beside[v.name]
		cfg.Environment = beside
		before, err := look(cfg)
		if err != nil {
			t.Errorf("%s: without it: %v", v.name, err)
			continue
		}
		if again, err := look(cfg); err != nil || !reflect.DeepEqual(before, again) {
			t.Fatalf("%s: two looks at the same variables differ (%v)", v.name, err)
		}
		if own[v.name] {
			cfg.Environment = with(beside, v.name, "other")
			_, err := look(cfg)
			if err == nil || !strings.Contains(err.Error(), v.name+": is not used with keb up: ") || !strings.Contains(err.Error(), "--") {
				t.Errorf("%s: %v, want an error that names it and a flag", v.name, err)
			}
			if !strings.Contains(string(install), "`"+v.name+"`") {
				t.Errorf("docs/install.md does not say that keb up sets %s itself", v.name)
			}
			continue
		}
		var problems []string
		if !slices.ContainsFunc(values.others(v), func(value string) bool {
			cfg.Environment = with(beside, v.name, value)
			after, err := look(cfg)
			if err != nil {
				problems = append(problems, fmt.Sprintf("%s: %v", value, err))
			}
			return err == nil && !reflect.DeepEqual(before, after)
		}) {
			t.Errorf("no value of %s changes anything; refused were: %s", v.name, strings.Join(problems, "; "))
		}
	}
	for name := range own {
		if !page[name] {
			t.Errorf("%s is no variable of a service", name)
		}
	}
}

func with(environment map[string]string, name, value string) map[string]string {
	all := map[string]string{name: value}
	for k, v := range environment {
		if k != name {
			all[k] = v
		}
	}
	return all
}

// values are those that the kinds of variables take.
type values struct {
	fixed map[string]string
	// beside are variables without which one is invalid.
	beside map[string]map[string]string
}

func newValues(t *testing.T) values {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	_, hash := access.NewToken()
	token, err := access.TokenLine("vera", access.Viewer, hash)
	require.NoError(t, err)
	oidc := map[string]string{
		"KEB_ACCESS_OIDC_ISSUER": "https://issuer.example.org", "KEB_ACCESS_OIDC_AUDIENCE": "keb", "KEB_ACCESS_OIDC_VIEWERS": "viewers",
	}
	jwt := map[string]string{
		"KEB_OSB_JWT_ISSUER": "https://issuer.example.org", "KEB_OSB_JWT_AUDIENCE": "keb", "KEB_OSB_JWT_KEY_SET_URL": "https://issuer.example.org/keys",
	}
	v := values{
		fixed: map[string]string{
			"KEB_ACCESS": "none", "KEB_ACCESS_TOKENS_FILE": write("tokens.yaml", token+"\n"),
			"KEB_ACCESS_SESSION_KEY": "k2:" + seal.NewKey(), "KEB_ACCESS_TRUSTED_PROXIES": "127.0.0.7",
			"KEB_OSB_JWT_KEY_SET_FILE": write("keys.json", `{"keys": []}`),
			"KEB_NATS_URL":             "nats://127.0.0.1:7", "KEB_DATABASE_URL": "postgres://127.0.0.1:7/other",
			"KEB_OVERLAYS": "../../../../services/orchestrator/processes/overlays", "KEB_MAINTENANCE_POLICY": write("policy.json", `{"rules": []}`),
			"KEB_PLAN_CHANGES": "free:aws", "KEB_TRIAL_PROVIDER": "aws", "KEB_EXPIRY_PLANS": "free", "KEB_BINDABLE_PLANS": "azure,aws",
			"KEB_PLANS": "azure,azure_lite,aws,gcp,openstack,trial,free,own_cluster", "KEB_BINDING_ROTATABLE_PLANS": "azure",
			"KEB_CATALOG_MODIFIED": "2026-11-22T00:00:00Z", "KEB_LOG_FORMAT": "text", "KEB_LOG_LEVEL": "debug",
			"KEB_AVS_INTERNAL_TAGS": "[]", "KEB_AVS_EXTERNAL_TAGS": "[]",
			"KEB_CIS_VERSION": "v1.0", "KEB_KYMA_VERSION": "2.20.7", "KEB_LMS_CLUSTER_TYPE": "ha", "KEB_SERVICE_MANAGER_OVERRIDE_MODE": "Always",
			"KEB_KCP_KUBECONFIG": write("kcp.yaml", kubeconfig), "KEB_GARDENER_KUBECONFIG": write("gardener.yaml", kubeconfig),
		},
		beside: map[string]map[string]string{
			"KEB_ACCESS_OIDC_ISSUER": with(oidc, "KEB_ACCESS_OIDC_ISSUER", "https://first.example.org"),
			"KEB_OSB_JWT_ISSUER":     with(jwt, "KEB_OSB_JWT_ISSUER", "https://first.example.org"),
			"KEB_SERVICE_MANAGER_OVERRIDE_MODE": {
				"KEB_SERVICE_MANAGER_URL": "http://127.0.0.1:7", "KEB_SERVICE_MANAGER_USERNAME": "keb", "KEB_SERVICE_MANAGER_PASSWORD": "keb",
			},
			"KEB_BROKER_TOKEN_URL": {"KEB_BROKER_CLIENT_ID": "keb", "KEB_BROKER_CLIENT_SECRET": "keb"},
		},
	}
	director := map[string]string{"KEB_DIRECTOR_URL": "http://127.0.0.1:7/a", "KEB_DIRECTOR_TOKEN_URL": "http://127.0.0.1:7/b"}
	v.beside["KEB_DIRECTOR_URL"], v.beside["KEB_DIRECTOR_TOKEN_URL"] = director, director
	v.beside["KEB_RUNTIME_MACHINE_IMAGE_VERSION"] = map[string]string{"KEB_RUNTIME_MACHINE_IMAGE": "gardenlinux"}
	v.fixed["KEB_RUNTIME_CONTROL_PLANE_FAILURE_TOLERANCE"] = "zone"
	v.fixed["KEB_RUNTIME_DNS_PROVIDERS_FILE"] = write("dns.yaml", "{}")
	for _, name := range []string{"AUDIENCE", "CLIENT_SECRET", "ROLES_CLAIM", "VIEWERS", "OPERATORS", "SCOPES"} {
		v.beside["KEB_ACCESS_OIDC_"+name] = oidc
	}
	for _, name := range []string{"AUDIENCE", "KEY_SET_URL", "SCOPE"} {
		v.beside["KEB_OSB_JWT_"+name] = jwt
	}
	v.fixed["KEB_ACCESS_OIDC_ISSUER"], v.fixed["KEB_OSB_JWT_ISSUER"] = "https://second.example.org", "https://second.example.org"
	v.files(t, write)
	return v
}

const kubeconfig = `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:7"}}]
users: [{name: u, user: {token: other}}]
`

// files adds those of certificates. A pair is replaced by a copy, as its halves must match.
func (v values) files(t *testing.T, write func(name, text string) string) {
	t.Helper()
	ca := testkit.NewCA(t, "up")
	for prefix, leaf := range map[string]testkit.Leaf{
		"KEB_TLS_": {Hosts: []string{"localhost"}}, "KEB_METRICS_TLS_": {Hosts: []string{"localhost"}}, "KEB_DATABASE_": {}, "KEB_BROKER_": {},
	} {
		pair := ca.Issue(t, leaf)
		beside := map[string]string{prefix + "CERT_FILE": pair.CertFile, prefix + "KEY_FILE": pair.KeyFile}
		if prefix == "KEB_DATABASE_" {
			beside["KEB_DATABASE_URL"] = "postgres://127.0.0.1/keb"
		}
		for name, path := range map[string]string{"CERT_FILE": pair.CertFile, "KEY_FILE": pair.KeyFile, "CA_FILE": ca.File, "CLIENT_CA_FILE": ca.File} {
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			v.fixed[prefix+name], v.beside[prefix+name] = write(prefix+name, string(content)), beside
		}
	}
}

// others are values that a variable may have and that differ from its default; which of them it takes, its type decides.
func (v values) others(of variable) []string {
	if value, ok := v.fixed[of.name]; ok {
		return []string{value}
	}
	if d, err := time.ParseDuration(of.byDefault); err == nil && of.byDefault != "0" {
		return []string{(d + time.Second).String()}
	}
	if n, err := strconv.Atoi(of.byDefault); err == nil {
		return []string{strconv.Itoa(n + 1)}
	}
	return []string{"true", "false", "7", "100h", "debug", "http://127.0.0.1:7", "provision:7", "127.0.0.1:7", "other"}
}

// Retry periods are those of the services; --fast shortens those that no variable sets.
func TestUp_WithoutFast_WaitsAsTheServicesDo(t *testing.T) {
	t.Parallel()
	cfg := Config{DataDir: t.TempDir(), Program: "keb"}
	plain, err := look(cfg)
	require.NoError(t, err)
	own, err := stepworkers.All("http://127.0.0.1:8090", stepworkers.Options{})
	require.NoError(t, err)
	for i, s := range own {
		if diff := cmp.Diff(s.Config, plain.Services[i].Config); diff != "" {
			t.Errorf("worker %s (-as a process of its own +in keb up):\n%s", s.Name, diff)
		}
	}
	if got := plain.Broker.RetryAfter; got != service.Defaults[broker.Config]().RetryAfter {
		t.Errorf("platforms are told to poll again after %s", got)
	}
	cfg.Fast = true
	fast, err := look(cfg)
	require.NoError(t, err)
	cfg.Environment = map[string]string{"KEB_PACE": "7s"}
	paced, err := look(cfg)
	require.NoError(t, err)
	for want, services := range map[time.Duration][]stepworkers.Service{100 * time.Millisecond: fast.Services, 7 * time.Second: paced.Services} {
		for _, s := range services {
			if c, ok := s.Config.(provisioner.Config); ok && (c.PollInterval != want || c.RetryInterval != want) {
				t.Errorf("with --fast the provisioner waits %s and %s, want %s", c.PollInterval, c.RetryInterval, want)
			}
		}
	}
	if fast.Landscape.ClusterTime != 0 || plain.Landscape.ClusterTime != 3*time.Second {
		t.Errorf("a cluster takes %s with --fast and %s without", fast.Landscape.ClusterTime, plain.Landscape.ClusterTime)
	}
}
