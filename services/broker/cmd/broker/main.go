// Command broker runs the broker: it serves the Open Service Broker API on one address, and health and metrics on another.
// It reads its configuration from the environment; -check-config only validates it.
// The command migrate updates the database schema; catalog prints the plans of a broker.
package main

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/tlsfiles"
	"github.com/kyma-project/keb/libs/tracing/otlp"
	"github.com/kyma-project/keb/services/broker"
)

// name is that of the service to the bus and in traces.
const name = "keb-broker"

// config is the broker and the process around it.
type config struct {
	Broker broker.Config
	NATS   bus.Config
	// Addr serves the OSB API.
	Addr    string `env:"KEB_OSB_ADDR" envDefault:"127.0.0.1:8080"`
	API     service.API
	Metrics service.Metrics
}

// Validate reports every invalid setting.
func (c config) Validate() error {
	return errors.Join(c.Broker.Validate(), c.NATS.Validate(), c.API.Validate(), c.Metrics.Validate())
}

func main() {
	service.Program[config]{
		Name: "broker",
		Commands: map[string]func(context.Context, *slog.Logger) error{
			"migrate": migrate,
			"catalog": func(ctx context.Context, _ *slog.Logger) error { return catalog(ctx, os.Stdout) },
		},
		Traces: otlp.New,
		Start:  start,
	}.Main()
}

func start(ctx context.Context, cfg *config, p *service.Process) error {
	if err := p.Certificates(
		map[string]tlsfiles.Server{service.TLSPrefix: cfg.API.TLS, service.MetricsTLSPrefix: cfg.Metrics.TLS},
		map[string]tlsfiles.Client{"KEB_DATABASE_": cfg.Broker.Database.TLS, "KEB_NATS_": cfg.NATS.TLS},
	); err != nil {
		return err
	}
	ln, err := p.Listen("KEB_OSB_ADDR", cfg.Addr, cfg.API.TLS)
	if err != nil {
		return err
	}
	cfg.NATS.Name, cfg.NATS.Guest = name, true
	b, err := bus.Connect(ctx, cfg.NATS, bus.Deps{Log: p.Log, Registerer: p.Registry})
	if err != nil {
		return err
	}
	p.Defer(func() error { b.Close(); return nil })
	srv, err := broker.New(ctx, cfg.Broker, broker.Deps{
		Bus: b, Log: p.Log, Registerer: p.Registry, Health: p.Health, TracerProvider: p.TracerProvider(name, service.Version()),
	})
	if err != nil {
		return err
	}
	p.Defer(srv.Close)
	p.Log.Info("broker starts", "addr", ln.Addr().String(), "config", cfg.Broker)
	p.Add("broker", srv.Run)
	p.Add("osb", func(ctx context.Context) error { return cfg.API.HTTP.Serve(ctx, ln, srv.Handler()) })
	return p.ServeMetrics(cfg.Metrics, service.Monitoring(p.Registry, p.Health))
}
