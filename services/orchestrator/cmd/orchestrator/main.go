// Command orchestrator runs the orchestrator as a process of its own. It is configured by environment variables.
// The argument migrate brings the database up to date and ends.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/stagemem"
	"github.com/kyma-project/keb/libs/tlsfiles"
	"github.com/kyma-project/keb/libs/tracing"
	"github.com/kyma-project/keb/services/orchestrator"
)

// startTimeout is how long the database and the bus may take to answer at first.
const startTimeout = time.Minute

type config struct {
	orchestrator.Config
	// NATSURL is the address of NATS, NATSUser and NATSPassword are the credentials there.
	NATSURL      string `env:"KEB_NATS_URL" envDefault:"nats://127.0.0.1:4222"`
	NATSUser     string `env:"KEB_NATS_USER"`
	NATSPassword string `env:"KEB_NATS_PASSWORD"`
	// NATSTLS are the files for TLS to NATS.
	NATSTLS tlsfiles.Client `envPrefix:"KEB_NATS_"`
	// NATSTLSFirst begins with TLS, for a server that expects it (handshake_first).
	NATSTLSFirst bool `env:"KEB_NATS_TLS_FIRST"`
	// Addr serves the operator API and the console.
	Addr string `env:"KEB_OPERATOR_ADDR" envDefault:"127.0.0.1:8081"`
	// HTTP bounds what clients may take of Addr.
	HTTP service.HTTP
	// MetricsAddr serves /metrics, /healthz and /readyz, as Addr does; off if empty.
	MetricsAddr string `env:"KEB_METRICS_ADDR"`
	// TLS is that of Addr, MetricsTLS that of MetricsAddr.
	TLS        tlsfiles.Server `envPrefix:"KEB_TLS_"`
	MetricsTLS tlsfiles.Server `envPrefix:"KEB_METRICS_TLS_"`
}

// Validate names every setting that cannot be.
func (c config) Validate() error {
	return errors.Join(c.Config.Validate(), c.HTTP.Validate(), c.Access.CheckAddress("KEB_OPERATOR_ADDR", c.Addr),
		c.TLS.Validate("KEB_TLS_"), c.MetricsTLS.Validate("KEB_METRICS_TLS_"), c.NATSTLS.Validate("KEB_NATS_"))
}

func main() {
	check := flag.Bool("check-config", false, "check the configuration and the process files, and end")
	flag.Parse()
	service.Main("orchestrator", func(ctx context.Context, log *slog.Logger) error {
		name, err := service.Command(flag.Args(), *check)
		if err != nil {
			return err
		}
		if name != "" {
			return command(ctx, name, log)
		}
		return run(ctx, log, *check)
	})
}

func run(ctx context.Context, log *slog.Logger, check bool) (err error) {
	var cfg config
	if err := service.LoadEnv(&cfg); err != nil {
		return err
	}
	if err := errors.Join(cfg.Validate(), tracing.Check()); err != nil {
		return err
	}
	if check {
		return nil
	}
	traces, err := tracing.New(ctx, tracing.Config{Log: log})
	if err != nil {
		return err
	}
	defer traces.Close()
	cfg.Encrypted = cfg.TLS.Enabled()
	ln, err := service.ListenTLS("KEB_OPERATOR_ADDR", cfg.Addr, cfg.TLS, log)
	if err != nil {
		return err
	}
	registry := service.Registry()
	if err := registry.Register(tlsfiles.NewCollector(
		map[string]tlsfiles.Server{"KEB_TLS_": cfg.TLS, "KEB_METRICS_TLS_": cfg.MetricsTLS},
		map[string]tlsfiles.Client{"KEB_DATABASE_": cfg.DatabaseTLS, "KEB_NATS_": cfg.NATSTLS},
	)); err != nil {
		return errors.Join(err, ln.Close())
	}
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	b, err := bus.Connect(starting, bus.Config{
		URL: cfg.NATSURL, Name: "orchestrator", User: cfg.NATSUser, Password: cfg.NATSPassword, TLS: cfg.NATSTLS, TLSFirst: cfg.NATSTLSFirst,
	}, bus.Deps{Log: log, Registerer: registry})
	if err != nil {
		return err
	}
	defer b.Close()
	if err := b.EnsureStreams(starting); err != nil {
		return fmt.Errorf("prepare the bus: %w", err)
	}
	// The orchestrator only empties the stage memory; it needs no key for that.
	o, err := orchestrator.New(starting, cfg.Config, orchestrator.Deps{
		Bus: b, Memory: stagemem.New(b.JetStream(), &seal.Keyring{}), Log: log, Registerer: registry, Gatherer: registry,
		TracerProvider: traces.Provider("keb-orchestrator", service.Version()),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	group := service.NewGroup(log)
	group.Add("orchestrator", o.Run)
	group.Add("operator api", func(ctx context.Context) error { return cfg.HTTP.Serve(ctx, ln, o.Handler()) })
	if cfg.MetricsAddr != "" {
		serve, err := service.ServeMonitoring("KEB_METRICS_ADDR", cfg.MetricsAddr, cfg.MetricsTLS, o.Monitoring(), log)
		if err != nil {
			return errors.Join(err, ln.Close())
		}
		group.Add("monitoring", serve)
	}
	return group.Run(ctx)
}
