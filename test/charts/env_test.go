package charts_test

import (
	"cmp"
	"encoding/base64"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/services/broker"
	"github.com/kyma-project/keb/services/btp-manager/kubetest"
	"github.com/kyma-project/keb/services/orchestrator/processes"
	stepworkers "github.com/kyma-project/keb/services/step-workers"
	"github.com/kyma-project/keb/test/internal/docpage"
)

// variables are those that structs take from the environment, and those of the log, which every process has.
func variables(t *testing.T, structs ...string) map[string]docpage.Variable {
	t.Helper()
	key := strings.Join(structs, " ")
	if found, ok := read.Load(key); ok {
		vars, _ := found.(map[string]docpage.Variable)
		return maps.Clone(vars)
	}
	found, err := docpage.Variables(repository, append(structs, "libs/service.LogConfig")...)
	require.NoError(t, err)
	read.Store(key, found)
	return maps.Clone(found)
}

// read are the variables of structs, which are read from the code, by the names of the structs.
var read sync.Map

// workerFolders are the folders of the workers by their names.
func workerFolders(t *testing.T) map[string]string {
	t.Helper()
	found, err := folders()
	require.NoError(t, err)
	return found
}

// folders is read by many tests, and changed by none.
var folders = sync.OnceValues(func() (map[string]string, error) { return docpage.WorkerFolders(repository) })

// known is what a component of the chart takes from its environment.
func known(t *testing.T, w workload) map[string]docpage.Variable {
	t.Helper()
	var structs []string
	switch worker, isWorker := strings.CutPrefix(w.component(), "worker-"); {
	case isWorker:
		structs = []string{"libs/worker.environment"}
		if folder := workerFolders(t)[worker]; folder != "" {
			structs = append(structs, folder+".Config")
		}
	case w.component() == "broker":
		structs = []string{"services/broker/cmd/broker.config"}
	case w.component() == "orchestrator":
		structs = []string{"services/orchestrator/cmd/orchestrator.config"}
	case w.component() == "migrations":
		structs = []string{"libs/postgres.Address"}
	case w.component() == "test":
		structs = []string{"services/broker/cmd/broker.catalogConfig"}
	case w.component() == "jobs":
		structs = []string{"services/jobs.Config"}
	case w.component() == "landscape":
		structs = []string{"landscape.Config"}
	default:
		return nil
	}
	found := variables(t, structs...)
	// Go itself, and OpenTelemetry.
	if w.component() == "landscape" {
		found["KEB_LANDSCAPE_ADDR"] = docpage.Variable{} // of the command line
	}
	found["SSL_CERT_DIR"], found["OTEL_EXPORTER_OTLP_ENDPOINT"] = docpage.Variable{}, docpage.Variable{}
	return found
}

// environment returns the variables of a container, without those from Secrets.
func environment(c corev1.Container) map[string]string {
	env := map[string]string{}
	for _, e := range c.Env {
		env[e.Name] = e.Value
	}
	return env
}

func TestEnv_Variables_AreKnownToServices(t *testing.T) {
	t.Parallel()
	for name, values := range valueSets(t) {
		for _, w := range append(workloads(rendered(t, values)), workloads(renderedOf(t, workerDir, team+teamTLS))...) {
			vars := known(t, w)
			if vars == nil {
				continue // not ours
			}
			env := w.pod.Spec.Containers[0].Env
			given := map[string]bool{}
			for _, e := range env {
				if given[e.Name] {
					t.Errorf("%s: %s is given %s twice", name, describe(w.object), e.Name)
				}
				given[e.Name] = true
				_, plain := vars[e.Name]
				_, fromFile := vars[strings.TrimSuffix(e.Name, "_FILE")]
				if !plain && !fromFile && e.Name != "HELLO_URL" {
					t.Errorf("%s: %s is given %s, which it does not read", name, describe(w.object), e.Name)
				}
			}
			for variable, v := range vars {
				if v.Required && !given[variable] && !given[variable+"_FILE"] {
					t.Errorf("%s: %s is not given %s, which it needs", name, describe(w.object), variable)
				}
			}
		}
	}
}

