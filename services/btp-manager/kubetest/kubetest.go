// Package kubetest provides a real kube-apiserver with etcd for tests (`make envtest` builds both), and renders Helm charts without one.
package kubetest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/kyma-project/keb/libs/testkit"
)

// assets is the folder in which `make envtest` puts the servers, and the name of the variable for another folder.
const assets = "KUBEBUILDER_ASSETS"

// serverEnv is the environment of the servers. A program reads it once, at its start. With more processors than one the servers spend a
// tenth of their time on moving work between them, and they have little garbage that is worth collecting often.
var serverEnv = map[string]string{"GOMAXPROCS": "1", "GOGC": "400"}

const (
	// startLimit is the maximum start time of etcd, the kube-apiserver and a definition each, on a busy machine.
	startLimit = 2 * time.Minute
	// starts is the number of attempts to start a cluster, because envtest limits the creation of the first namespace to five seconds.
	starts = 3
)

// crd is the path of the BtpOperator's definition in the repository.
const crd = "deploy/helm/btp-manager/templates/operator.kyma-project.io_btpoperators.yaml"

// Shared is one cluster for all tests of a package. The first test that requests it starts it:
//
//	var shared kubetest.Shared
//
//	func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }
type Shared struct {
	// Options are the options of Start.
	Options []Option
	// Full makes it a complete cluster, like the function Full.
	Full bool

	once    sync.Once
	cluster *Cluster
	err     error
}

