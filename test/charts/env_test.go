package charts_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/processes"
)

const module = "github.com/kyma-project/keb/"

// variable is what a service says about a variable of its environment, in the tags of its configuration.
type variable struct {
	required bool
	fallback string
}

// variables are those that the struct types of a folder's Go files take from the environment, and those of the structs that they embed
// from other packages of this repository.
func variables(t *testing.T, folders ...string) map[string]variable {
	t.Helper()
	found := map[string]variable{}
	for _, folder := range folders {
		collect(t, folder, "", found)
	}
	if len(found) == 0 {
		t.Fatalf("%v read nothing from the environment", folders)
	}
	return found
}

// collect takes the structs of a folder, or only the one with a name.
func collect(t *testing.T, folder, only string, into map[string]variable) {
	t.Helper()
	files, err := filepath.Glob(repository + folder + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		imports := map[string]string{}
		for _, i := range parsed.Imports {
			path, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if rest, ok := strings.CutPrefix(path, module); ok {
				imports[filepath.Base(rest)] = rest
			}
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok && only != "" && spec.Name.Name != only {
				return false
			}
			s, ok := n.(*ast.StructType)
			if !ok {
				return true
			}
			for _, f := range s.Fields.List {
				if sel, ok := f.Type.(*ast.SelectorExpr); ok {
					if pkg, ok := sel.X.(*ast.Ident); ok && imports[pkg.Name] != "" && f.Tag == nil && strings.HasSuffix(sel.Sel.Name, suffix(sel.Sel.Name)) {
						collect(t, imports[pkg.Name], sel.Sel.Name, into)
					}
				}
				if f.Tag == nil {
					continue
				}
				text, err := strconv.Unquote(f.Tag.Value)
				if err != nil {
					t.Fatal(err)
				}
				tag := reflect.StructTag(text)
				if sel, ok := f.Type.(*ast.SelectorExpr); ok && tag.Get("envPrefix") != "" {
					if pkg, ok := sel.X.(*ast.Ident); ok && imports[pkg.Name] != "" {
						below := map[string]variable{}
						collect(t, imports[pkg.Name], sel.Sel.Name, below)
						for name, v := range below {
							into[tag.Get("envPrefix")+name] = v
						}
					}
				}
				if name, options, _ := strings.Cut(tag.Get("env"), ","); name != "" && name != "-" {
					into[name] = variable{required: strings.Contains(options, "required"), fallback: tag.Get("envDefault")}
				}
			}
			return true
		})
	}
}

// suffix is that of the names which configurations have.
func suffix(name string) string {
	for _, s := range []string{"Config", "ControlPlane", "Defaults"} {
		if strings.HasSuffix(name, s) {
			return s
		}
	}
	return "\x00"
}

// workerFolders are the folders of the workers by their names, from the constants in the code.
func workerFolders(t *testing.T) map[string]string {
	t.Helper()
	folders := map[string]string{}
	mains, err := filepath.Glob(repository + "services/step-workers/*/cmd/main.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, main := range mains {
		dir := filepath.Dir(filepath.Dir(main))
		files, err := filepath.Glob(dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			for line := range strings.Lines(readFile(t, file)) {
				if rest, ok := strings.CutPrefix(line, "const Name = "); ok {
					name, err := strconv.Unquote(strings.TrimSpace(rest))
					if err != nil {
						t.Fatal(err)
					}
					folders[name] = "services/step-workers/" + filepath.Base(dir)
				}
			}
		}
	}
	if len(folders) != len(mains) {
		t.Fatalf("%d names of %d workers", len(folders), len(mains))
	}
	return folders
}