// The broker must accept what the chart gives it, with stand-ins for the contents of Secrets.
func TestEnv_Broker_IsAccepted(t *testing.T) {
	t.Parallel()
	secrets := map[string]string{
		"KEB_DATABASE_URL": "postgres://user:password@database:5432/keb", "KEB_PLANS": "azure",
		"KEB_SEAL_KEYS": "k1:" + base64.StdEncoding.EncodeToString(make([]byte, 32)),
	}
	tokens := filepath.Join(t.TempDir(), "tokens.yaml")
	require.NoError(t, os.WriteFile(tokens, []byte("[]"), 0o600))
	sets := valueSets(t)
	sets["tokens"] = merged(t, production, `osb: {jwt: {issuer: "https://i", audience: a, keySetURL: "https://i/keys"}}`)
	for name, values := range sets {
		env := map[string]string{}
		for _, e := range kubetest.One[*appsv1.Deployment](t, rendered(t, values), "keb-broker").Spec.Template.Spec.Containers[0].Env {
			env[e.Name] = e.Value
			if e.ValueFrom != nil {
				env[e.Name] = cmp.Or(secrets[e.Name], "secret")
			}
		}
		if env["KEB_ACCESS_TOKENS_FILE"] != "" {
			env["KEB_ACCESS_TOKENS_FILE"] = tokens
		}
		var cfg broker.Config
		if err := service.LoadEnvFrom(&cfg, env, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEnv_TrustedProxies_AreEqual(t *testing.T) {
	t.Parallel()
	const variable = "KEB_ACCESS_TRUSTED_PROXIES"
	behind := 0
	for name, values := range valueSets(t) {
		given := map[string]string{}
		for _, w := range workloads(rendered(t, values)) {
			if c := w.component(); c == "broker" || c == "orchestrator" {
				given[c] = environment(w.pod.Spec.Containers[0])[variable]
			}
		}
		if given["orchestrator"] != "" {
			behind++
		}
		if given["broker"] != given["orchestrator"] {
			t.Errorf("%s: %s is %q", name, variable, given)
		}
	}
	if behind == 0 {
		t.Error("no values set proxies")
	}
}

// The job asks for the instances that the broker lets expire.
func TestEnv_Lifetimes_ReachBrokerAndJobs(t *testing.T) {
	t.Parallel()
	for values, want := range map[string][2]string{production: {"336h", "720h"}, everything: {"100h", "720h"}} {
		looked := 0
		for _, w := range workloads(rendered(t, values)) {
			if c := w.component(); c != "broker" && c != "jobs" {
				continue
			}
			looked++
			env := environment(w.pod.Spec.Containers[0])
			if got := [2]string{env["KEB_TRIAL_LIFETIME"], env["KEB_FREE_LIFETIME"]}; got != want {
				t.Errorf("%s: the lifetimes are %v, want %v", describe(w.object), got, want)
			}
		}
		if looked < 3 {
			t.Errorf("%d workloads have lifetimes", looked)
		}
	}
}

func TestEnv_BrokerPublicURL_FollowsValues(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]string{
		production: "",
		everything: "https://keb.example",
		merged(t, everything, `osb: {publicURL: "https://other.example/keb"}`): "https://other.example/keb",
	} {
		d := kubetest.One[*appsv1.Deployment](t, rendered(t, values), "keb-broker")
		if got := environment(d.Spec.Template.Spec.Containers[0])["KEB_BROKER_PUBLIC_URL"]; got != want {
			t.Errorf("the public URL is %q, want %q", got, want)
		}
	}
}

// Addresses and ids of external systems have no defaults, so the chart lists them.
func TestEnv_ExternalSystems_AreListed(t *testing.T) {
	t.Parallel()
	var systems struct {
		Workers, Optional, Jobs map[string]map[string]string
	}
	require.NoError(t, yaml.Unmarshal([]byte(readFile(t, kebDir+"files/systems.yaml")), &systems))
	// check compares what is listed for a worker or job with what its variables need.
	check := func(who string, needs map[string]string, vars map[string]docpage.Variable, listed ...map[string]string) {
		want := map[string]string{}
		for name, value := range needs {
			if v, ok := vars[name]; ok {
				want[name] = value
				if strings.HasPrefix(v.Default, "http://127.0.0.1") && who != "subaccount-cleanup" {
					t.Errorf("%s: %s leads to this machine by default", who, name)
				}
			}
		}
		for _, list := range listed {
			for names, value := range list {
				alternatives := strings.Split(names, "|")
				if want[alternatives[0]] != value {
					t.Errorf("%s: %s is %q in the landscape, and %q in the chart", who, names, want[alternatives[0]], value)
				}
				for _, n := range alternatives {
					if _, ok := vars[n]; !ok {
						t.Errorf("%s: no service reads %s", who, n)
					}
					delete(want, n)
				}
			}
		}
		for name := range want {
			t.Errorf("%s: %s is not in files/systems.yaml", who, name)
		}
	}
	workers := workerFolders(t)
	for worker, folder := range workers {
		if _, ok := systems.Workers[worker]; !ok {
			t.Errorf("worker %s is not in files/systems.yaml", worker)
		}
		vars := variables(t, "libs/worker.environment", folder+".Config")
		check(worker, stepworkers.InLandscape(), vars, systems.Workers[worker], systems.Optional[worker])
	}
	if len(systems.Workers) != len(workers) {
		t.Errorf("files/systems.yaml has %d workers, there are %d", len(systems.Workers), len(workers))
	}
	cis := map[string]string{
		"KEB_CIS_URL": "/cis", "KEB_CIS_TOKEN_URL": "/cis/oauth/token", "KEB_CIS_CLIENT_ID": "keb", "KEB_CIS_CLIENT_SECRET": "keb",
	}
	check("subaccount-cleanup", cis, variables(t, "services/jobs.Config"), systems.Jobs["subaccount-cleanup"])
}

func TestEnv_EachWorker_HasDeployment(t *testing.T) {
	t.Parallel()
	overlays, err := fs.Sub(processes.FS, ".")
	require.NoError(t, err)
	set, err := process.Load(overlays)
	require.NoError(t, err)
	deployed := map[string]bool{}
	for _, w := range workloads(rendered(t, production)) {
		deployed[strings.TrimPrefix(w.component(), "worker-")] = true
	}
	var looked []string
	for operation, p := range set {
		for _, stage := range p.Stages {
			for _, step := range stage.Steps {
				looked = append(looked, step.Worker)
				if !deployed[step.Worker] {
					t.Errorf("%s: no deployment serves step %s of worker %s", operation, step.Name, step.Worker)
				}
			}
		}
	}
	slices.Sort(looked)
	if n := len(slices.Compact(looked)); n < 12 {
		t.Errorf("%d workers looked at", n)
	}
	// Those of the overlay of Kyma 1 are there to be enabled.
	for worker := range workerFolders(t) {
		if !strings.Contains(readFile(t, kebDir+"values.yaml"), "\n  "+worker+":") {
			t.Errorf("worker %s is not in values.yaml", worker)
		}
	}
}
