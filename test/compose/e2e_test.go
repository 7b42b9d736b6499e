package compose

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/internal/harness"
)

const (
	// project keeps this installation apart from others on the machine.
	project = "keb-e2e"
	// upLimit covers building images that are not there; limit is for one condition while operations run.
	upLimit = 30 * time.Minute
	limit   = 5 * time.Minute
	// load is how many runtimes are ordered while every container is killed.
	load = 60
	// What "secrets show" calls them.
	osbPassword   = "OSB API, user keb"
	operatorToken = "operator API and console, token of an operator"
)

// installation is docker-compose.yml, up.
type installation struct {
	t       *testing.T
	compose []string
	// files are further ones, which change it.
	files []string
	env   []string
	ports map[string]string
	// services are what is started, in the order in which they were declared.
	services []string
	// secrets are what "secrets show" prints, and sys shows: for an installation without TLS.
	secrets map[string]string
	sys     *harness.System
}

func TestEngine_KillsAndScaling_LoseNoOperation(t *testing.T) {
	testkit.Suite(t, "compose")
	in := up(t, []string{"test/compose/look-up.yml"})
	in.confined(t)
	in.provisionWithTheCLI(t)
	in.metrics(t)
	in.killEach(t)
	in.restarts(t, "worker-edp")
	in.scale(t)
}

// up starts everything on ports of its own, with further files and variables.
func up(t *testing.T, files []string, env ...string) *installation {
	t.Helper()
	in := &installation{t: t, compose: []string{"docker", "compose"}, files: files, env: env, ports: map[string]string{}, secrets: map[string]string{}}
	if exec.Command("docker", "compose", "version").Run() != nil {
		in.compose = []string{"docker-compose"}
	}
	for _, name := range []string{"KEB_OSB_PORT", "KEB_OPERATOR_PORT", "KEB_LANDSCAPE_PORT", "KEB_PROMETHEUS_PORT", "KEB_GRAFANA_PORT"} {
		in.ports[name] = strconv.Itoa(testkit.Port(t))
		in.env = append(in.env, name+"="+in.ports[name])
	}
	in.env = append(in.env, "COMPOSE_PROJECT_NAME="+project)
	for name := range strings.FieldsSeq(in.run("config", "--services")) {
		// The commands are run when they are needed, and what Kyma 1 needs is off.
		if profiles := read(t).Services[name].Profiles; len(profiles) == 0 {
			in.services = append(in.services, name)
		}
	}
	slices.Sort(in.services)
	in.services = slices.DeleteFunc(in.services, func(name string) bool {
		image := read(t).Services[name].Image
		if strings.HasPrefix(image, "keb/") || exec.Command("docker", "image", "inspect", image).Run() == nil || exec.Command("docker", "pull", "-q", image).Run() == nil {
			return false
		}
		if name != "grafana" {
			t.Fatalf("image %s is neither here nor can it be pulled; test/compose/standins/build.sh makes a stand-in", image)
		}
		t.Logf("image %s is neither here nor can it be pulled: Grafana is NOT started", image)
		return true
	})
	in.down()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the logs:\n%s", in.try("logs", "--no-color", "--tail", "15"))
		}
		in.down()
	})
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), upLimit)
	defer cancel()
	if out, err := in.command(ctx, append([]string{"up", "-d"}, in.services...)...).CombinedOutput(); err != nil {
		t.Fatalf("up: %v\n%s", err, out)
	}
	in.healthy()
	t.Logf("%d services are up and healthy after %s", len(in.services), time.Since(start).Round(time.Second))
	for line := range strings.Lines(in.run("run", "--rm", "-T", "cli", "secrets", "show")) {
		fields := strings.Fields(line)
		if len(fields) > 2 {
			in.secrets[strings.Join(fields[:len(fields)-1], " ")] = fields[len(fields)-1]
		}
	}
	in.sys = harness.Connect(t, harness.Remote{
		OSBAddr: "127.0.0.1:" + in.ports["KEB_OSB_PORT"], OperatorAddr: "127.0.0.1:" + in.ports["KEB_OPERATOR_PORT"],
		LandscapeAddr: "127.0.0.1:" + in.ports["KEB_LANDSCAPE_PORT"],
		Password:      in.secrets[osbPassword], Token: in.secrets[operatorToken],
	})
	return in
}

