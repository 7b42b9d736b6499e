// Package stepworkers holds all workers of this module: for the command step-worker, whose arguments name those that it runs, and for a
// process that runs them all.
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

// Service is one worker: its name, its steps and the questions that it answers.
type Service struct {
	Name      string
	Steps     []worker.Step
	Questions []worker.Question
	// Config is the configuration that they were made with, secrets included.
	Config any
}

// Options say how the workers of one process behave. With the zero value they behave as workers without any variable, but find all systems
// in the landscape.
type Options struct {
	// Environment holds the variables of the workers; nil means none. The environment of the process is not read.
	Environment map[string]string
	// Fast takes the waits out: 100 ms between two looks.
	Fast bool
	// Poll is the time between two looks at something, and after an error; it counts before Fast. A variable counts before both.
	Poll time.Duration
	// Registerer gets the metrics keb_external_*; nil means none.
	Registerer prometheus.Registerer
	// Now is used in place of time.Now.
	Now func() time.Time
	// Log gets a word when a system keeps failing; nil means none. What steps log goes to the worker's own logger.
	Log *slog.Logger
}

// All builds the workers of this module for the landscape under one base URL, for example http://127.0.0.1:8090. Each is configured as its
// own process is, from opts.Environment; an address that no variable sets is that of the system in this landscape. It calls no system.
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

// Programs are the workers as the command step-worker runs them, each configured from the environment of the process.
func Programs() []worker.Program {
	var all []worker.Program
	for _, k := range kinds() {
		all = append(all, worker.Program{
			Name: k.name, Version: service.Version(),
			Steps: func(_ context.Context, env worker.Env) ([]worker.Step, error) {
				s, err := k.make(service.LoadEnv, extclient.Deps{Log: env.Log, Registerer: env.Registerer})
				env.Answer(s.Questions...)
				return s.Steps, err
			},
		})
	}
	return all
}

// kinds are the workers of this module.
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

// kind is a worker, and how it is made with the configuration that load reads.
type kind struct {
	name string
	make func(load func(into any) error, deps extclient.Deps) (Service, error)
}

// of is a worker with the configuration C that has steps, or answers questions, or both.
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
	fastPoll = 100 * time.Millisecond
	// callTimeout is the deadline of one call where the waits are taken out: a system that answers nothing shows early then.
	callTimeout = 10 * time.Second
	// longestCall is the longest deadline of one call by default; what has a longer one waits for something.
	longestCall = time.Minute
)

type builder struct {
	deps        extclient.Deps
	environment map[string]string
	base        string
	// poll is the time between two looks at something, and after an error; zero is that of each worker.
	poll time.Duration
}

// inLandscape is what the landscape has for variables without a default: the paths of systems, and ids that a real system gives out.
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

// InLandscape returns what the landscape has for variables that have no default: paths, which begin with a slash, and ids.
func InLandscape() map[string]string { return maps.Clone(inLandscape) }

// defaultOf is the default of a variable beside the landscape, in place of the one that the workers have by themselves.
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
	if strings.HasSuffix(name, "_INTERVAL") {
		return b.poll.String()
	}
	if d, err := time.ParseDuration(byTag); strings.HasSuffix(name, "_TIMEOUT") && err == nil && d <= longestCall {
		return callTimeout.String()
	}
	return byTag
}
