package charts_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/osb/osbclient"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/kubetest"
	"github.com/kyma-project/keb/test/internal/harness"
)

const (
	// image and next are the tags of the images: what is installed, and what it is upgraded to.
	image, next = "dev", "dev-next"
	// orders are in flight during each of the two upgrades.
	orders = 40
)

// real are the values of the release whose pods really run.
const real = `
image: {registry: "", tag: %s, pullPolicy: Never}
podAnnotations: {generation: "%s"}
postgres: {bundled: {storage: {size: 1Gi}}}
nats: {bundled: {storage: {size: 1Gi}, maxFile: 900Mi, extraWorkers: [lms]}}
landscape: {storage: {size: 1Gi}, env: {KEB_LANDSCAPE_CLUSTER_TIME: 45s, KEB_LANDSCAPE_RECONCILE_TIME: 5s}}
broker: {replicas: 2}
orchestrator: {replicas: 2}
`

// TestUpgrade_UnderLoad_LosesNoOperation upgrades twice while operations run: first everything of KEB to other images, then everything once more with
// the bundled Postgres and NATS.
func TestUpgrade_UnderLoad_LosesNoOperation(t *testing.T) {
	needed(t)
	requireImages(t)
	cluster, err := kubetest.Start(t)
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	kubeServer(t, cluster, "kube-controller-manager", "--use-service-account-credentials=false", "--controllers="+strings.Join([]string{
		"deployment-controller", "replicaset-controller", "statefulset-controller", "job-controller", "cronjob-controller", "endpointslice-controller",
		"namespace-controller", "garbage-collector-controller", "disruption-controller",
	}, ","))
	kubeServer(t, cluster, "kube-scheduler")
	c := cluster.Client(t, client.Options{})
	n := startNode(t, c)
	h := newHelm(t, cluster)

	begin := time.Now()
	h.install(values(t, fmt.Sprintf(real, image, "1")))
	t.Logf("installed, and all pods ready, after %s", time.Since(begin).Round(time.Second))
	h.test()
	// A team's worker with its own chart is ready when the orchestrator lists it; the question needs the token that the chart created.
	h.installChart(workerDir, "lms", map[string]any{
		"image": "keb/step-worker:" + image, "args": []any{"lms"}, "worker": "lms", "imagePullPolicy": "Never", "replicas": 1,
		"env": map[string]any{"KEB_LMS_URL": "http://keb-landscape:8090/lms"},
	})
	awaitWorker(t, c, n, "lms")
	h.uninstall("lms")
	checkPermissions(t, c, n)
	// On a busy machine Postgres or NATS may not answer within the minute for which a service waits: it ends, and starts again.
	killed, failed, restarted := n.ends()
	wrong := slices.DeleteFunc(slices.Clone(restarted), func(end string) bool {
		return strings.Contains(end, ": open postgres at ") || strings.Contains(end, ": connect to nats")
	})
	if len(killed)+len(failed)+len(wrong) > 0 {
		t.Errorf("during the installation, killed%s\nended with an error%s\nended by themselves%s", lines(killed), lines(failed), lines(wrong))
	}
	t.Logf("during the installation %d containers waited in vain for Postgres or NATS, and started again", len(restarted)-len(wrong))

	platform := newPlatform(t, c, n)
	// The landscape comes with objects, such as two Secrets of overrides.
	before := platform.created()
	for i, to := range []struct{ tag, generation, what string }{
		{next, "1", "to other images"}, {next, "2", "of everything, Postgres and NATS included"},
	} {
		former := uids(t, c)
		platform.order(orders)
		platform.awaitClusters((i + 1) * orders)
		if running := platform.unfinished(); running < orders/2 {
			t.Errorf("%d orders are unfinished at the begin of the upgrade: it would show little", running)
		}
		stop := platform.watch()
		begin := time.Now()
		require.NoErrorf(t, h.upgrade(t.Context(), values(t, fmt.Sprintf(real, to.tag, to.generation))), "helm upgrade %s", to.what)
		asked, failed := stop()
		t.Logf("upgrade %s took %s; %d of %d orders were unfinished after it; of %d requests meanwhile %d failed", to.what,
			time.Since(begin).Round(time.Second), platform.unfinished(), orders, asked, len(failed))
		for name, uid := range uids(t, c) {
			bundled := strings.Contains(name, "-nats-") || strings.Contains(name, "-postgres-")
			if former[name] == uid && (!bundled || i > 0) {
				t.Errorf("pod %s is that of before the upgrade", name)
			}
		}
		// Requests may fail while the database restarts.
		if i == 0 && len(failed) > 0 {
			t.Errorf("%d requests of the platform failed, the first: %v", len(failed), failed[0])
		}
		if i == 0 {
			if killed, wrong, restarted := n.ends(); len(killed)+len(wrong)+len(restarted) > 0 {
				t.Errorf("not in order: killed%s\nended with an error%s\nended by themselves%s", lines(killed), lines(wrong), lines(restarted))
			}
		}
		platform.finish()
	}
	want := harness.Complete().Created(2 * orders)
	got := map[string]int{}
	for key, n := range platform.created() {
		if _, ok := want[key]; ok {
			got[key] = n - before[key]
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what external systems made for the orders (-want +got):\n%s", diff)
	}

	h.rollback(1)
	h.test()
	killed, failed, restarted = n.ends()
	if len(killed) > 0 {
		t.Errorf("pods did not end in time:%s", lines(killed))
	}
	// Without database and bus a service may end with an error, and begin anew.
	t.Logf("while Postgres and NATS restarted, these ended with an error:%s\nand these by themselves:%s", lines(failed), lines(restarted))

	h.uninstall(releaseName)
	left := leftovers(t, c)
	slices.Sort(left)
	if !slices.Equal(left, []string{"Secret keb-keys", "Secret keb-postgres"}) {
		t.Errorf("left behind, want only what opens the volumes that stay:%s", lines(left))
	}
}

// requireImages fails where the images are missing, and gives them the tag to upgrade to.
func requireImages(t *testing.T) {
	t.Helper()
	for _, name := range []string{"broker", "orchestrator", "step-worker", "cli", "jobs"} {
		_, err := run(t.Context(), "docker", "tag", "keb/"+name+":"+image, "keb/"+name+":"+next)
		require.NoError(t, err, "the images are missing, run `make images`")
		t.Cleanup(func() {
			if _, err := run(context.WithoutCancel(t.Context()), "docker", "rmi", "keb/"+name+":"+next); err != nil {
				t.Error(err)
			}
		})
	}
	var defaults struct {
		Postgres, Nats struct{ Bundled struct{ Image string } }
	}
	text, err := os.ReadFile(filepath.Join(kebDir, "values.yaml"))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &defaults))
	for _, other := range []string{defaults.Postgres.Bundled.Image, defaults.Nats.Bundled.Image} {
		if _, err := run(t.Context(), "docker", "image", "inspect", other); err == nil {
			continue
		}
		_, err := run(t.Context(), "docker", "pull", "--quiet", other)
		require.NoError(t, err, "an image is missing; without a registry test/compose/standins/build.sh makes one that stands in")
	}
}

