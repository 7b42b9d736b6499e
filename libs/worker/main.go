package worker

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/stagemem"
	"github.com/kyma-project/keb/libs/tlsfiles"
	"github.com/kyma-project/keb/libs/tracing"
)

// environment is what Main reads. KEB_LOG_FORMAT and KEB_LOG_LEVEL are read by service.Main.
type environment struct {
	// NATSURL is the address of NATS, NATSUser and NATSPassword are the credentials there.
	NATSURL      string `env:"KEB_NATS_URL" envDefault:"nats://127.0.0.1:4222"`
	NATSUser     string `env:"KEB_NATS_USER"`
	NATSPassword string `env:"KEB_NATS_PASSWORD"`
	// NATSTLS are the files for TLS to NATS.
	NATSTLS tlsfiles.Client `envPrefix:"KEB_NATS_"`
	// NATSTLSFirst begins with TLS, for a server that expects it (handshake_first).
	NATSTLSFirst bool `env:"KEB_NATS_TLS_FIRST"`
	// StageKeys are the keyring of the stage memory, "id1:base64key,id2:base64key", the same for all workers.
	StageKeys string `env:"KEB_STAGE_KEYS"`
	// MetricsAddr serves /metrics, /healthz and /readyz; off if empty.
	MetricsAddr string          `env:"KEB_METRICS_ADDR"`
	MetricsTLS  tlsfiles.Server `envPrefix:"KEB_METRICS_TLS_"`

	Limits

	keys *seal.Keyring
}

// Limits are the bounds of a worker's process, as they are read from the environment.
type Limits struct {
	// Concurrency is how many steps run at once in this process; 0 means 32.
	Concurrency int `env:"KEB_WORKER_CONCURRENCY"`
	// RateLimit is how many steps are started per second in this process; 0 means no limit.
	RateLimit float64 `env:"KEB_WORKER_RATE_LIMIT"`
	// DrainTimeout is how long running steps may go on after the worker was told to stop; 0 means 20 s.
	DrainTimeout time.Duration `env:"KEB_WORKER_DRAIN_TIMEOUT"`
}

// Config is the configuration of a worker within the limits.
func (l Limits) Config(name, version string) Config {
	return Config{
		Name: name, Version: version,
		Concurrency: l.Concurrency, RateLimit: l.RateLimit, DrainTimeout: l.DrainTimeout,
	}
}

// Validate reads the keys, too.
func (e *environment) Validate() error {
	problems := []error{e.NATSTLS.Validate("KEB_NATS_"), e.MetricsTLS.Validate("KEB_METRICS_TLS_")}
	if e.StageKeys != "" {
		keys, err := seal.ParseKeyring(strings.TrimSpace(e.StageKeys))
		if err != nil {
			problems = append(problems, fmt.Errorf("KEB_STAGE_KEYS: %w", err))
		}
		e.keys = keys
	}
	return errors.Join(problems...)
}

// Env is what Main lends to the function that makes a worker's steps, besides the environment of the process.
type Env struct {
	// Log is the worker's log.
	Log *slog.Logger
	// Registerer takes metrics that are to be served beside those of the SDK, at KEB_METRICS_ADDR.
	Registerer prometheus.Registerer
	// TracerProvider makes the worker's own spans. It is never nil for a worker that Main runs, also when tracing is off.
	TracerProvider trace.TracerProvider

	questions *[]Question
}

// Answer makes the worker answer questions besides executing its steps.
func (e Env) Answer(questions ...Question) {
	if e.questions != nil { // an Env made by a test answers nobody
		*e.questions = append(*e.questions, questions...)
	}
}

// Main is the whole main function of a worker: it reads the environment, makes the steps, and executes them until the
// process gets SIGINT or SIGTERM. It does not return. steps is called once; its error ends the process.
//
// The environment:
//
//	KEB_NATS_URL              nats://127.0.0.1:4222 by default
//	KEB_NATS_USER, KEB_NATS_PASSWORD or KEB_NATS_PASSWORD_FILE
//	KEB_NATS_CA_FILE, KEB_NATS_CERT_FILE, KEB_NATS_KEY_FILE
//	                          the authority of the server, and the certificate to show it (TLS, mutual TLS)
//	KEB_STAGE_KEYS or KEB_STAGE_KEYS_FILE
//	                          the keys of the stage memory, the same for all workers; only needed for steps that use it
//	KEB_METRICS_ADDR          where to serve /metrics, /healthz and /readyz, for example ":9090"; off if empty
//	KEB_METRICS_TLS_CERT_FILE, KEB_METRICS_TLS_KEY_FILE
//	                          TLS there
//	KEB_WORKER_CONCURRENCY    how many steps run at once, 32 by default
//	KEB_WORKER_RATE_LIMIT     how many steps are started per second; no limit by default
//	KEB_WORKER_DRAIN_TIMEOUT  how long running steps may go on after the signal, 20s by default
//	KEB_LOG_FORMAT            json or text
//	KEB_LOG_LEVEL             debug, info, warn or error
//	OTEL_*                    where traces go, see package tracing; off by default
//
// With the flag -check-config it checks all that, prints it without secrets, and ends.
func Main(name, version string, steps func(ctx context.Context, env Env) ([]Step, error)) {
	service.Main(ServicePrefix+name, func(ctx context.Context, log *slog.Logger) error {
		return runMain(ctx, log, os.Args[1:], os.Stdout, name, version, steps)
	})
}