// Main runs the tests of a package and then stops the cluster.
func (s *Shared) Main(m *testing.M) int {
	code := m.Run()
	if s.cluster != nil {
		if code != 0 && s.Full {
			fmt.Fprintln(os.Stderr, s.cluster.Logs())
		}
		if err := s.cluster.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// Cluster returns the cluster. It skips the test if there is no kube-apiserver, unless KUBEBUILDER_ASSETS is set: then the test
// fails.
func (s *Shared) Cluster(t testing.TB) *Cluster {
	t.Helper()
	if folder() == "" {
		t.Skip("no kube-apiserver: make e2e SUITE=btpmanager builds one, and runs this test")
	}
	opts := slices.Clone(s.Options)
	if s.Full {
		needFull(t)
		opts = append(opts, whole)
	}
	s.once.Do(func() { s.cluster, s.err = Start(t, opts...) })
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.cluster
}

// Cluster is a kube-apiserver with its etcd, without controllers and nodes.
type Cluster struct {
	// Config is a connection with all rights.
	Config *rest.Config
	// Environment manages the servers.
	Environment *envtest.Environment

	// dir contains the files of the cluster: its audit log, the kubeconfig of its administrator.
	dir   string
	audit *audit
	// A whole cluster has processes besides the kube-apiserver.
	whole     bool
	processes []*process
}

// Option changes the start of a cluster.
type Option func(*Cluster) error

// NoWebhooks makes the kube-apiserver ignore webhooks: without pods they are unavailable, and each request would wait for them. Webhook
// configurations can still be created.
func NoWebhooks(c *Cluster) error {
	c.Environment.ControlPlane.GetAPIServer().Configure().
		Append("disable-admission-plugins", "MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")
	return nil
}

// Start starts a cluster with the definition of the BtpOperator. Its ports are reserved until the test ends, even while nothing listens.
func Start(t testing.TB, opts ...Option) (*Cluster, error) {
	servers := folder()
	if servers == "" {
		return nil, errors.New("no kube-apiserver: run `make envtest` first")
	}
	dir, err := os.MkdirTemp("", "kubetest-") //nolint:usetesting // a shared cluster outlives the test that starts it
	if err != nil {
		return nil, fmt.Errorf("start a cluster: %w", err)
	}
	c := &Cluster{dir: dir, Environment: &envtest.Environment{
		BinaryAssetsDirectory:    servers,
		ControlPlaneStartTimeout: startLimit,
		ControlPlaneStopTimeout:  startLimit,
		CRDInstallOptions: envtest.CRDInstallOptions{
			Paths: []string{filepath.Join(root(), crd)}, ErrorIfPathMissing: true, MaxTime: startLimit,
		},
	}}
	c.listen(t)
	token, err := c.adminToken()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start a cluster: %w", err), os.RemoveAll(dir))
	}
	// Priority queues help only an overloaded server, and take time for every request.
	c.Environment.ControlPlane.GetAPIServer().Configure().Set("enable-priority-and-fairness", "false")
	for _, o := range opts {
		if err := o(c); err != nil {
			return nil, errors.Join(fmt.Errorf("start a cluster: %w", err), os.RemoveAll(dir))
		}
	}
	if c.Config, err = c.startServers(); err != nil {
		return nil, errors.Join(fmt.Errorf("start kube-apiserver and etcd: %w", err), c.Stop())
	}
	c.Config.BearerToken, c.Config.CertData, c.Config.KeyData = token, nil, nil
	// Tests make many concurrent calls, and do not test the limits of a client.
	c.Config.QPS, c.Config.Burst = -1, 0
	if c.whole {
		if err := c.startProcesses(); err != nil {
			return nil, errors.Join(err, c.Stop())
		}
	}
	return c, nil
}

// adminToken registers a token for the administrator in the kube-apiserver. The server verifies the signature of a client certificate for
// each request, which takes more time than many requests.
func (c *Cluster) adminToken() (string, error) {
	token, file := rand.Text(), filepath.Join(c.dir, "tokens.csv")
	if err := os.WriteFile(file, []byte(token+",admin,admin,system:masters\n"), 0o600); err != nil {
		return "", err
	}
	c.Environment.ControlPlane.GetAPIServer().Configure().Set("token-auth-file", file)
	return token, nil
}

// startServers starts kube-apiserver and etcd with the settings of serverEnv, unless the environment has others.
func (c *Cluster) startServers() (*rest.Config, error) {
	var ours []string
	defer func() {
		for _, name := range ours {
			_ = os.Unsetenv(name)
		}
	}()
	for name, value := range serverEnv {
		if _, set := os.LookupEnv(name); set {
			continue
		}
		ours = append(ours, name)
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	for try := 1; ; try++ {
		cfg, err := c.Environment.Start()
		if err == nil || try == starts {
			return cfg, err
		}
		if err := c.Environment.Stop(); err != nil {
			return nil, err
		}
	}
}

// listen sets the addresses of the servers. By default they select ports that the system also assigns to connections, and fail if a
// connection gets the port first.
func (c *Cluster) listen(t testing.TB) {
	c.Environment.ControlPlane.Etcd = &envtest.Etcd{URL: &url.URL{Scheme: "http", Host: testkit.Addr(t)}}
	c.Environment.ControlPlane.Etcd.Configure().Set("listen-peer-urls", "http://127.0.0.1:0") // it has no peers
	api := c.Environment.ControlPlane.GetAPIServer()
	api.Address, api.Port = "127.0.0.1", strconv.Itoa(testkit.Port(t))
}

// Stop stops the cluster and removes its files.
func (c *Cluster) Stop() error {
	errs := []error{c.stopProcesses()}
	if err := c.Environment.Stop(); err != nil {
		errs = append(errs, fmt.Errorf("stop kube-apiserver and etcd: %w", err))
	}
	return errors.Join(append(errs, os.RemoveAll(c.dir))...)
}

// Client returns a client that reads without a cache.
func (c *Cluster) Client(t testing.TB, opts client.Options) client.Client {
	t.Helper()
	cl, err := client.New(c.Config, opts)
	if err != nil {
		t.Fatal(err)
	}
	return cl
}

// folder returns the folder of the servers, or "".
func folder() string {
	if dir := os.Getenv(assets); dir != "" {
		return dir
	}
	dir := filepath.Join(root(), ".keb", "kube")
	if _, err := os.Stat(filepath.Join(dir, "kube-apiserver")); err != nil {
		return ""
	}
	return dir
}

// root returns the folder of the repository.
func root() string {
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir
		}
	}
	return ""
}
