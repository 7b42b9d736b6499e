package up

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/kyma-project/keb/landscape"
	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/stagemem"
	"github.com/kyma-project/keb/libs/tlsfiles"
	"github.com/kyma-project/keb/libs/tracing"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/broker"
	"github.com/kyma-project/keb/services/orchestrator"
)

// compose makes the services and puts them into the group. They share nothing but the bus, as separate processes would:
// each has its own connection to it.
func (s *system) compose(ctx context.Context) error {
	if err := s.registry.Register(tlsfiles.NewCollector(
		map[string]tlsfiles.Server{service.TLSPrefix: s.TLS, service.MetricsTLSPrefix: s.MetricsTLS},
		map[string]tlsfiles.Client{"KEB_DATABASE_": s.Orchestrator.DatabaseTLS, "KEB_BROKER_": s.Jobs.BrokerTLS},
	)); err != nil {
		return err
	}
	if err := s.addLandscape(); err != nil {
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
	if err := s.addWorkers(ctx); err != nil {
		return err
	}
	if err := s.addJobs(); err != nil {
		return err
	}
	if s.cfg.Demo {
		d := &demo{
			osbURL: s.at.osb, operatorURL: s.at.operator, transport: s.cfg.Transport,
			user: s.Broker.User, password: s.Broker.Password, program: s.cfg.Program, out: s.out,
			guarded: s.Orchestrator.Access.Enabled(), token: s.cfg.Token,
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

// serve serves an API as the services do: with the limits of its clients, and with TLS if there are files.
func (s *system) serve(name string, ln net.Listener, h http.Handler) error {
	ln, err := s.TLS.Listen(ln, service.TLSPrefix, tlsfiles.Always, s.log)
	if err != nil {
		return err
	}
	s.group.Add(name, func(ctx context.Context) error { return s.HTTP.Serve(ctx, ln, h) })
	return nil
}

// monitor serves metrics and health at the address that a variable holds, if it holds one.
func (s *system) monitor(variable, addr string, h http.Handler) error {
	if addr == "" {
		return nil
	}
	serve, err := service.ServeMonitoring(variable, addr, s.MetricsTLS, h, s.log)
	if err != nil {
		return err
	}
	s.group.Add(variable, serve)
	return nil
}

func (s *system) addLandscape() error {
	l, err := landscape.New(s.Landscape, landscape.Deps{Log: s.log.With("component", "landscape")})
	if err != nil {
		return err
	}
	s.later(l.Close)
	s.group.Add("landscape", l.Run)
	h := tracing.Handler(s.traces.Provider("keb-landscape", service.Version()), l.Handler())
	s.group.Add("landscape http", func(ctx context.Context) error { return service.ServeHTTP(ctx, s.landscape, h) })
	return nil
}

func (s *system) addOrchestrator(ctx context.Context) error {
	b, err := s.connect(ctx, "keb-orchestrator")
	if err != nil {
		return err
	}
	// The orchestrator opens its own pools and migrates its own schema.
	cfg := s.Orchestrator
	cfg.DatabaseURL = s.databaseURL
	o, err := orchestrator.New(ctx, cfg, orchestrator.Deps{
		Bus: b, Memory: stagemem.New(b.JetStream(), s.keyring), Log: s.log.With("component", "orchestrator"),
		Registerer: s.registry, Gatherer: s.registry, TracerProvider: s.traces.Provider("keb-orchestrator", service.Version()),
	})
	if err != nil {
		return err
	}
	s.later(o.Close)
	s.group.Add("orchestrator", o.Run)
	return errors.Join(
		s.serve("operator API", s.operator, o.Handler()),
		s.monitor("KEB_METRICS_ADDR", s.MetricsAddr, o.Monitoring()),
	)
}

func (s *system) addBroker(ctx context.Context) error {
	db, err := postgres.Open(ctx, postgres.Config{
		URL: s.databaseURL, TLS: s.Orchestrator.DatabaseTLS, ApplicationName: "keb-broker",
		MaxOpen: s.MaxConnections, StatementTimeout: s.StatementTimeout,
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
	srv, err := broker.New(ctx, s.Broker, broker.Deps{
		DB: db, Bus: b, Log: s.log.With("component", "broker"), Registerer: s.registry,
		TracerProvider: s.traces.Provider("keb-broker", service.Version()),
	})
	if err != nil {
		return err
	}
	s.group.Add("broker", srv.Run)
	if err := s.serve("OSB API", s.osb, srv.Handler()); err != nil || s.StatusAddr == s.MetricsAddr {
		return err
	}
	health := service.NewHealth()
	health.Add("database", srv.Ready)
	return s.monitor("KEB_BROKER_STATUS_ADDR", s.StatusAddr, service.Monitoring(s.registry, health))
}

func (s *system) addWorkers(ctx context.Context) error {
	b, err := s.connect(ctx, "keb-workers")
	if err != nil {
		return err
	}
	// All workers share one connection, as the replicas of one big worker would: none of them owns a database or a port.
	memory := stagemem.New(b.JetStream(), s.keyring)
	for _, sv := range s.Services {
		cfg := s.Worker.Config(sv.Name, "1.0.0")
		cfg.Questions = sv.Questions
		w, err := worker.New(cfg, worker.Deps{
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
