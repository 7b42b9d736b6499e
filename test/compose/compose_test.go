// Package compose holds docker-compose.yml to what it promises, and, with "make e2e SUITE=compose", runs it.
package compose

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/processes"
	"github.com/kyma-project/keb/test/internal/docpage"
)

// root is the folder of the repository.
const root = "../.."

type file struct {
	Services map[string]definition
	Networks map[string]struct{ Internal bool }
	Volumes  map[string]any
}

type definition struct {
	Image string
	Build struct {
		Dockerfile string
		Args       map[string]string
	}
	Command     []string
	User        string
	ReadOnly    bool     `yaml:"read_only"`
	CapDrop     []string `yaml:"cap_drop"`
	CapAdd      []string `yaml:"cap_add"`
	SecurityOpt []string `yaml:"security_opt"`
	Privileged  bool
	Restart     string
	MemLimit    string `yaml:"mem_limit"`
	PidsLimit   int    `yaml:"pids_limit"`
	Logging     struct{ Options map[string]string }
	Healthcheck struct{ Test []string }
	NetworkMode string `yaml:"network_mode"`
	Networks    []string
	Ports       []string
	Volumes     []string
	Environment map[string]string
	Profiles    []string
	DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
}

// variable is one that compose replaces, with its default.
var variable = regexp.MustCompile(`\$\{([A-Z0-9_]+):-([^}]*)\}`)

func read(t *testing.T) file {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docker-compose.yml"))
	require.NoError(t, err)
	var f file
	require.NoError(t, yaml.Unmarshal(variable.ReplaceAll(text, []byte("$2")), &f))
	if len(f.Services) < 10 {
		t.Fatalf("%d services are read", len(f.Services))
	}
	return f
}

// ours reports whether a service runs an image of this repository.
func (s definition) ours() bool { return strings.HasPrefix(s.Image, "keb/") }

// oneShot is what ends by itself.
func oneShot(name string) bool { return name == "init" || name == "cli" || name == "jobs" }

func TestCompose_EachWorker_HasService(t *testing.T) {
	t.Parallel()
	f := read(t)
	overlays, err := fs.Sub(processes.Overlays, "overlays")
	require.NoError(t, err)
	set, err := process.Load(processes.FS, process.Named("overlays", overlays))
	require.NoError(t, err)
	named := set.Workers()
	if len(named) < 10 {
		t.Fatalf("the processes name only %v", named)
	}
	conf, err := os.ReadFile(filepath.Join(root, "deploy/nats/nats.conf"))
	require.NoError(t, err)
	for _, worker := range append(named, "runtime") {
		if worker == event.UserBroker {
			continue
		}
		name := event.WorkerUserName(worker)
		s, ok := f.Services[name]
		if !ok {
			t.Errorf("worker %s has no service %s", worker, name)
			continue
		}
		if s.Environment["KEB_NATS_USER"] != name || s.Image != "keb/step-worker:dev" || !slices.Equal(s.Command, []string{worker}) {
			t.Errorf("%s runs %s with the arguments %v, as user %q of the bus", name, s.Image, s.Command, s.Environment["KEB_NATS_USER"])
		}
		if !slices.Equal(s.Networks, []string{"bus", "systems"}) {
			t.Errorf("%s is in the networks %v: want bus and systems, and never a database", name, s.Networks)
		}
		if want := []string{"secrets-" + name + ":/run/keb:ro"}; !slices.Equal(s.Volumes, want) {
			t.Errorf("%s has the volumes %v, want only its own secrets: %v", name, s.Volumes, want)
		}
		if !strings.Contains(string(conf), fmt.Sprintf("user: %q", name)) {
			t.Errorf("%s is no user in deploy/nats/nats.conf: run keb nats config", name)
		}
	}
}

