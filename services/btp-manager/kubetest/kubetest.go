// Package kubetest gives tests a real kube-apiserver with its etcd. `make envtest` builds both.
package kubetest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// assets is where `make envtest` puts the servers, and the variable that names another folder.
const assets = "KUBEBUILDER_ASSETS"

// processors is the variable that tells a Go program how many processors to use. It is read once, at the start.
const processors = "GOMAXPROCS"

const (
	// startLimit is how long etcd, the kube-apiserver and a definition may each take to start, on a machine with much to do.
	startLimit = 2 * time.Minute
	// starts is how often a cluster is started before that counts as failed: envtest gives the first namespace five seconds.
	starts = 3
)

// crd is the definition of the BtpOperator, in the repository.
const crd = "deploy/helm/btp-manager/templates/operator.kyma-project.io_btpoperators.yaml"

// Shared is one cluster for all tests of a package, started by the first that asks for it:
//
//	var shared kubetest.Shared
//
//	func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }
type Shared struct {
	// Options are those of Start.
	Options []Option
	// Full makes it a whole cluster, as by the function Full.
	Full bool

	once    sync.Once
	cluster *Cluster
	err     error
}

// Main runs the tests of a package and stops the cluster that they used.
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

// Cluster returns the cluster. It skips the test where there is no kube-apiserver, and fails it when KUBEBUILDER_ASSETS
// promises one.
func (s *Shared) Cluster(t testing.TB) *Cluster {
	t.Helper()
	if folder() == "" {
		t.Skip("no kube-apiserver: run `make envtest` first")
	}
	opts := slices.Clone(s.Options)
	if s.Full {
		needFull(t)
		opts = append(opts, whole)
	}
	s.once.Do(func() { s.cluster, s.err = Start(opts...) })
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.cluster
}

// Cluster is a kube-apiserver with its etcd, without controllers and nodes.
type Cluster struct {
	// Config connects with all rights.
	Config *rest.Config
	// Environment is what runs it.
	Environment *envtest.Environment

	// dir holds what the cluster keeps in files: its audit log, the kubeconfig of its administrator.
	dir   string
	audit *audit
	// whole clusters have processes beside the kube-apiserver.
	whole     bool
	processes []*process
}

// Option changes how a cluster is started.
type Option func(*Cluster) error

// NoWebhooks lets requests pass that webhooks would look at: where no pods run, nobody answers for them, and each request would
// wait for that. Webhook configurations are objects as all others.
func NoWebhooks(c *Cluster) error {
	c.Environment.ControlPlane.GetAPIServer().Configure().
		Append("disable-admission-plugins", "MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")
	return nil
}

// Start starts a cluster that knows the BtpOperator.
func Start(opts ...Option) (*Cluster, error) {
	servers := folder()
	if servers == "" {
		return nil, errors.New("no kube-apiserver: run `make envtest` first")
	}
	dir, err := os.MkdirTemp("", "kubetest-")
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
	token, err := c.adminToken()
	if err == nil {
		err = c.listen()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start a cluster: %w", err), os.RemoveAll(dir))
	}
	// Every request would be sorted into a queue, and queues matter only to a server with more to do than it can.
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
	// Tests make many calls at once; the limits of a client are not what they test.
	c.Config.QPS, c.Config.Burst = -1, 0
	if c.whole {
		if err := c.startProcesses(); err != nil {
			return nil, errors.Join(err, c.Stop())
		}
	}
	return c, nil
}

// adminToken has the kube-apiserver know its administrator by a token. It verifies the signature of a client certificate anew with each
// request, which costs more than many a request itself.
func (c *Cluster) adminToken() (string, error) {
	token, file := rand.Text(), filepath.Join(c.dir, "tokens.csv")
	if err := os.WriteFile(file, []byte(token+",admin,admin,system:masters\n"), 0o600); err != nil {
		return "", err
	}
	c.Environment.ControlPlane.GetAPIServer().Configure().Set("token-auth-file", file)
	return token, nil
}

// startServers starts kube-apiserver and etcd with one processor each, unless the environment says otherwise: beside the tests they
// would spend a tenth of their time on handing work from one processor to another.
func (c *Cluster) startServers() (*rest.Config, error) {
	if _, set := os.LookupEnv(processors); !set {
		if err := os.Setenv(processors, "1"); err != nil {
			return nil, err
		}
		defer func() { _ = os.Unsetenv(processors) }()
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

// listen says where the servers listen. Left to themselves they take ports that the system gives to connections, too, and fail when a
// connection gets one before they do.
func (c *Cluster) listen() error {
	etcd, err := FreeAddress()
	if err != nil {
		return err
	}
	c.Environment.ControlPlane.Etcd = &envtest.Etcd{URL: &url.URL{Scheme: "http", Host: etcd}}
	c.Environment.ControlPlane.Etcd.Configure().Set("listen-peer-urls", "http://127.0.0.1:0") // it has no peers
	address, err := FreeAddress()
	if err != nil {
		return err
	}
	api := c.Environment.ControlPlane.GetAPIServer()
	api.Address, api.Port, err = net.SplitHostPort(address)
	return err
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

// folder is where the servers are, or empty.
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

// root is the folder of the repository.
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