// awaitWorker waits until the operator API knows a worker as alive.
func awaitWorker(t *testing.T, c client.Client, n *node, name string) {
	t.Helper()
	token := get(t, c, "keb-operator-token", &corev1.Secret{}).Data["token"]
	testkit.Eventually(t, patience, "the worker "+name, func() bool {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+net.JoinHostPort(n.gateway, "8081")+"/workers", nil)
		require.NoError(t, err)
		request.Header.Set("Authorization", "Bearer "+string(token))
		answer, err := (&http.Client{Timeout: 20 * time.Second}).Do(request)
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		var body struct {
			Data []struct {
				Worker, Name string
				Replicas     int
			}
		}
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("GET /workers with the token of the chart: %s", answer.Status)
		}
		require.NoError(t, json.NewDecoder(answer.Body).Decode(&body))
		for _, w := range body.Data {
			if (w.Name == name || w.Worker == name) && w.Replicas > 0 {
				return true
			}
		}
		return false
	})
}

func uids(t *testing.T, c client.Client) map[string]types.UID {
	t.Helper()
	found := map[string]types.UID{}
	for _, p := range pods(t, c) {
		// Deployments and StatefulSets only, not what runs once.
		if p.Spec.RestartPolicy == corev1.RestartPolicyAlways {
			found[p.Name] = p.UID
		}
	}
	return found
}

