package kubetest

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// demand is the variable that make e2e sets: with it a test fails, instead of being skipped, if the servers are missing.
	demand = "KEB_SUITE"
	// nodeName is the name of the only node.
	nodeName = "simulated"
	noServer = "no whole cluster: run `make e2e SUITE=btpmanager`"
)

// controllers are the required controllers. Without node-lifecycle-controller a new node keeps its not-ready taint.
var controllers = []string{
	"deployment-controller", "replicaset-controller", "job-controller", "endpointslice-controller",
	"namespace-controller", "garbage-collector-controller", "node-lifecycle-controller",
}

//go:embed stages.yaml
var stages []byte

// Full starts a complete cluster for this test: a kube-apiserver with controllers, a scheduler and one simulated node, so that Deployments
// become ready, namespaces are removed and owned objects are deleted with their owners. If the test fails, its output contains the ends of
// the servers' logs. The test is skipped if the servers are missing, and fails if `make e2e SUITE=btpmanager` requires them.
func Full(t testing.TB, opts ...Option) *Cluster {
	t.Helper()
	needFull(t)
	c, err := Start(t, append(slices.Clone(opts), whole)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.Logs())
		}
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func whole(c *Cluster) error {
	c.whole = true
	return nil
}

func needFull(t testing.TB) {
	t.Helper()
	if dir := folder(); dir != "" && haveAll(dir, "kube-controller-manager", "kube-scheduler", "kwok", "kubectl") {
		return
	}
	if os.Getenv(demand) != "" {
		t.Fatal(noServer)
	}
	t.Skip(noServer)
}

func haveAll(dir string, names ...string) bool {
	return !slices.ContainsFunc(names, func(n string) bool {
		_, err := os.Stat(filepath.Join(dir, n))
		return err != nil
	})
}

// Logs returns the ends of the logs of the controllers, the scheduler and the node.
func (c *Cluster) Logs() string {
	var logs []string
	for _, p := range c.processes {
		logs = append(logs, p.lastLines())
	}
	return strings.Join(logs, "\n")
}

// startProcesses starts the processes besides the kube-apiserver, and waits until the node accepts pods.
func (c *Cluster) startProcesses() error {
	admin, err := c.adminKubeconfig()
	if err != nil {
		return err
	}
	stageFile := filepath.Join(c.dir, "stages.yaml")
	if err := os.WriteFile(stageFile, stages, 0o600); err != nil {
		return fmt.Errorf("write the stages of pods: %w", err)
	}
	for _, args := range [][]string{
		{
			"kube-controller-manager", "--leader-elect=false", "--secure-port=0", "--use-service-account-credentials=false",
			"--controllers=" + strings.Join(controllers, ","),
		},
		{"kube-scheduler", "--leader-elect=false", "--secure-port=0"},
		{"kwok", "--manage-all-nodes=true", "--node-lease-duration-seconds=40", "--config=" + stageFile},
	} {
		p, err := launch(c.dir, filepath.Join(folder(), args[0]), append(args[1:], "--kubeconfig="+admin)...)
		if err != nil {
			return err
		}
		c.processes = append(c.processes, p)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if err := c.startNode(ctx); err != nil {
		return fmt.Errorf("start a node: %w\n%s", err, c.Logs())
	}
	return nil
}

func (c *Cluster) startNode(ctx context.Context) error {
	cl, err := client.New(c.Config, client.Options{})
	if err != nil {
		return err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, Labels: map[string]string{corev1.LabelHostname: nodeName}}}
	if err := cl.Create(ctx, node); err != nil {
		return err
	}
	return wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		for _, p := range c.processes {
			if !p.running() {
				return false, errors.New(p.name + " has ended")
			}
		}
		if err := cl.Get(ctx, client.ObjectKeyFromObject(node), node); err != nil {
			return false, err
		}
		ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
		return ready && len(node.Spec.Taints) == 0, nil
	})
}

// stopProcesses stops them before the kube-apiserver, which would otherwise wait for their watches.
func (c *Cluster) stopProcesses() error {
	var errs []error
	for _, p := range slices.Backward(c.processes) {
		errs = append(errs, p.stop())
	}
	return errors.Join(errs...)
}