func TestCompose_EachContainer_IsConfined(t *testing.T) {
	t.Parallel()
	for name, s := range read(t).Services {
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || len(s.CapAdd) > 0 || s.Privileged ||
			!slices.Equal(s.SecurityOpt, []string{"no-new-privileges:true"}) {
			t.Errorf("%s: read_only %t, cap_drop %v, cap_add %v, privileged %t, security_opt %v", name, s.ReadOnly, s.CapDrop, s.CapAdd, s.Privileged, s.SecurityOpt)
		}
		switch uid, _, _ := strings.Cut(s.User, ":"); {
		case name == "init":
			if s.NetworkMode != "none" {
				t.Errorf("init is root, and has a network")
			}
		case s.ours() && uid != "65532", uid == "", uid == "0":
			t.Errorf("%s runs as user %q", name, s.User)
		}
		if s.MemLimit == "" || s.PidsLimit == 0 || s.Logging.Options["max-size"] == "" {
			t.Errorf("%s: limits %q, %d, log of at most %q", name, s.MemLimit, s.PidsLimit, s.Logging.Options["max-size"])
		}
		if !oneShot(name) && (len(s.Healthcheck.Test) == 0 || s.Restart != "unless-stopped") {
			t.Errorf("%s: healthcheck %v, restart %q", name, s.Healthcheck.Test, s.Restart)
		}
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s listens on %s, outside of this machine", name, port)
			}
		}
		if s.ours() && slices.Equal(s.Healthcheck.Test, []string{"CMD", "/keb", "healthcheck"}) &&
			s.Environment["KEB_METRICS_ADDR"] == "" && name != "landscape" {
			t.Errorf("%s asks itself at KEB_METRICS_ADDR, which is not set", name)
		}
		for other, on := range s.DependsOn {
			want := "service_healthy"
			if other == "init" {
				want = "service_completed_successfully"
			}
			if on.Condition != want {
				t.Errorf("%s waits for %s to be %s, want %s", name, other, on.Condition, want)
			}
		}
	}
}

func TestCompose_Database_ReachableByFewServices(t *testing.T) {
	t.Parallel()
	f := read(t)
	var in []string
	for name, s := range f.Services {
		if slices.Contains(s.Networks, "db") {
			in = append(in, name)
		}
		if slices.Contains(s.Networks, "default") || len(s.Networks) == 0 && s.NetworkMode == "" {
			t.Errorf("%s is in the network of all", name)
		}
	}
	slices.Sort(in)
	if want := []string{"broker", "orchestrator", "postgres"}; !slices.Equal(in, want) {
		t.Errorf("the network db has %v, want %v", in, want)
	}
	if !f.Networks["db"].Internal || !f.Networks["bus"].Internal {
		t.Error("the networks db and bus lead outside")
	}
}

// images reads deploy/docker/images: the package of each image.
func images(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "deploy/docker/images"))
	require.NoError(t, err)
	found := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, pkg, ok := strings.Cut(strings.TrimSpace(line), " "); ok && !strings.HasPrefix(line, "#") {
			found[name] = strings.TrimSpace(pkg)
		}
	}
	return found
}

func TestCompose_EachImage_IsKnown(t *testing.T) {
	t.Parallel()
	known := images(t)
	used := map[string]bool{"btp-manager": true} // runs in a runtime, on Kubernetes
	pinned := regexp.MustCompile(`^[a-z./-]+:v?[0-9]+(\.[0-9]+)*(-alpine)?$`)
	for name, s := range read(t).Services {
		if !s.ours() {
			if !pinned.MatchString(s.Image) {
				t.Errorf("%s: image %s has no version", name, s.Image)
			}
			continue
		}
		image := strings.TrimSuffix(strings.TrimPrefix(s.Image, "keb/"), ":dev")
		used[image] = true
		if known[image] == "" {
			t.Errorf("%s: image %s is not in deploy/docker/images", name, image)
		}
		if s.Build.Dockerfile != "" && s.Build.Args["SERVICE"] != image {
			t.Errorf("%s: image %s is built with SERVICE=%s", name, image, s.Build.Args["SERVICE"])
		}
	}
	for image, pkg := range known {
		if !used[image] {
			t.Errorf("image %s is used by no service", image)
		}
		if _, err := os.Stat(filepath.Join(root, pkg)); err != nil {
			t.Errorf("image %s: %v", image, err)
		}
	}
}

