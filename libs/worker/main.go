package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/stagemem"
	"github.com/kyma-project/keb/libs/tlsfiles"
	"github.com/kyma-project/keb/libs/tracing"
)

// environment is the configuration of Main. service.Main reads KEB_LOG_FORMAT and KEB_LOG_LEVEL.
type environment struct {
	// NATS configures the connection to the bus.
	NATS bus.Config
	// StageKeys are the keyring of the stage memory, "id1:base64key,id2:base64key", the same for all workers.
	StageKeys string `env:"KEB_STAGE_KEYS"`
	Metrics   service.Metrics

	Limits

	keys *seal.Keyring
}

// Limits are the limits of a worker's process, read from the environment.
type Limits struct {
	// Concurrency is how many steps each worker of this process runs at once.
	Concurrency int `env:"KEB_WORKER_CONCURRENCY" envDefault:"32"`
	// RateLimit is how many steps each worker of this process starts per second; 0 means no limit.
	RateLimit float64 `env:"KEB_WORKER_RATE_LIMIT" envDefault:"0"`
	// DrainTimeout is how long running steps may go on after the process was told to stop.
	DrainTimeout time.Duration `env:"KEB_WORKER_DRAIN_TIMEOUT" envDefault:"20s"`
	// Ramped makes the workers of this process execute only the commands that a ramp sends to their version.
	Ramped bool `env:"KEB_WORKER_RAMPED" envDefault:"false"`
}

// Config is the configuration of a worker within the limits.
func (l Limits) Config(name, version string) Config {
	return Config{
		Name: name, Version: version,
		Concurrency: l.Concurrency, RateLimit: l.RateLimit, DrainTimeout: l.DrainTimeout, Ramped: l.Ramped,
	}
}

// Validate reports every invalid setting, and parses the keys.
func (e *environment) Validate() error {
	problems := []error{e.NATS.Validate(), e.Metrics.Validate()}
	if e.StageKeys != "" {
		keys, err := seal.ParseKeyring(strings.TrimSpace(e.StageKeys))
		if err != nil {
			problems = append(problems, fmt.Errorf("KEB_STAGE_KEYS: %w", err))
		}
		e.keys = keys
	}
	return errors.Join(problems...)
}

// connection returns the connection settings of a worker. Each worker logs on to the bus as its own user. In a process with several
// workers, each has its own variable for the password.
func (e *environment) connection(name string, alone bool) (bus.Config, error) {
	cfg := e.NATS
	cfg.Name, cfg.Guest = ServicePrefix+name, true
	if alone {
		return cfg, nil
	}
	user := event.WorkerUserName(name)
	variable := event.PasswordVariable(user)
	if cfg.User != "" || cfg.Password != "" {
		return cfg, fmt.Errorf("configuration: KEB_NATS_USER and KEB_NATS_PASSWORD are only allowed with one worker: "+
			"with several workers, set %s, the password of user %s", variable, user)
	}
	password, err := service.LoadSecret(variable)
	if password != "" {
		cfg.User, cfg.Password = user, password
	}
	return cfg, err
}

// Env holds the dependencies that Main passes to the function that creates a worker's steps.
type Env struct {
	// Log is the worker's log.
	Log *slog.Logger
	// Registerer registers metrics of the steps, which are served with those of the SDK at KEB_METRICS_ADDR.
	Registerer prometheus.Registerer
	// TracerProvider creates spans of the steps. It is never nil in a worker that Main runs, even if tracing is off.
	TracerProvider trace.TracerProvider

	questions *[]Question
}

// Answer adds questions that the worker answers.
func (e Env) Answer(questions ...Question) {
	if e.questions != nil { // nil in an Env that a test created
		*e.questions = append(*e.questions, questions...)
	}
}

