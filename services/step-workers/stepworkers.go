// Package stepworkers contains all workers of this module, for the command step-worker and for a process that runs all workers.
package stepworkers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/tracing/otlp"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/avs"
	"github.com/kyma-project/keb/services/step-workers/btp"
	"github.com/kyma-project/keb/services/step-workers/busola"
	"github.com/kyma-project/keb/services/step-workers/edp"
	"github.com/kyma-project/keb/services/step-workers/eventhubs"
	"github.com/kyma-project/keb/services/step-workers/hyperscaler"
	"github.com/kyma-project/keb/services/step-workers/ias"
	"github.com/kyma-project/keb/services/step-workers/kyma"
	"github.com/kyma-project/keb/services/step-workers/lifecyclemanager"
	"github.com/kyma-project/keb/services/step-workers/lms"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
	"github.com/kyma-project/keb/services/step-workers/reconciler"
	"github.com/kyma-project/keb/services/step-workers/runtimeaccess"
	"github.com/kyma-project/keb/services/step-workers/servicemanager"
	"github.com/kyma-project/keb/services/step-workers/spc"
)

// Service is one worker: its name, its steps and its questions.
type Service struct {
	Name      string
	Steps     []worker.Step
	Questions []worker.Question
	// Config is the configuration of the worker, including its secrets.
	Config any
}

// Options configure the workers of one process. With the zero value, each worker uses its defaults and finds all systems in the
// landscape.
type Options struct {
	// Environment holds the variables of the workers; nil means none. The environment of the process is not read.
	Environment map[string]string
	// Fast reduces the intervals between two checks to 100 ms.
	Fast bool
	// Poll is the interval between two checks, and after an error. It takes precedence over Fast, and a variable takes precedence over both.
	Poll time.Duration
	// Registerer registers the metrics keb_external_*; nil means none.
	Registerer prometheus.Registerer
	// Now replaces time.Now.
	Now func() time.Time
	// Log receives a message when a system keeps failing; nil means none. The steps log to the worker's own logger.
	Log *slog.Logger
}

// All creates the workers of this module for the landscape under one base URL, for example http://127.0.0.1:8090. Each worker reads
// opts.Environment like its own process. An address without a variable is that of the system in this landscape. All calls no system.
func All(landscapeURL string, opts Options) ([]Service, error) {
	base := strings.TrimRight(landscapeURL, "/")
	if err := extclient.CheckURL("landscape URL", base); err != nil {
		return nil, err
	}
	b := builder{
		deps:        extclient.Deps{Registerer: opts.Registerer, Now: opts.Now, Log: opts.Log},
		environment: opts.Environment,
		base:        base,
		poll:        opts.Poll,
	}
	if opts.Fast {
		b.poll = cmp.Or(b.poll, fastPoll)
	}
	load := func(into any) error { return service.LoadEnvFrom(into, b.environment, b.defaultOf) }
	var services []Service
	var problems []error
	for _, k := range kinds() {
		s, err := k.make(load, b.deps)
		if err != nil {
			problems = append(problems, fmt.Errorf("worker %s: %w", k.name, err))
			continue
		}
		services = append(services, s)
	}
	return services, errors.Join(problems...)
}

// Programs returns the workers for the command step-worker. Each reads its configuration from the environment of the process.
func Programs() []worker.Program {
	var all []worker.Program
	for _, k := range kinds() {
		all = append(all, worker.Program{
			Name: k.name, Version: service.Version(), Traces: otlp.New,
			Steps: func(_ context.Context, env worker.Env) ([]worker.Step, error) {
				s, err := k.make(service.LoadEnv, extclient.Deps{Log: env.Log, Registerer: env.Registerer})
				env.Answer(s.Questions...)
				return s.Steps, err
			},
		})
	}
	return all
}

