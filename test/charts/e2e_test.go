package charts_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/kubetest"
)

const (
	e2eNamespace = "keb"
	// patience is for what takes minutes on a machine with much to do.
	patience = 8 * time.Minute
)

// needed skips a test that was not requested.
func needed(t *testing.T) {
	t.Helper()
	testkit.Suite(t, "charts")
}

// values returns the values of demo.yaml with others over them.
func values(t *testing.T, over string) map[string]any {
	t.Helper()
	var all map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(merged(t, readFile(t, kebDir+"demo.yaml"), over)), &all))
	return all
}

// helm does what the command line of Helm does.
type helm struct {
	t   *testing.T
	cfg *action.Configuration
}

func newHelm(t *testing.T, cluster *kubetest.Cluster) *helm {
	t.Helper()
	kubeconfig, ns := cluster.Kubeconfig(t, cluster.Config), e2eNamespace
	flags := genericclioptions.NewConfigFlags(false)
	flags.KubeConfig, flags.Namespace = &kubeconfig, &ns
	h := &helm{t: t, cfg: new(action.Configuration)}
	require.NoError(t, h.cfg.Init(flags, e2eNamespace, "secret", func(string, ...any) {}))
	return h
}

func (h *helm) install(values map[string]any) {
	h.t.Helper()
	h.installChart(kebDir, releaseName, values)
}

func (h *helm) installChart(dir, name string, values map[string]any) {
	h.t.Helper()
	c, err := loader.LoadDir(dir)
	require.NoError(h.t, err)
	i := action.NewInstall(h.cfg)
	i.ReleaseName, i.Namespace, i.CreateNamespace, i.Wait, i.Timeout = name, e2eNamespace, true, true, patience
	_, err = i.RunWithContext(h.t.Context(), c, values)
	require.NoErrorf(h.t, err, "helm install %s", name)
}

func (h *helm) upgrade(ctx context.Context, values map[string]any) error {
	c, err := loader.LoadDir(kebDir)
	if err != nil {
		return err
	}
	u := action.NewUpgrade(h.cfg)
	u.Namespace, u.Wait, u.Timeout = e2eNamespace, true, patience
	_, err = u.RunWithContext(ctx, releaseName, c, values)
	return err
}

func (h *helm) rollback(revision int) {
	h.t.Helper()
	r := action.NewRollback(h.cfg)
	r.Version, r.Wait, r.Timeout = revision, true, patience
	require.NoError(h.t, r.Run(releaseName), "helm rollback")
}

func (h *helm) uninstall(name string) {
	h.t.Helper()
	u := action.NewUninstall(h.cfg)
	u.Wait, u.Timeout = true, patience
	_, err := u.Run(name)
	require.NoError(h.t, err, "helm uninstall")
}

// test runs the pods of `helm test`.
func (h *helm) test() {
	h.t.Helper()
	rt := action.NewReleaseTesting(h.cfg)
	rt.Namespace, rt.Timeout = e2eNamespace, patience
	_, err := rt.Run(releaseName)
	require.NoError(h.t, err, "helm test")
}

// kubeServer starts a server of Kubernetes beside those of kubetest.
func kubeServer(t *testing.T, cluster *kubetest.Cluster, name string, args ...string) {
	t.Helper()
	dir := os.Getenv("KUBEBUILDER_ASSETS")
	if dir == "" {
		dir = repository + ".keb/kube"
	}
	binary, err := filepath.Abs(filepath.Join(dir, name))
	require.NoError(t, err)
	if _, err := os.Stat(binary); err != nil {
		t.Fatalf("%v: run `make e2e SUITE=charts`", err)
	}
	log := filepath.Join(t.TempDir(), name+".log")
	file, err := os.Create(log)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, binary, append(args, "--kubeconfig="+cluster.Kubeconfig(t, cluster.Config), "--leader-elect=false", "--secure-port=0")...)
	cmd.Stdout, cmd.Stderr = file, file
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait() // killed is how it ends
		_ = file.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log)
			t.Logf("--- %s\n%s", name, tail(string(text)))
		}
	})
}

func tail(text string) string {
	const most = 4 << 10
	return text[max(0, len(text)-most):]
}

// pods are those of the release that are not about to vanish.
func pods(t *testing.T, c client.Client) []corev1.Pod {
	t.Helper()
	var list corev1.PodList
	require.NoError(t, c.List(t.Context(), &list, client.InNamespace(e2eNamespace), client.MatchingLabels{"app.kubernetes.io/instance": releaseName}))
	var left []corev1.Pod
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			left = append(left, p)
		}
	}
	return left
}

func ready(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// leftovers waits until nothing of the release is left but what must stay, and returns what that is.
func leftovers(t *testing.T, c client.Client) []string {
	t.Helper()
	testkit.Eventually(t, patience, "the pods to vanish", func() bool {
		var list corev1.PodList
		require.NoError(t, c.List(t.Context(), &list, client.InNamespace(e2eNamespace)))
		return len(list.Items) == 0
	})
	var found []string
	resources, err := listAll(t, c)
	require.NoError(t, err)
	for _, r := range resources {
		found = append(found, r.GetObjectKind().GroupVersionKind().Kind+" "+r.GetName())
	}
	return found
}

// get reads an object that must be there.
func get[T client.Object](t *testing.T, c client.Client, name string, into T) T {
	t.Helper()
	err := c.Get(t.Context(), client.ObjectKey{Namespace: e2eNamespace, Name: name}, into)
	if apierrors.IsNotFound(err) {
		t.Fatalf("no %T %s", into, name)
	}
	require.NoError(t, err)
	return into
}

func lines(items []string) string { return "\n  " + strings.Join(items, "\n  ") }

func run(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return strings.TrimSpace(string(out)), nil
}

func items(list client.ObjectList) ([]client.Object, error) {
	found, err := meta.ExtractList(list)
	if err != nil {
		return nil, err
	}
	objects := make([]client.Object, 0, len(found))
	for _, o := range found {
		objects = append(objects, o.(client.Object))
	}
	return objects, nil
}