func TestCompose_SecretsAndFiles_Exist(t *testing.T) {
	t.Parallel()
	f := read(t)
	made := f.Services["init"].Volumes
	for name, s := range f.Services {
		for _, v := range s.Volumes {
			source, target, _ := strings.Cut(v, ":")
			switch {
			case strings.HasPrefix(source, "./"):
				if _, err := os.Stat(filepath.Join(root, source)); err != nil {
					t.Errorf("%s mounts what is not there: %v", name, err)
				}
				if !strings.HasSuffix(v, ":ro") {
					t.Errorf("%s can write to %s", name, source)
				}
			case strings.HasPrefix(source, "secrets-"):
				if name != "init" && !strings.HasSuffix(target, ":ro") {
					t.Errorf("%s can write to %s", name, source)
				}
				if want := source + ":/secrets/" + strings.TrimPrefix(source, "secrets-"); !slices.Contains(made, want) {
					t.Errorf("init does not fill %s: %s is missing", source, want)
				}
				fallthrough
			default:
				if _, ok := f.Volumes[source]; !ok {
					t.Errorf("volume %s of %s is not declared", source, name)
				}
			}
		}
		for variable, value := range s.Environment {
			if strings.HasSuffix(variable, "_FILE") && strings.HasPrefix(value, "/run/keb/") && !slices.ContainsFunc(s.Volumes, func(v string) bool { return strings.HasSuffix(v, ":/run/keb:ro") }) {
				t.Errorf("%s reads %s, and mounts no secrets", name, value)
			}
		}
	}
}

// mentioned are, for each command, the variables that appear in its code and in what it is linked with.
func mentioned(t *testing.T, commands []string) map[string]map[string]bool {
	t.Helper()
	list := exec.Command("go", append([]string{"list", "-deps", "-json=ImportPath,Dir,Name,Deps"}, commands...)...)
	list.Dir = root
	out, err := list.Output()
	require.NoError(t, err, "go list")
	type pkg struct {
		ImportPath, Dir, Name string
		Deps                  []string
	}
	dirs, deps := map[string]string{}, map[string][]string{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		dirs[p.ImportPath] = p.Dir
		if p.Name == "main" {
			deps[p.ImportPath] = append(p.Deps, p.ImportPath)
		}
	}
	const module = "github.com/kyma-project/keb"
	all := map[string]map[string]bool{}
	for _, command := range commands {
		names := map[string]bool{}
		for _, path := range deps[module+strings.TrimPrefix(command, ".")] {
			if strings.HasPrefix(path, module+"/") {
				variablesIn(t, dirs[path], names)
			}
		}
		all[command] = names
	}
	return all
}

var anyVariable = regexp.MustCompile(`\bKEB_[A-Z0-9_]+\b`)

func variablesIn(t *testing.T, dir string, names map[string]bool) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, name := range anyVariable.FindAllString(string(text), -1) {
			names[name] = true
		}
	}
}

func TestCompose_EachVariable_IsKnownToService(t *testing.T) {
	t.Parallel()
	known := images(t)
	folders, err := docpage.WorkerFolders(root)
	require.NoError(t, err)
	byCommand := mentioned(t, slices.Sorted(maps.Values(known)))
	for name, s := range read(t).Services {
		if !s.ours() || len(s.Environment) == 0 {
			continue
		}
		read := byCommand[known[strings.TrimSuffix(strings.TrimPrefix(s.Image, "keb/"), ":dev")]]
		if worker, ok := strings.CutPrefix(name, "worker-"); ok {
			// The command knows the variables of all workers.
			own, err := docpage.Variables(root, "libs/worker.environment", "libs/service.LogConfig", folders[worker]+".Config")
			require.NoError(t, err)
			read = map[string]bool{}
			for variable := range own {
				read[variable] = true
			}
		}
		if len(read) == 0 {
			t.Errorf("%s reads no variables", name)
		}
		for variable := range s.Environment {
			if !strings.HasPrefix(variable, "OTEL_") && !read[variable] && !read[strings.TrimSuffix(variable, "_FILE")] {
				t.Errorf("%s does not know %s", name, variable)
			}
		}
	}
}

