package up

import (
	"context"
	"errors"
	"net"
	"net/http"

	"github.com/kyma-project/keb/landscape"
	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/stagemem"
	"github.com/kyma-project/keb/libs/tlsfiles"
	"github.com/kyma-project/keb/libs/tracing"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/broker"
	"github.com/kyma-project/keb/services/orchestrator"
)

// compose creates the services and adds them to the group. Like separate processes, they share nothing but the bus:
// each has its own connection to it.
func (s *system) compose(ctx context.Context) error {
	if err := s.Certificates(
		map[string]tlsfiles.Server{service.TLSPrefix: s.API.TLS, service.MetricsTLSPrefix: s.Metrics.TLS},
		map[string]tlsfiles.Client{"KEB_DATABASE_": s.Orchestrator.Database.TLS, "KEB_BROKER_": s.Jobs.BrokerTLS},
	); err != nil {
		return err
	}
	if err := s.addLandscape(); err != nil {
		return err
	}
	shared, err := s.connect(ctx, "keb-up")
	if err != nil {
		return err
	}
	// Streams may be lost, for example because the folder of the bus was deleted; their messages are published again.
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
		s.Add("demo", d.run)
	}
	return nil
}

func (s *system) connect(ctx context.Context, name string) (*bus.Bus, error) {
	b, err := bus.Connect(ctx, bus.Config{URL: s.nats.ClientURL(), Name: name},
		bus.Deps{Log: s.Log.With("component", name), Registerer: s.Registry, InProcess: s.nats})
	if err != nil {
		return nil, err
	}
	s.Defer(func() error { b.Close(); return nil })
	return b, nil
}

// serve serves an API as the services do: with client limits, and with TLS if files are configured.
func (s *system) serve(name string, ln net.Listener, h http.Handler) error {
	ln, err := s.API.TLS.Listen(ln, service.TLSPrefix, tlsfiles.Always, s.Log)
	if err != nil {
		return err
	}
	s.Add(name, func(ctx context.Context) error { return s.API.HTTP.Serve(ctx, ln, h) })
	return nil
}

func (s *system) addLandscape() error {
	l, err := landscape.New(s.Landscape, landscape.Deps{Log: s.Log.With("component", "landscape")})
	if err != nil {
		return err
	}
	s.Defer(l.Close)
	s.Add("landscape", l.Run)
	h := tracing.Handler(s.TracerProvider("keb-landscape", service.Version()), l.Handler())
	s.Add("landscape http", func(ctx context.Context) error { return service.ServeHTTP(ctx, s.landscape, h) })
	return nil
}

func (s *system) addOrchestrator(ctx context.Context) error {
	b, err := s.connect(ctx, "keb-orchestrator")
	if err != nil {
		return err
	}
	cfg := s.Orchestrator
	cfg.Database.URL = s.databaseURL
	o, err := orchestrator.New(ctx, cfg, orchestrator.Deps{
		Bus: b, Memory: stagemem.New(b.JetStream(), s.keyring), Log: s.Log.With("component", "orchestrator"),
		Registerer: s.Registry, Gatherer: s.Registry, Health: s.Health, TracerProvider: s.TracerProvider("keb-orchestrator", service.Version()),
	})
	if err != nil {
		return err
	}
	s.Defer(o.Close)
	s.Add("orchestrator", o.Run)
	return errors.Join(
		s.serve("operator API", s.operator, o.Handler()),
		s.ServeMetrics(s.Metrics, service.Monitoring(s.Registry, s.Health)),
	)
}

func (s *system) addBroker(ctx context.Context) error {
	b, err := s.connect(ctx, "keb-broker")
	if err != nil {
		return err
	}
	cfg := s.Broker
	cfg.Database.URL = s.databaseURL
	srv, err := broker.New(ctx, cfg, broker.Deps{
		Bus: b, Log: s.Log.With("component", "broker"), Registerer: s.Registry,
		TracerProvider: s.TracerProvider("keb-broker", service.Version()),
	})
	if err != nil {
		return err
	}
	s.Defer(srv.Close)
	s.Add("broker", srv.Run)
	return s.serve("OSB API", s.osb, srv.Handler())
}

func (s *system) addWorkers(ctx context.Context) error {
	b, err := s.connect(ctx, "keb-workers")
	if err != nil {
		return err
	}
	// All workers share one connection, because none of them owns a database or a port.
	memory := stagemem.New(b.JetStream(), s.keyring)
	for _, sv := range s.Services {
		cfg := s.Worker.Config(sv.Name, "1.0.0")
		cfg.Questions = sv.Questions
		w, err := worker.New(cfg, worker.Deps{
			Bus: b, StageMemory: memory, Log: s.Log.With("component", "worker-"+sv.Name), Registerer: s.Registry,
			TracerProvider: s.TracerProvider(worker.ServicePrefix+sv.Name, service.Version()),
		}, sv.Steps...)
		if err != nil {
			return err
		}
		s.Add("worker "+sv.Name, w.Run)
	}
	return nil
}
