// Package app assembles BTP Manager: the controllers with their events, the caches, metrics, probes and leader election. Tests run it as
// cmd does.
package app

import (
	"context"
	"fmt"
	"io/fs"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
	"github.com/kyma-project/keb/services/btp-manager/internal/certs"
	"github.com/kyma-project/keb/services/btp-manager/internal/config"
	"github.com/kyma-project/keb/services/btp-manager/internal/controller"
	"github.com/kyma-project/keb/services/btp-manager/internal/metric"
	"github.com/kyma-project/keb/services/btp-manager/internal/operand"
	"github.com/kyma-project/keb/services/btp-manager/internal/render"
	"github.com/kyma-project/keb/services/btp-manager/internal/services"
)

const (
	name = "btp-manager"
	// lease is the name of the Lease for the leader election.
	lease = "btp-manager.operator.kyma-project.io"
	// stopTimeout is the time for the controllers to end their passes.
	stopTimeout = 20 * time.Second
	// requestTimeout is the timeout of each request other than a watch.
	requestTimeout = 30 * time.Second
)

// Config configures BTP Manager.
type Config struct {
	// Settings are the flags. A ConfigMap can change some of them.
	Settings config.Config
	// Version is the version of BTP Manager.
	Version string
	// Image is the operand's image; empty means that of the chart.
	Image string
	// LeaseDuration, RenewDeadline and RetryPeriod configure the leader election; zero means 15 s, 10 s and 2 s.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
}

// Deps are the dependencies of BTP Manager.
type Deps struct {
	// REST is the connection to the cluster.
	REST *rest.Config
	// Log is the log; the zero value discards it.
	Log logr.Logger
	// Chart contains the files of the operand's chart.
	Chart fs.FS
	// Metrics registers the metrics. /metrics serves those of controller-runtime's registry.
	Metrics prometheus.Registerer
	// Now is the clock; nil means that of the machine.
	Now func() time.Time
	// Client, unless it is nil, wraps each of the two clients.
	Client func(client.Client) client.Client
}

// App is an instance of BTP Manager.
type App struct {
	manager manager.Manager
	metrics *metric.Metrics
}

// Check validates the configuration with the files of the operand's chart. It needs no cluster.
func Check(cfg Config, chart fs.FS) error {
	_, _, err := load(cfg, chart)
	return err
}

// load validates the configuration, and returns the operand's chart with the kinds of its objects.
func load(cfg Config, files fs.FS) (*render.Chart, []kind, error) {
	if err := cfg.Settings.Validate(); err != nil {
		return nil, nil, fmt.Errorf("settings: %w", err)
	}
	chart, err := render.Load(files)
	if err != nil {
		return nil, nil, fmt.Errorf("the operand's chart: %w", err)
	}
	made, err := kinds(chart, cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("the operand's chart with the image %q: %w", cfg.Image, err)
	}
	return chart, made, nil
}

// New creates a BTP Manager. It reads the required data from the API server, and changes nothing there.
func New(cfg Config, deps Deps) (*App, error) {
	operandChart, made, err := load(cfg, deps.Chart)
	if err != nil {
		return nil, err
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	metrics, err := metric.New(metric.Config{Version: cfg.Version, ChartVersion: operandChart.Version()}, deps.Metrics)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("make the scheme: %w", err)
		}
	}
	mgr, err := newManager(cfg, deps, scheme, made)
	if err != nil {
		return nil, err
	}
	uncached, err := newClient(deps, scheme, mgr.GetRESTMapper(), requestTimeout)
	if err != nil {
		return nil, err
	}
	// The deletion of service instances and bindings has its own timeout, which is a setting.
	deleting, err := newClient(deps, scheme, mgr.GetRESTMapper(), 0)
	if err != nil {
		return nil, err
	}
	a := &App{manager: mgr, metrics: metrics}
	recorder := mgr.GetEventRecorder(name)
	settings := controller.NewSettings(cfg.Settings, uncached, recorder, metrics)
	found := func(s config.Config) *services.Services {
		return services.New(services.Config{RequestTimeout: s.DeleteRequestTimeout}, services.Deps{Client: deleting, REST: deps.REST})
	}
	reconciler := controller.New(controller.Deps{
		Client: uncached, Chart: operandChart, Settings: settings, Recorder: recorder, Metrics: metrics, Image: cfg.Image, Now: deps.Now,
		Objects:  operand.New(operand.Config{Namespace: cfg.Settings.ChartNamespace}, operand.Deps{Client: uncached}),
		Services: func(s config.Config) controller.Services { return found(s) },
		Certificates: func(s config.Config) controller.Certificates {
			return certs.New(certs.Config{
				Namespace: s.ChartNamespace, Service: webhookService, CALifetime: s.CaCertificateExpiration,
				ServingLifetime: s.WebhookCertificateExpiration, RenewBefore: s.ExpirationBoundary,
				Labels: map[string]string{render.ManagedByLabel: render.ManagedBy, render.ModuleLabel: render.Module},
			}, certs.Deps{Client: uncached, Now: deps.Now})
		},
	})
	if err := a.watch(reconciler, settings, found(cfg.Settings), made, cfg.Settings, deps.REST); err != nil {
		return nil, err
	}
	return a, nil
}

func newManager(cfg Config, deps Deps, scheme *runtime.Scheme, made []kind) (manager.Manager, error) {
	wait := stopTimeout
	mgr, err := manager.New(deps.REST, manager.Options{
		Scheme:                        scheme,
		Logger:                        deps.Log,
		Cache:                         cache.Options{ByObject: ours(made, cfg.Settings.ChartNamespace)},
		Metrics:                       server.Options{BindAddress: cfg.Settings.MetricsBindAddress},
		HealthProbeBindAddress:        cfg.Settings.HealthProbeBindAddress,
		LeaderElection:                cfg.Settings.LeaderElect,
		LeaderElectionID:              lease,
		LeaderElectionNamespace:       cfg.Settings.ChartNamespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 duration(cfg.LeaseDuration),
		RenewDeadline:                 duration(cfg.RenewDeadline),
		RetryPeriod:                   duration(cfg.RetryPeriod),
		GracefulShutdownTimeout:       &wait,
	})
	if err != nil {
		return nil, fmt.Errorf("make the manager: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, fmt.Errorf("add the liveness probe: %w", err)
	}
	if err := mgr.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return nil, fmt.Errorf("add the readiness probe: %w", err)
	}
	return mgr, nil
}

// newClient creates a client without a cache.
func newClient(deps Deps, scheme *runtime.Scheme, mapper meta.RESTMapper, timeout time.Duration) (client.Client, error) {
	to := rest.CopyConfig(deps.REST)
	to.Timeout = timeout
	c, err := client.New(to, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("make the client: %w", err)
	}
	if deps.Client != nil {
		return deps.Client(c), nil
	}
	return c, nil
}

// webhookService is the Service of the operand's webhooks (docs/contracts/btp-manager.md#operand).
const webhookService = "sap-btp-operator-webhook-service"

// Run reconciles until ctx ends. With leader election it first waits for the lease, and it returns an error when it loses the lease.
func (a *App) Run(ctx context.Context) error {
	if err := a.manager.Start(ctx); err != nil {
		return fmt.Errorf("run the manager: %w", err)
	}
	return nil
}

func duration(d time.Duration) *time.Duration {
	if d == 0 {
		return nil
	}
	return &d
}