// checkPermissions looks at the log of NATS: a service that lacks a permission is refused there, and may seem well.
func checkPermissions(t *testing.T, c client.Client, n *node) {
	t.Helper()
	pod := get(t, c, "keb-nats-0", &corev1.Pod{})
	out, err := run(t.Context(), "docker", "logs", "keb-e2e-"+string(pod.UID))
	require.NoError(t, err)
	for line := range strings.Lines(out) {
		if strings.Contains(line, "Violation") {
			t.Errorf("NATS refused something: %s", line)
		}
	}
}

// platform orders runtimes.
type platform struct {
	t         *testing.T
	client    *osbclient.Client
	landscape string
	open      map[string]string // operations by instance
}

func newPlatform(t *testing.T, c client.Client, n *node) *platform {
	t.Helper()
	secret := get(t, c, "keb-osb", &corev1.Secret{})
	cl, err := osbclient.New(osbclient.Config{
		BaseURL: "http://" + net.JoinHostPort(n.gateway, "8080"), User: string(secret.Data["username"]), Password: string(secret.Data["password"]),
		Timeout: 20 * time.Second, PollAtMost: 2 * time.Second,
	}, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}})
	require.NoError(t, err)
	return &platform{t: t, client: cl, landscape: "http://" + net.JoinHostPort(n.gateway, "8090"), open: map[string]string{}}
}

// order orders runtimes and wants all of them accepted.
func (p *platform) order(count int) {
	p.t.Helper()
	text, err := os.ReadFile(repository + "examples/requests/azure.json")
	require.NoError(p.t, err)
	for i := range count {
		var o osbclient.Provisioning
		require.NoError(p.t, json.Unmarshal(text, &o))
		o.Parameters.(map[string]any)["name"] = fmt.Sprintf("upgrade-%d", i)
		o.Context.(map[string]any)["subaccount_id"] = uuid.NewString()
		id := uuid.NewString()
		answer, err := p.client.Provision(p.t.Context(), id, o)
		require.NoErrorf(p.t, err, "order %d", i)
		p.open[id] = answer.Operation
	}
}

// awaitClusters waits until most of the orders so far have reached the systems that make clusters, so that they are amid their steps.
func (p *platform) awaitClusters(total int) {
	p.t.Helper()
	testkit.Eventually(p.t, patience, "operations amid their steps", func() bool {
		return p.created()["provisioner/runtime"] >= total-orders/2
	})
}

// watch asks for the catalog and for an operation, over and over, until it is stopped.
func (p *platform) watch() (stop func() (asked int, failed []error)) {
	ctx, cancel := context.WithCancel(p.t.Context())
	done := make(chan struct{})
	var asked int
	var failed []error
	ids := slices.Sorted(maps.Keys(p.open))
	go func() {
		defer close(done)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			asked++
			instance := ids[asked%len(ids)]
			_, err := p.client.Catalog(context.WithoutCancel(ctx))
			if _, e := p.client.LastOperation(context.WithoutCancel(ctx), instance, p.open[instance]); err == nil {
				err = e
			}
			if err != nil {
				failed = append(failed, err)
			}
		}
	}()
	return func() (int, []error) {
		cancel()
		<-done
		return asked, failed
	}
}

func (p *platform) unfinished() (count int) {
	p.t.Helper()
	for instance, operation := range p.open {
		if last, err := p.client.LastOperation(p.t.Context(), instance, operation); err != nil || last.State == osb.StateInProgress {
			count++
		}
	}
	return count
}

// finish wants every order to succeed.
func (p *platform) finish() {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	for instance, operation := range p.open {
		last, err := p.client.Poll(ctx, instance, operation, nil)
		require.NoErrorf(p.t, err, "instance %s, operation %s", instance, operation)
		if last.State != osb.StateSucceeded {
			p.t.Errorf("instance %s, operation %s: %s, %s", instance, operation, last.State, last.Description)
		}
	}
	clear(p.open)
}

// created is how many objects the simulated systems have ever made, by "system/kind".
func (p *platform) created() map[string]int {
	p.t.Helper()
	request, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.landscape+"/admin/systems", nil)
	require.NoError(p.t, err)
	answer, err := (&http.Client{Timeout: 20 * time.Second}).Do(request)
	require.NoError(p.t, err)
	defer answer.Body.Close()
	var body struct {
		Data []struct {
			Name    string
			Created map[string]int
		}
	}
	require.NoError(p.t, json.NewDecoder(answer.Body).Decode(&body))
	counts := map[string]int{}
	for _, s := range body.Data {
		for kind, n := range s.Created {
			counts[s.Name+"/"+kind] = n
		}
	}
	return counts
}
