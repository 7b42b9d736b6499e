package up

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/kyma-project/keb/landscape"
	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/stagemem"
	"github.com/kyma-project/keb/libs/tracing"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/broker"
	"github.com/kyma-project/keb/services/orchestrator"
	stepworkers "github.com/kyma-project/keb/services/step-workers"
)

// brokerConnections is the size of the broker's pool; the orchestrator has its own.
const brokerConnections = 16

// compose makes the services and puts them into the group. They share nothing but the bus, as separate processes would:
// each has its own connection to it.
func (s *system) compose(ctx context.Context) error {
	landscapeURL := "http://" + s.landscape.Addr().String()
	if err := s.addLandscape(landscapeURL); err != nil {
		return err
	}
	shared, err := s.connect(ctx, "keb-up")
	if err != nil {
		return err
	}
	// Streams may be gone, for example because somebody has deleted the folder of the bus; what was in them is sent again.
	if err := shared.EnsureStreams(ctx); err != nil {
		return err
	}
	if err := s.addOrchestrator(ctx); err != nil {
		return err
	}
	if err := s.addBroker(ctx); err != nil {
		return err
	}
	if err := s.addWorkers(ctx, landscapeURL); err != nil {
		return err
	}
	if err := s.addJobs(landscapeURL); err != nil {
		return err
	}
	if s.cfg.Demo {
		d := &demo{
			osbURL: "http://" + s.osb.Addr().String(), operatorURL: "http://" + s.operator.Addr().String(),
			user: s.cfg.User, password: s.cfg.Password, program: s.cfg.Program, out: s.out,
			guarded: s.cfg.AccessTokensFile != "", token: s.cfg.Token,
		}
		s.group.Add("demo", d.run)
	}
	return nil
}

func (s *system) connect(ctx context.Context, name string) (*bus.Bus, error) {
	b, err := bus.Connect(ctx, bus.Config{URL: s.nats.ClientURL(), Name: name},
		bus.Deps{Log: s.log.With("component", name), Registerer: s.registry, InProcess: s.nats})
	if err != nil {
		return nil, err
	}
	s.later(func() error { b.Close(); return nil })
	return b, nil
}

func (s *system) serve(name string, ln net.Listener, h http.Handler) {
	s.group.Add(name, func(ctx context.Context) error { return service.ServeHTTP(ctx, ln, h) })
}

func (s *system) addLandscape(url string) error {
	cfg := landscape.Config{
		DataDir: filepath.Join(s.cfg.DataDir, "landscape"), ExternalURL: url,
		ClusterTime: clusterTime, ReconcileTime: reconcileTime, Bindings: s.cfg.Bindings,
	}
	if s.cfg.Fast {
		cfg.ClusterTime, cfg.ReconcileTime, cfg.CleanTime = 0, 0, time.Second
	}
	l, err := landscape.New(cfg, landscape.Deps{Log: s.log.With("component", "landscape")})
	if err != nil {
		return err
	}
	s.later(l.Close)
	s.group.Add("landscape", l.Run)
	s.serve("landscape http", s.landscape, tracing.Handler(s.traces.Provider("keb-landscape", service.Version()), l.Handler()))
	return nil
}

func (s *system) addOrchestrator(ctx context.Context) error {
	b, err := s.connect(ctx, "keb-orchestrator")
	if err != nil {
		return err
	}
	// The orchestrator opens its own pools and migrates its own schema.
	o, err := orchestrator.New(ctx, orchestrator.Config{
		DatabaseURL: s.databaseURL, Overlays: s.cfg.Overlays, MaintenancePolicy: s.cfg.MaintenancePolicy,
		Admission: s.cfg.Admission,
		Access:    s.cfg.access(), PublicURL: "http://" + s.operator.Addr().String(),
	}, orchestrator.Deps{
		Bus: b, Memory: stagemem.New(b.JetStream(), s.keyring), Log: s.log.With("component", "orchestrator"),
		Registerer: s.registry, Gatherer: s.registry, TracerProvider: s.traces.Provider("keb-orchestrator", service.Version()),
	})
	if err != nil {
		return err
	}
	s.later(o.Close)
	s.group.Add("orchestrator", o.Run)
	s.serve("operator API", s.operator, o.Handler())
	return nil
}

func (s *system) addBroker(ctx context.Context) error {
	db, err := postgres.Open(ctx, postgres.Config{
		URL: s.databaseURL, MaxOpen: brokerConnections, ApplicationName: "keb-broker", StatementTimeout: 10 * time.Second,
	})
	if err != nil {
		return err
	}
	s.later(func() error { return postgres.Close(db) })
	if err := broker.Migrate(ctx, db); err != nil {
		return fmt.Errorf("migrate the broker's schema: %w", err)
	}
	b, err := s.connect(ctx, "keb-broker")
	if err != nil {
		return err
	}
	// Not from the environment, which the command line has read already: its flags decide.
	cfg := broker.Defaults()
	cfg.User, cfg.Password, cfg.SealKeys = s.cfg.User, s.cfg.Password, s.keys
	// A runtime takes seconds here, so platforms may ask more often than the default of the service says.
	cfg.RetryAfter = time.Second
	cfg.PublicURL, cfg.Access = "http://"+s.osb.Addr().String(), s.cfg.access()
	srv, err := broker.New(ctx, cfg, broker.Deps{
		DB: db, Bus: b, Log: s.log.With("component", "broker"), Registerer: s.registry,
		TracerProvider: s.traces.Provider("keb-broker", service.Version()),
	})
	if err != nil {
		return err
	}
	s.group.Add("broker", srv.Run)
	s.serve("OSB API", s.osb, srv.Handler())
	return nil
}

func (s *system) addWorkers(ctx context.Context, landscapeURL string) error {
	b, err := s.connect(ctx, "keb-workers")
	if err != nil {
		return err
	}
	// All workers share one connection, as the replicas of one big worker would: none of them owns a database or a port.
	memory := stagemem.New(b.JetStream(), s.keyring)
	services, err := stepworkers.All(landscapeURL, stepworkers.Options{Fast: s.cfg.Fast, Registerer: s.registry})
	if err != nil {
		return err
	}
	for _, sv := range services {
		w, err := worker.New(worker.Config{Name: sv.Name, Version: "1.0.0", Questions: sv.Questions}, worker.Deps{
			Bus: b, StageMemory: memory, Log: s.log.With("component", "worker-"+sv.Name), Registerer: s.registry,
			TracerProvider: s.traces.Provider(worker.ServicePrefix+sv.Name, service.Version()),
		}, sv.Steps...)
		if err != nil {
			return err
		}
		s.group.Add("worker "+sv.Name, w.Run)
	}
	return nil
}