// Main is the whole main function of a worker: it reads the environment, creates the steps, and executes commands until the
// process receives SIGINT or SIGTERM. It does not return. steps is called once; its error ends the process.
//
// The environment:
//
//	KEB_NATS_URL              nats://127.0.0.1:4222 by default
//	KEB_NATS_USER, KEB_NATS_PASSWORD or KEB_NATS_PASSWORD_FILE
//	KEB_NATS_CA_FILE, KEB_NATS_CERT_FILE, KEB_NATS_KEY_FILE
//	                          the server's certificate authority, and the client certificate (TLS, mutual TLS)
//	KEB_STAGE_KEYS or KEB_STAGE_KEYS_FILE
//	                          the keys of the stage memory, equal for all workers; only required by steps that use it
//	KEB_METRICS_ADDR          address of /metrics, /healthz and /readyz, for example ":9090"; off if empty
//	KEB_METRICS_TLS_CERT_FILE, KEB_METRICS_TLS_KEY_FILE
//	                          the certificate of that address
//	KEB_WORKER_CONCURRENCY    maximum number of steps in parallel; default 32
//	KEB_WORKER_RATE_LIMIT     maximum number of started steps per second; default no limit
//	KEB_WORKER_DRAIN_TIMEOUT  time limit for running steps after the signal; default 20s
//	KEB_WORKER_RAMPED         true: execute only the commands that a ramp sends to this version; default false
//	KEB_LOG_FORMAT            json or text
//	KEB_LOG_LEVEL             debug, info, warn or error
//	OTEL_*                    destination of traces, see package tracing; default off; requires Program.Traces
//
// With the flag -check-config it validates the configuration, prints it without secrets, and exits.
func Main(name, version string, steps func(ctx context.Context, env Env) ([]Step, error)) {
	Program{Name: name, Version: version, Steps: steps}.Main()
}

// Program is a worker, alone in a binary or with others. Steps creates its steps like the function that is passed to Main.
type Program struct {
	Name, Version string
	Steps         func(ctx context.Context, env Env) ([]Step, error)
	// Traces creates the exporter of traces, for example otlp.New of libs/tracing/otlp; without one the process sends none. Workers in
	// one process share the exporter of the first that has one.
	Traces tracing.ExporterFunc
}

// Main is the function Main with all settings of a program.
func (p Program) Main() { single(p).Main() }

// MainOf is Main for a binary with several workers. The arguments name the workers that run in this process. With one name the
// environment is that of Main. With several, each worker logs on as its own user, worker-<name>, whose password is in a variable such as
// KEB_NATS_PASSWORD_WORKER_AVS (or _FILE), and the limits apply to each worker.
func MainOf(binary string, all ...Program) { several(binary, all).Main() }

func single(only Program) service.Program[environment] {
	return program(ServicePrefix+only.Name, only.Traces, func(args []string) ([]Program, error) {
		if len(args) > 0 {
			return nil, fmt.Errorf("argument %q: only flags are allowed, see -help", args[0])
		}
		return []Program{only}, nil
	})
}

func several(binary string, all []Program) service.Program[environment] {
	var traces tracing.ExporterFunc
	if i := slices.IndexFunc(all, func(p Program) bool { return p.Traces != nil }); i >= 0 {
		traces = all[i].Traces
	}
	return program(binary, traces, func(args []string) ([]Program, error) {
		var chosen []Program
		names := make([]string, len(all))
		for i, p := range all {
			names[i] = p.Name
		}
		for i, arg := range args {
			at := slices.Index(names, arg)
			switch {
			case at < 0:
				return nil, fmt.Errorf("unknown worker %q; allowed: %s", arg, strings.Join(names, ", "))
			case slices.Contains(args[:i], arg):
				return nil, fmt.Errorf("worker %q is duplicated", arg)
			}
			chosen = append(chosen, all[at])
		}
		if len(chosen) == 0 {
			return nil, fmt.Errorf("no worker given; allowed: %s", strings.Join(names, ", "))
		}
		return chosen, nil
	})
}