// known is what a component of the chart takes from its environment.
func known(t *testing.T, w workload) map[string]variable {
	t.Helper()
	folders := []string{"libs/service"}
	switch worker, isWorker := strings.CutPrefix(w.component(), "worker-"); {
	case isWorker:
		folders = append(folders, "libs/worker")
		if folder := workerFolders(t)[worker]; folder != "" {
			folders = append(folders, folder)
		}
	case w.component() == "broker":
		folders = append(folders, "services/broker", "services/broker/cmd/broker")
	case w.component() == "orchestrator":
		folders = append(folders, "services/orchestrator", "services/orchestrator/cmd/orchestrator")
	case w.component() == "migrations" || w.component() == "test":
		folders = append(folders, "services/broker/cmd/broker", "services/orchestrator/cmd/orchestrator")
	case w.component() == "jobs":
		folders = append(folders, "services/jobs")
	case w.component() == "landscape":
		folders = append(folders, "landscape", "landscape/cmd/landscape")
	default:
		return nil
	}
	found := variables(t, folders...)
	// Go itself, and OpenTelemetry.
	found["SSL_CERT_DIR"], found["OTEL_EXPORTER_OTLP_ENDPOINT"] = variable{}, variable{}
	return found
}

// environment is what a container is told, without what comes from Secrets.
func environment(c corev1.Container) map[string]string {
	env := map[string]string{}
	for _, e := range c.Env {
		env[e.Name] = e.Value
	}
	return env
}

func TestServicesKnowTheVariablesTheyAreGiven(t *testing.T) {
	t.Parallel()
	for name, values := range valueSets(t) {
		for _, w := range append(workloads(rendered(t, values)), workloads(renderedOf(t, workerDir, team))...) {
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
				if _, ok := vars[e.Name]; !ok && w.component() != "worker-hello-world" && e.Name != "HELLO_URL" {
					t.Errorf("%s: %s is given %s, which it does not read", name, describe(w.object), e.Name)
				}
			}
			for variable, v := range vars {
				if v.required && !given[variable] && w.component() != "test" {
					t.Errorf("%s: %s is not given %s, which it needs", name, describe(w.object), variable)
				}
			}
		}
	}
}

func TestBrokerAndOrchestratorKnowTheSameProxies(t *testing.T) {
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

// A default that leads to this machine is right for `make run`, and wrong in a pod.
func TestEveryAddressOfAnExternalSystemIsInTheListOfTheChart(t *testing.T) {
	t.Parallel()
	var systems struct {
		Workers, Jobs map[string]map[string]string
	}
	if err := yaml.Unmarshal([]byte(readFile(t, kebDir+"files/systems.yaml")), &systems); err != nil {
		t.Fatal(err)
	}
	check := func(who string, vars map[string]variable, listed map[string]string) {
		const local = "http://127.0.0.1:8090"
		want := map[string]string{}
		for name, v := range vars {
			if path, ok := strings.CutPrefix(v.fallback, local); ok {
				want[name] = path
			}
		}
		for names, path := range listed {
			alternatives := strings.Split(names, "|")
			if want[alternatives[0]] != path {
				t.Errorf("%s: %s is at %q, and %q in the chart", who, names, want[alternatives[0]], path)
			}
			for _, n := range alternatives {
				if _, ok := vars[n]; !ok {
					t.Errorf("%s: nobody reads %s", who, n)
				}
				delete(want, n)
			}
		}
		for name := range want {
			t.Errorf("%s: %s is not in files/systems.yaml", who, name)
		}
	}
	folders := workerFolders(t)
	for worker, folder := range folders {
		if _, ok := systems.Workers[worker]; !ok {
			t.Errorf("worker %s is not in files/systems.yaml", worker)
		}
		check(worker, variables(t, "libs/worker", folder), systems.Workers[worker])
	}
	if len(systems.Workers) != len(folders) {
		t.Errorf("files/systems.yaml has %d workers, there are %d", len(systems.Workers), len(folders))
	}
	all := variables(t, "services/jobs")
	check("subaccount-cleanup", all, systems.Jobs["subaccount-cleanup"])
}

func TestEveryWorkerOfTheProcessesHasADeployment(t *testing.T) {
	t.Parallel()
	overlays, err := fs.Sub(processes.FS, ".")
	if err != nil {
		t.Fatal(err)
	}
	set, err := process.Load(overlays)
	if err != nil {
		t.Fatal(err)
	}
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
					t.Errorf("%s: nobody is deployed for step %s of worker %s", operation, step.Name, step.Worker)
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