// down removes everything, with the volumes.
func (in *installation) down() { in.try("down", "-v", "--remove-orphans", "-t", "5") }

func (in *installation) command(ctx context.Context, args ...string) *exec.Cmd {
	all := slices.Concat(in.compose[1:], []string{"--project-directory", root, "-f", root + "/docker-compose.yml"})
	for _, file := range in.files {
		all = append(all, "-f", root+"/"+file)
	}
	cmd := exec.CommandContext(ctx, in.compose[0], append(all, args...)...)
	cmd.Env = append(os.Environ(), in.env...)
	return cmd
}

// run runs a compose command and gives its standard output.
func (in *installation) run(args ...string) string {
	in.t.Helper()
	ctx, cancel := context.WithTimeout(in.t.Context(), limit)
	defer cancel()
	cmd := in.command(ctx, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		in.t.Fatalf("compose %s: %v\n%s%s", strings.Join(args, " "), err, out.String(), errs.String())
	}
	return out.String()
}

// try is run for what may fail, also when the test is over.
func (in *installation) try(args ...string) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(in.t.Context()), limit)
	defer cancel()
	out, err := in.command(ctx, args...).CombinedOutput()
	if err != nil {
		in.t.Logf("compose %s: %v", strings.Join(args, " "), err)
	}
	return string(out)
}

// container is what the engine says of one.
type container struct {
	ID           string `json:"Id"`
	RestartCount int
	State        struct {
		Running bool
		Pid     int
		Health  *struct{ Status string }
	}
	Config struct {
		User   string
		Image  string
		Labels map[string]string
	}
	HostConfig struct {
		ReadonlyRootfs bool
		CapDrop        []string
		SecurityOpt    []string
		Memory         int64
	}
	NetworkSettings struct {
		Networks map[string]struct{ IPAddress string }
	}
}

func (c container) service() string { return c.Config.Labels["com.docker.compose.service"] }

func (c container) healthy() bool {
	return c.State.Running && c.State.Health != nil && c.State.Health.Status == "healthy"
}

// containers are those of the services that run all the time, by service.
func (in *installation) containers() []container {
	in.t.Helper()
	out, err := exec.Command("docker", "ps", "-aq", "--no-trunc", "--filter", "label=com.docker.compose.project="+project,
		"--filter", "label=com.docker.compose.oneoff=False").Output()
	require.NoError(in.t, err)
	found := inspect(in.t, strings.Fields(string(out))...)
	found = slices.DeleteFunc(found, func(c container) bool { return c.service() == "init" })
	slices.SortFunc(found, func(a, b container) int { return strings.Compare(a.service()+a.ID, b.service()+b.ID) })
	return found
}

func inspect(t *testing.T, ids ...string) []container {
	t.Helper()
	out, err := exec.Command("docker", append([]string{"inspect"}, ids...)...).Output()
	require.NoError(t, err, "inspect")
	var found []container
	require.NoError(t, json.Unmarshal(out, &found))
	return found
}

// healthy waits until every container is.
func (in *installation) healthy() {
	in.t.Helper()
	var waiting []string
	defer func() {
		if in.t.Failed() {
			in.t.Logf("not healthy: %v", waiting)
		}
	}()
	testkit.Eventually(in.t, limit, "every container is healthy", func() bool {
		waiting = nil
		for _, c := range in.containers() {
			if !c.healthy() {
				waiting = append(waiting, c.service())
			}
		}
		return len(waiting) == 0
	})
}