// kinds returns the workers of this module.
func kinds() []kind {
	return []kind{
		of(hyperscaler.Name, hyperscaler.Steps, hyperscaler.Questions),
		of(avs.Name, avs.Steps, nil),
		of(edp.Name, edp.Steps, nil),
		of(kyma.Name, kyma.Steps, nil),
		of(btp.Name, btp.Steps, nil),
		of(busola.Name, busola.Steps, nil),
		of(provisioner.Name, provisioner.Steps, nil),
		of(reconciler.Name, reconciler.Steps, nil),
		of(lifecyclemanager.Name, lifecyclemanager.Steps, nil),
		of(ias.Name, ias.Steps, nil),
		of(lms.Name, lms.Steps, nil),
		of(eventhubs.Name, eventhubs.Steps, nil),
		of(servicemanager.Name, servicemanager.Steps, nil),
		of(spc.Name, spc.Steps, spc.Questions),
		of(runtimeaccess.Name, nil, runtimeaccess.Questions),
	}
}

// kind is a worker with a function that creates it; load reads its configuration.
type kind struct {
	name string
	make func(load func(into any) error, deps extclient.Deps) (Service, error)
}

// of returns a worker with the configuration C that has steps, questions, or both.
func of[C any](
	name string, steps func(C, extclient.Deps) ([]worker.Step, error), questions func(C, extclient.Deps) ([]worker.Question, error),
) kind {
	return kind{name, func(load func(into any) error, deps extclient.Deps) (Service, error) {
		var cfg C
		if err := load(&cfg); err != nil {
			return Service{}, err
		}
		s := Service{Name: name, Config: cfg}
		var err error
		if steps != nil {
			if s.Steps, err = steps(cfg, deps); err != nil {
				return Service{}, err
			}
		}
		if questions != nil {
			if s.Questions, err = questions(cfg, deps); err != nil {
				return Service{}, err
			}
		}
		return s, nil
	}}
}

const (
	// paceVariable sets the interval between two checks, and after an error, of all steps of a process. Without it each step has its own.
	paceVariable = "KEB_PACE"
	fastPoll     = 100 * time.Millisecond
	// callTimeout is the timeout of one call with short intervals, so that a system that does not respond is noticed early.
	callTimeout = 10 * time.Second
	// longestCall is the longest default timeout of one call. A longer timeout is that of a wait.
	longestCall = time.Minute
)

type builder struct {
	deps        extclient.Deps
	environment map[string]string
	base        string
	// poll is the interval between two checks, and after an error; zero means the default of each worker.
	poll time.Duration
}

// inLandscape has the landscape's values for variables without a default: the paths of systems, and ids that a real system assigns.
var inLandscape = map[string]string{ //nolint:gosec // paths and ids
	"KEB_AVS_URL": "/avs/api/v2/evaluationmetadata", "KEB_AVS_TOKEN_URL": "/avs/oauth2/token",
	"KEB_AVS_GROUP_ID": "1", "KEB_AVS_PARENT_ID": "2",
	"KEB_AVS_INTERNAL_TESTER_ACCESS_ID": "3", "KEB_AVS_EXTERNAL_TESTER_ACCESS_ID": "4",
	"KEB_EDP_URL": "/edp", "KEB_EDP_TOKEN_URL": "/edp/oauth2/token",
	"KEB_IAS_URL": "/ias", "KEB_SPC_URL": "/spc",
	"KEB_LMS_URL": "/lms", "KEB_AZURE_URL": "/azure", "KEB_AZURE_LOGIN_URL": "/azure",
	"KEB_PROVISIONER_URL": "/provisioner/graphql", "KEB_RECONCILER_URL": "/reconciler/v1", "KEB_KYMA_ARTIFACTS_URL": "/artifacts",
	"KEB_KCP_URL": "/k8s/control-plane", "KEB_GARDENER_URL": "/k8s/gardener",
}

// InLandscape returns the landscape's values for variables without a default: paths, which begin with a slash, and ids.
func InLandscape() map[string]string { return maps.Clone(inLandscape) }

// defaultOf returns the default of a variable in the landscape. byTag is the default of the worker itself.
func (b *builder) defaultOf(name, byTag string) string {
	if value, ok := inLandscape[name]; ok {
		if strings.HasPrefix(value, "/") {
			return b.base + value
		}
		return value
	}
	if b.poll == 0 {
		return byTag
	}
	if name == paceVariable {
		return b.poll.String()
	}
	if d, err := time.ParseDuration(byTag); strings.HasSuffix(name, "_TIMEOUT") && err == nil && d <= longestCall {
		return callTimeout.String()
	}
	return byTag
}
