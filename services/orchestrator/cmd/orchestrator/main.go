// Command orchestrator runs the orchestrator as a separate process. Environment variables configure it. The argument migrate migrates the
// database and exits.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/stagemem"
	"github.com/kyma-project/keb/libs/tlsfiles"
	"github.com/kyma-project/keb/libs/tracing/otlp"
	"github.com/kyma-project/keb/services/orchestrator"
)

// startTimeout limits the time until the database and the bus first answer.
const startTimeout = time.Minute

// config is the configuration of the orchestrator and its process.
type config struct {
	orchestrator.Config

	NATS bus.Config
	// Addr is the address of the operator API and the console.
	Addr    string `env:"KEB_OPERATOR_ADDR" envDefault:"127.0.0.1:8081"`
	API     service.API
	Metrics service.Metrics
}

// Validate reports every invalid setting.
func (c config) Validate() error {
	return errors.Join(c.Config.Validate(), c.Access.CheckAddress("KEB_OPERATOR_ADDR", c.Addr), c.NATS.Validate(), c.API.Validate(), c.Metrics.Validate())
}

func main() { program().Main() }

func program() service.Program[config] {
	return service.Program[config]{
		Name: "orchestrator", Commands: map[string]func(context.Context, *slog.Logger) error{"migrate": migrate}, Traces: otlp.New, Start: start,
	}
}

func start(ctx context.Context, cfg *config, p *service.Process) error {
	if err := p.Certificates(
		map[string]tlsfiles.Server{service.TLSPrefix: cfg.API.TLS, service.MetricsTLSPrefix: cfg.Metrics.TLS},
		map[string]tlsfiles.Client{"KEB_DATABASE_": cfg.Database.TLS, "KEB_NATS_": cfg.NATS.TLS},
	); err != nil {
		return err
	}
	ln, err := p.Listen("KEB_OPERATOR_ADDR", cfg.Addr, cfg.API.TLS)
	if err != nil {
		return err
	}
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	cfg.NATS.Name = "orchestrator"
	b, err := bus.Connect(starting, cfg.NATS, bus.Deps{Log: p.Log, Registerer: p.Registry})
	if err != nil {
		return err
	}
	p.Defer(func() error { b.Close(); return nil })
	if err := b.EnsureStreams(starting); err != nil {
		return fmt.Errorf("prepare the bus: %w", err)
	}
	cfg.Encrypted = cfg.API.TLS.Enabled()
	// The orchestrator only purges the stage memory, so it needs no key.
	o, err := orchestrator.New(starting, cfg.Config, orchestrator.Deps{
		Bus: b, Memory: stagemem.New(b.JetStream(), &seal.Keyring{}), Log: p.Log, Registerer: p.Registry, Gatherer: p.Registry, Health: p.Health,
		TracerProvider: p.TracerProvider("keb-orchestrator", service.Version()),
	})
	if err != nil {
		return err
	}
	p.Defer(o.Close)
	p.Add("orchestrator", o.Run)
	p.Add("operator api", func(ctx context.Context) error { return cfg.API.HTTP.Serve(ctx, ln, o.Handler()) })
	return p.ServeMetrics(cfg.Metrics, service.Monitoring(p.Registry, p.Health))
}