// program runs the workers that choose selects by the arguments.
func program(name string, traces tracing.ExporterFunc, choose func(args []string) ([]Program, error)) service.Program[environment] {
	var chosen []Program
	return service.Program[environment]{
		Name: name, Traces: traces,
		Arguments: func(args []string) (err error) {
			chosen, err = choose(args)
			return err
		},
		Check: func(ctx context.Context, env *environment, p *service.Process, out io.Writer) error {
			made, err := makeAll(ctx, env, p, chosen)
			if err != nil {
				return err
			}
			for _, m := range made {
				if err := m.print(out, env); err != nil {
					return err
				}
			}
			return nil
		},
		Start: func(ctx context.Context, env *environment, p *service.Process) error {
			made, err := makeAll(ctx, env, p, chosen)
			if err != nil {
				return err
			}
			for _, m := range made {
				if err := m.start(ctx, env, p); err != nil {
					return err
				}
			}
			return p.ServeMetrics(env.Metrics, service.Monitoring(p.Registry, p.Health))
		},
	}
}

// made is a worker with its steps that is not connected yet.
type made struct {
	cfg        Config
	connection bus.Config
	deps       Deps
	steps      []Step
	// check is the name of its readiness check.
	check string
}

// makeAll creates and validates the steps of all workers, so that none starts if the configuration of one is invalid.
func makeAll(ctx context.Context, env *environment, p *service.Process, programs []Program) ([]*made, error) {
	if err := p.Certificates(
		map[string]tlsfiles.Server{service.MetricsTLSPrefix: env.Metrics.TLS}, map[string]tlsfiles.Client{"KEB_NATS_": env.NATS.TLS},
	); err != nil {
		return nil, err
	}
	alone := len(programs) == 1
	var all []*made
	var problems []error
	for _, program := range programs {
		m, err := makeOne(ctx, env, p, program, alone)
		if err != nil && !alone {
			err = fmt.Errorf("worker %s: %w", program.Name, err)
		}
		all, problems = append(all, m), append(problems, err)
	}
	return all, errors.Join(problems...)
}

func makeOne(ctx context.Context, env *environment, p *service.Process, program Program, alone bool) (_ *made, err error) {
	m := &made{cfg: env.Config(program.Name, program.Version), check: "nats"}
	if m.connection, err = env.connection(program.Name, alone); err != nil {
		return nil, err
	}
	log := p.Log
	if !alone {
		log, m.check = log.With("component", event.WorkerUserName(program.Name)), "nats of "+program.Name
	}
	m.deps = Deps{Log: log, Registerer: p.Registry, TracerProvider: p.TracerProvider(ServicePrefix+program.Name, program.Version)}
	lent := Env{Log: log, Registerer: p.Registry, TracerProvider: m.deps.TracerProvider, questions: &m.cfg.Questions}
	if lent.TracerProvider == nil {
		lent.TracerProvider = noop.NewTracerProvider()
	}
	if m.steps, err = program.Steps(ctx, lent); err != nil {
		return nil, fmt.Errorf("make steps: %w", err)
	}
	if err := check(m.cfg, m.steps); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return m, nil
}

// start connects the worker and adds it to the process.
func (m *made) start(ctx context.Context, env *environment, p *service.Process) error {
	b, err := bus.Connect(ctx, m.connection, bus.Deps{Log: m.deps.Log, Registerer: p.Registry})
	if err != nil {
		return err
	}
	p.Defer(func() error { b.Close(); return nil })
	m.deps.Bus = b
	if env.keys != nil {
		m.deps.StageMemory = stagemem.NewGuest(b.JetStream(), env.keys)
	}
	w, err := New(m.cfg, m.deps, m.steps...)
	if err != nil {
		return err
	}
	p.Health.Add(m.check, b.Ready)
	p.Add("worker "+m.cfg.Name, w.Run)
	return nil
}

// print prints the configuration of the worker. For secrets it prints only whether they are set.
func (m *made) print(out io.Writer, env *environment) error {
	cfg := m.cfg.withDefaults()
	names := make([]string, len(m.steps))
	for i, s := range m.steps {
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
		NATSURL: redactURLs(m.connection.URL), NATSUser: m.connection.User, NATSPassword: secret(m.connection.Password),
		StageKeys: secret(env.StageKeys), MetricsAddr: env.Metrics.Addr,
		Concurrency: cfg.Concurrency, RateLimit: cfg.RateLimit, DrainTimeout: cfg.DrainTimeout.String(),
	})
}

// redactURLs removes the credentials from a list of addresses.
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