func runMain(
	ctx context.Context, log *slog.Logger, args []string, stdout io.Writer, name, version string,
	makeSteps func(ctx context.Context, env Env) ([]Step, error),
) error {
	flags := flag.NewFlagSet(ServicePrefix+name, flag.ContinueOnError)
	flags.SetOutput(stdout)
	checkOnly := flags.Bool("check-config", false, "check the configuration, print it without secrets, and end")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("argument %q: there are only flags, see -help", flags.Arg(0))
	}
	var env environment
	if err := service.LoadEnv(&env); err != nil {
		return err
	}
	cfg := env.Config(name, version)
	registry := service.Registry()
	if err := registry.Register(tlsfiles.NewCollector(
		map[string]tlsfiles.Server{"KEB_METRICS_TLS_": env.MetricsTLS}, map[string]tlsfiles.Client{"KEB_NATS_": env.NATSTLS},
	)); err != nil {
		return err
	}
	traces, err := tracing.New(ctx, tracing.Config{Log: log})
	if err != nil {
		return err
	}
	defer traces.Close()
	deps := Deps{Log: log, Registerer: registry, TracerProvider: traces.Provider(ServicePrefix+name, version)}
	lent := Env{Log: log, Registerer: registry, TracerProvider: deps.TracerProvider, questions: &cfg.Questions}
	if lent.TracerProvider == nil {
		lent.TracerProvider = noop.NewTracerProvider()
	}
	steps, err := makeSteps(ctx, lent)
	if err != nil {
		return fmt.Errorf("make steps: %w", err)
	}
	if err := check(cfg, steps); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	if *checkOnly {
		return printConfig(stdout, &env, cfg.withDefaults(), steps)
	}
	return serve(ctx, deps, registry, &env, cfg, steps)
}

func serve(ctx context.Context, deps Deps, metrics prometheus.Gatherer, env *environment, cfg Config, steps []Step) error {
	log := deps.Log
	b, err := bus.Connect(ctx, bus.Config{
		URL: env.NATSURL, Name: ServicePrefix + cfg.Name, User: env.NATSUser, Password: env.NATSPassword,
		TLS: env.NATSTLS, TLSFirst: env.NATSTLSFirst, Guest: true,
	}, bus.Deps{Log: log, Registerer: deps.Registerer})
	if err != nil {
		return err
	}
	defer b.Close()
	deps.Bus = b
	if env.keys != nil {
		deps.StageMemory = stagemem.NewGuest(b.JetStream(), env.keys)
	}
	w, err := New(cfg, deps, steps...)
	if err != nil {
		return err
	}
	group := service.NewGroup(log)
	group.Add("worker", w.Run)
	if env.MetricsAddr != "" {
		serve, err := service.ServeMonitoring("KEB_METRICS_ADDR", env.MetricsAddr, env.MetricsTLS, monitoring(metrics, b), log)
		if err != nil {
			return err
		}
		group.Add("http", serve)
	}
	return group.Run(ctx)
}

func monitoring(metrics prometheus.Gatherer, b *bus.Bus) http.Handler {
	health := service.NewHealth()
	health.Add("nats", b.Ready)
	return service.Monitoring(metrics, health)
}

// printConfig shows what the worker would run with. Of secrets it says only whether they are set.
func printConfig(out io.Writer, env *environment, cfg Config, steps []Step) error {
	names := make([]string, len(steps))
	for i, s := range steps {
		names[i] = s.Name()
	}
	secret := func(value string) string {
		if value == "" {
			return ""
		}
		return "(set)"
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(struct {
		Worker       string   `json:"worker"`
		Version      string   `json:"version,omitempty"`
		Steps        []string `json:"steps"`
		NATSURL      string   `json:"natsUrl"`
		NATSUser     string   `json:"natsUser,omitempty"`
		NATSPassword string   `json:"natsPassword,omitempty"`
		StageKeys    string   `json:"stageKeys,omitempty"`
		MetricsAddr  string   `json:"metricsAddr,omitempty"`
		Concurrency  int      `json:"concurrency"`
		RateLimit    float64  `json:"rateLimit,omitempty"`
		DrainTimeout string   `json:"drainTimeout"`
	}{
		Worker: cfg.Name, Version: cfg.Version, Steps: names,
		NATSURL: redactURLs(env.NATSURL), NATSUser: env.NATSUser, NATSPassword: secret(env.NATSPassword),
		StageKeys: secret(env.StageKeys), MetricsAddr: env.MetricsAddr,
		Concurrency: cfg.Concurrency, RateLimit: cfg.RateLimit, DrainTimeout: cfg.DrainTimeout.String(),
	})
}

// redactURLs takes the credentials out of a list of addresses.
func redactURLs(urls string) string {
	parts := strings.Split(urls, ",")
	for i, part := range parts {
		if at := strings.LastIndex(part, "@"); at >= 0 {
			scheme, _, _ := strings.Cut(part, "//")
			parts[i] = scheme + "//***@" + part[at+1:]
		}
	}
	return strings.Join(parts, ",")
}