// The cli shows its access token to both.
func TestCompose_BrokerAndOrchestrator_HaveTokens(t *testing.T) {
	t.Parallel()
	services := read(t).Services
	if services["cli"].Environment["KEB_TOKEN_FILE"] == "" {
		t.Error("the cli has no access token")
	}
	for _, name := range []string{"broker", "orchestrator"} {
		if got := services[name].Environment["KEB_ACCESS_TOKENS_FILE"]; got != "/run/keb/access-tokens.yaml" {
			t.Errorf("%s reads its access tokens from %q", name, got)
		}
	}
}

func TestCompose_Prometheus_ScrapesEachService(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "deploy/prometheus/prometheus.yml"))
	require.NoError(t, err)
	var cfg struct {
		ScrapeConfigs []struct {
			DNS []struct {
				Names []string
				Port  int
			} `yaml:"dns_sd_configs"`
		} `yaml:"scrape_configs"`
	}
	require.NoError(t, yaml.Unmarshal(text, &cfg))
	var scraped, serving []string
	for _, c := range cfg.ScrapeConfigs {
		for _, d := range c.DNS {
			scraped = append(scraped, d.Names...)
		}
	}
	for name, s := range read(t).Services {
		if s.Environment["KEB_METRICS_ADDR"] == ":9090" {
			serving = append(serving, name)
		}
	}
	slices.Sort(scraped)
	slices.Sort(serving)
	if !slices.Equal(scraped, serving) {
		t.Errorf("Prometheus scrapes %v, and metrics are served by %v", scraped, serving)
	}
}

func TestCompose_Grafana_FindsDashboards(t *testing.T) {
	t.Parallel()
	f := read(t)
	grafana := f.Services["grafana"]
	mounted := map[string]string{} // folder in the container -> folder here
	for _, v := range grafana.Volumes {
		if parts := strings.Split(v, ":"); strings.HasPrefix(parts[0], "./") {
			mounted[parts[1]] = filepath.Join(root, parts[0])
		}
	}
	provisioning := mounted["/etc/grafana/provisioning"]
	var sources struct {
		Datasources []struct{ UID, URL string }
	}
	var providers struct {
		Providers []struct{ Options struct{ Path string } }
	}
	for path, into := range map[string]any{"datasources/keb.yaml": &sources, "dashboards/keb.yaml": &providers} {
		text, err := os.ReadFile(filepath.Join(provisioning, path))
		require.NoError(t, err)
		require.NoErrorf(t, yaml.Unmarshal(text, into), "%s", path)
	}
	if len(sources.Datasources) != 1 || len(providers.Providers) != 1 {
		t.Fatalf("data sources %v, providers %v: want one of each", sources, providers)
	}
	u, err := url.Parse(sources.Datasources[0].URL)
	require.NoError(t, err)
	prometheus := f.Services[u.Hostname()]
	if !slices.ContainsFunc(prometheus.Networks, func(n string) bool { return slices.Contains(grafana.Networks, n) }) {
		t.Errorf("Grafana does not reach %s: it is in %v, the other in %v", u, grafana.Networks, prometheus.Networks)
	}
	dashboards := 0
	for target, dir := range mounted {
		if !strings.HasPrefix(target, providers.Providers[0].Options.Path+"/") {
			continue
		}
		files, err := filepath.Glob(filepath.Join(dir, "*.json"))
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			var dashboard struct{ UID, Title string }
			if err := json.Unmarshal(text, &dashboard); err != nil || dashboard.UID == "" || dashboard.Title == "" {
				t.Errorf("%s is no dashboard: %+v, %v", file, dashboard, err)
			}
			dashboards++
		}
	}
	if dashboards < 5 {
		t.Errorf("%d dashboards are where Grafana looks", dashboards)
	}
}
