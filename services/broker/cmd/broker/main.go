// Command broker runs the broker: it serves the Open Service Broker API on one address, and health and metrics on another.
// It reads its configuration from the environment; -check-config only validates it.
// The command migrate updates the database schema; catalog prints the plans of a broker.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/tlsfiles"
	"github.com/kyma-project/keb/libs/tracing"
	"github.com/kyma-project/keb/services/broker"
)

// config is the configuration of the process.
type config struct {
	Broker broker.Config

	// Addr is the address of the OSB API.
	Addr string `env:"KEB_OSB_ADDR" envDefault:"127.0.0.1:8080"`
	// HTTP holds the limits for clients of Addr.
	HTTP service.HTTP
	// TLS applies to Addr, MetricsTLS to StatusAddr and MetricsAddr.
	TLS        tlsfiles.Server `envPrefix:"KEB_TLS_"`
	MetricsTLS tlsfiles.Server `envPrefix:"KEB_METRICS_TLS_"`
	// StatusAddr is the address of /healthz, /readyz and /metrics.
	StatusAddr string `env:"KEB_BROKER_STATUS_ADDR" envDefault:"127.0.0.1:8071"`
	// MetricsAddr also serves /metrics, /healthz and /readyz, as in every other service. Empty disables it.
	MetricsAddr string `env:"KEB_METRICS_ADDR"`

	// DatabaseURL is the address of Postgres, StatementTimeout the deadline of a statement, and MaxConnections the size of the pool.
	DatabaseURL      string        `env:"KEB_DATABASE_URL,required,notEmpty"`
	StatementTimeout time.Duration `env:"KEB_DATABASE_STATEMENT_TIMEOUT" envDefault:"10s"`
	MaxConnections   int           `env:"KEB_DATABASE_MAX_CONNECTIONS" envDefault:"16"`
	// DatabaseTLS holds files that replace sslrootcert, sslcert and sslkey in the address.
	DatabaseTLS tlsfiles.Client `envPrefix:"KEB_DATABASE_"`

	// NATSURL is the address of NATS; NATSUser and NATSPassword are its credentials.
	NATSURL      string `env:"KEB_NATS_URL" envDefault:"nats://127.0.0.1:4222"`
	NATSUser     string `env:"KEB_NATS_USER"`
	NATSPassword string `env:"KEB_NATS_PASSWORD"`
	// NATSTLS holds the files for TLS to NATS.
	NATSTLS tlsfiles.Client `envPrefix:"KEB_NATS_"`
	// NATSTLSFirst starts the connection with TLS, for a server with handshake_first.
	NATSTLSFirst bool `env:"KEB_NATS_TLS_FIRST"`
}

// Validate reports every invalid setting.
func (c config) Validate() error {
	return errors.Join(c.Broker.Validate(), c.HTTP.Validate(), tracing.Check(), c.TLS.Validate("KEB_TLS_"), c.MetricsTLS.Validate("KEB_METRICS_TLS_"),
		c.DatabaseTLS.Validate("KEB_DATABASE_"), c.NATSTLS.Validate("KEB_NATS_"))
}

func main() {
	check := flag.Bool("check-config", false, "check the configuration and end")
	flag.Parse()
	service.Main("broker", func(ctx context.Context, log *slog.Logger) error {
		name, err := service.Command(flag.Args(), *check)
		if err != nil {
			return err
		}
		if name != "" {
			return command(ctx, name, log, os.Stdout)
		}
		var cfg config
		if err := service.LoadEnv(&cfg); err != nil {
			return err
		}
		if *check {
			_, err := fmt.Fprintln(os.Stdout, "the configuration is fine")
			return err
		}
		return run(ctx, cfg, log)
	})
}

func run(ctx context.Context, cfg config, log *slog.Logger) (err error) {
	traces, err := tracing.New(ctx, tracing.Config{Log: log})
	if err != nil {
		return err
	}
	defer traces.Close()
	registry := service.Registry()
	if err := registry.Register(tlsfiles.NewCollector(
		map[string]tlsfiles.Server{"KEB_TLS_": cfg.TLS, "KEB_METRICS_TLS_": cfg.MetricsTLS},
		map[string]tlsfiles.Client{"KEB_DATABASE_": cfg.DatabaseTLS, "KEB_NATS_": cfg.NATSTLS},
	)); err != nil {
		return err
	}
	db, err := postgres.Open(ctx, postgres.Config{
		URL: cfg.DatabaseURL, TLS: cfg.DatabaseTLS, ApplicationName: "keb-broker", StatementTimeout: cfg.StatementTimeout, MaxOpen: cfg.MaxConnections,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, postgres.Close(db)) }()
	if err := broker.Migrate(ctx, db); err != nil {
		return err
	}
	b, err := bus.Connect(ctx, bus.Config{
		URL: cfg.NATSURL, Name: "keb-broker", User: cfg.NATSUser, Password: cfg.NATSPassword, TLS: cfg.NATSTLS, TLSFirst: cfg.NATSTLSFirst, Guest: true,
	}, bus.Deps{Log: log, Registerer: registry})
	if err != nil {
		return err
	}
	defer b.Close()
	srv, err := broker.New(ctx, cfg.Broker, broker.Deps{
		DB: db, Bus: b, Log: log, Registerer: registry, TracerProvider: traces.Provider("keb-broker", service.Version()),
	})
	if err != nil {
		return err
	}
	public, err := service.ListenTLS("KEB_OSB_ADDR", cfg.Addr, cfg.TLS, log)
	if err != nil {
		return err
	}
	health := service.NewHealth()
	health.Add("database", srv.Ready)
	status := service.Monitoring(registry, health)

	log.Info("broker starts", "addr", public.Addr().String(), "status_addr", cfg.StatusAddr, "config", cfg.Broker)
	g := service.NewGroup(log)
	g.Add("broker", srv.Run)
	g.Add("osb", func(ctx context.Context) error { return cfg.HTTP.Serve(ctx, public, srv.Handler()) })
	for variable, addr := range map[string]string{"KEB_BROKER_STATUS_ADDR": cfg.StatusAddr, "KEB_METRICS_ADDR": cfg.MetricsAddr} {
		if addr == "" || variable == "KEB_METRICS_ADDR" && addr == cfg.StatusAddr {
			continue
		}
		serve, err := service.ServeMonitoring(variable, addr, cfg.MetricsTLS, status, log)
		if err != nil {
			return errors.Join(err, public.Close())
		}
		g.Add(variable, serve)
	}
	return g.Run(ctx)
}