func (in *installation) confined(t *testing.T) {
	containers := in.containers()
	if len(containers) < 15 {
		t.Fatalf("%d containers run", len(containers))
	}
	networks := map[string][]string{}
	for _, c := range containers {
		if !c.HostConfig.ReadonlyRootfs || !slices.Equal(c.HostConfig.CapDrop, []string{"ALL"}) || c.HostConfig.Memory == 0 ||
			!slices.Contains(c.HostConfig.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s is not confined: %+v", c.service(), c.HostConfig)
		}
		if strings.HasPrefix(c.Config.Image, "keb/") && c.Config.User != "65532:65532" {
			t.Errorf("%s runs as %q", c.service(), c.Config.User)
		}
		// What the kernel says of the process itself.
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.State.Pid))
		if err != nil {
			t.Logf("%s: the process is not visible from here: %v", c.service(), err)
		} else if text := string(status); strings.Contains(text, "\nUid:\t0") || !strings.Contains(text, "\nCapEff:\t0000000000000000\n") || !strings.Contains(text, "\nNoNewPrivs:\t1\n") {
			t.Errorf("%s: the kernel gives its process\n%s", c.service(), text)
		}
		for network := range c.NetworkSettings.Networks {
			networks[c.service()] = append(networks[c.service()], network)
		}
	}
	for name, of := range networks {
		if strings.HasPrefix(name, "worker-") && slices.ContainsFunc(of, func(n string) bool { return slices.Contains(networks["postgres"], n) }) {
			t.Errorf("%s is in a network with Postgres: %v", name, of)
		}
	}
	out, err := exec.Command("docker", "image", "ls", "--format", "{{.Repository}}:{{.Tag}} {{.Size}}", "--filter", "reference=keb/*:dev").Output()
	require.NoError(t, err)
	t.Logf("sizes:\n%s", out)
}

func (in *installation) provisionWithTheCLI(t *testing.T) {
	out := in.run("run", "--rm", "-T", "cli", "provision", "-f", "/examples/aws.json", "--wait")
	if !strings.Contains(out, "succeeded") {
		t.Errorf("provision says\n%s", out)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+in.sys.OperatorAddr+"/operations", http.NoBody)
	require.NoError(t, err)
	client := http.Client{Timeout: 30 * time.Second}
	answer, err := client.Do(request)
	require.NoError(t, err)
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token the operator API answers %s", answer.Status)
	}
}

func (in *installation) metrics(t *testing.T) {
	type targets struct {
		Data struct {
			ActiveTargets []struct {
				Health string
				Labels struct{ Job string }
			}
		}
	}
	want := 0
	for _, name := range in.services {
		if read(t).Services[name].Environment["KEB_METRICS_ADDR"] != "" {
			want++
		}
	}
	testkit.Eventually(t, limit, "Prometheus scrapes every service", func() bool {
		up := 0
		got := harness.Get[targets](in.sys, "http://127.0.0.1:"+in.ports["KEB_PROMETHEUS_PORT"]+"/api/v1/targets")
		for _, target := range got.Data.ActiveTargets {
			if target.Health == "up" {
				up++
			}
		}
		return up == want
	})
	t.Logf("%d targets are up", want)
}

// accepting waits until the door, the broker and its database take orders.
func (in *installation) accepting(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, limit, "orders are taken", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := in.sys.Platform().Catalog(ctx)
		return err == nil && in.ready(ctx)
	})
}

func (in *installation) ready(ctx context.Context) bool {
	for _, addr := range []string{in.sys.OperatorAddr + "/readyz", in.sys.LandscapeAddr + "/healthz"} {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr, http.NoBody)
		if err != nil {
			return false
		}
		answer, err := in.sys.HTTP.Do(request)
		if err != nil || answer.Body.Close() != nil || answer.StatusCode != http.StatusOK {
			return false
		}
	}
	return true
}

type ordered struct {
	order *harness.Order
	id    string
}

// order places an order the way a platform does: again until it is accepted.
func (in *installation) order(t *testing.T) ordered {
	t.Helper()
	o := harness.Azure()
	id := ""
	testkit.Eventually(t, limit, "the order is accepted", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		answer, err := in.sys.Platform().Provision(ctx, o.InstanceID, o.Body())
		if err != nil || answer.Operation == "" {
			return false
		}
		id = answer.Operation
		return true
	})
	return ordered{o, id}
}

// inFlight counts the orders that have not ended. The orchestrator, which is asked, may not know the newest yet.
func (in *installation) inFlight(orders []ordered) int {
	ended := map[string]bool{}
	for _, op := range in.sys.Operations() {
		ended[op.ID] = op.Final()
	}
	running := 0
	for _, o := range orders {
		if !ended[o.id] {
			running++
		}
	}
	return running
}

// killEach kills every container, one after the other, while runtimes are being provisioned.
func (in *installation) killEach(t *testing.T) {
	before := in.sys.Holds()
	victims := in.containers()
	var orders []ordered
	start := time.Now()
	for i, c := range victims {
		in.accepting(t)
		// The landscape forgets its faults when it is killed.
		for _, system := range []string{"avs", "edp", "provisioner", "director", "reconciler", "control-plane", "gardener", "runtimes"} {
			in.sys.Fault(system, `{"latencyMs": 100}`)
		}
		for len(orders) < (i+1)*load/len(victims) {
			orders = append(orders, in.order(t))
		}
		running := in.inFlight(orders)
		if running == 0 {
			t.Errorf("no operation is in flight when %s is killed", c.service())
		}
		docker(t, "kill", c.ID)
		docker(t, "start", c.ID)
		t.Logf("killed %s with %d operations in flight", c.service(), running)
	}
	in.healthy()
	in.ended(t, orders, before)
	t.Logf("%d containers killed, %d operations succeeded, in %s", len(victims), len(orders), time.Since(start).Round(time.Second))
}

// ended wants all orders to have succeeded, and the landscape to hold exactly what they need.
func (in *installation) ended(t *testing.T, orders []ordered, before map[string]int) {
	t.Helper()
	all := make([]*harness.Order, 0, len(orders))
	for _, o := range orders {
		in.sys.PollEnd(o.order, o.id, osb.StateSucceeded, limit)
		all = append(all, o.order)
		op := in.sys.Operation(o.id)
		if problems := op.RanAgain(); len(problems) > 0 || len(op.NotCompleted) > 0 {
			t.Errorf("operation %s: ran again %v, not completed %v", o.id, problems, op.NotCompleted)
		}
	}
	for i, footprint := range in.sys.Footprints(all) {
		if diff := cmp.Diff(harness.Complete(), footprint); diff != "" {
			t.Errorf("instance %s (-want +got):\n%s", all[i].InstanceID, diff)
		}
	}
	made, after := map[string]int{}, in.sys.Holds()
	want := harness.Complete().Created(len(orders))
	for key := range want {
		made[key] = after[key] - before[key]
	}
	if diff := cmp.Diff(want, made); diff != "" {
		t.Errorf("objects in the landscape (-want +got):\n%s", diff)
	}
}

func docker(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("docker", args...).CombinedOutput(); err != nil {
		t.Fatalf("docker %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// restarts kills a process behind the engine's back, as a crash does: "docker kill" counts as an order to stay down.
func (in *installation) restarts(t *testing.T, name string) {
	t.Helper()
	for _, c := range in.containers() {
		if c.service() != name {
			continue
		}
		err := syscall.Kill(c.State.Pid, syscall.SIGKILL)
		if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ESRCH) {
			t.Logf("not tried, the process is not ours to kill from here: %v", err)
			return
		}
		require.NoError(t, err)
		testkit.Eventually(t, limit, "the engine has started it again", func() bool {
			now := inspect(t, c.ID)[0]
			return now.RestartCount > c.RestartCount && now.healthy()
		})
		return
	}
	t.Errorf("%s does not run", name)
}

// scale adds replicas, and kills one of each while they work.
func (in *installation) scale(t *testing.T) {
	in.run(append([]string{"up", "-d", "--scale", "worker-avs=3", "--scale", "orchestrator=2", "--scale", "broker=2"}, in.services...)...)
	in.healthy()
	in.accepting(t)
	type worker struct {
		Name     string `json:"name"`
		Replicas int    `json:"replicas"`
	}
	testkit.Eventually(t, limit, "three replicas of worker avs", func() bool {
		workers := harness.Get[struct{ Data []worker }](in.sys, "http://"+in.sys.OperatorAddr+"/workers").Data
		return slices.Contains(workers, worker{"avs", 3})
	})
	before := in.sys.Holds()
	var orders []ordered
	for range 10 {
		orders = append(orders, in.order(t))
	}
	killed := map[string]bool{}
	for _, c := range in.containers() {
		if name := c.service(); (name == "worker-avs" || name == "orchestrator" || name == "broker") && !killed[name] {
			killed[name] = true
			docker(t, "kill", c.ID)
		}
	}
	for range 10 {
		orders = append(orders, in.order(t))
	}
	in.ended(t, orders, before)
	t.Logf("%d operations succeeded while a replica of %d scaled services was gone for good", len(orders), len(killed))
}
