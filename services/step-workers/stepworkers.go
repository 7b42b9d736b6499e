// Package stepworkers puts together the steps of all workers of this module, for a process that runs them all.
package stepworkers

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
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
	add(&b, hyperscaler.Name, hyperscaler.Steps)
	answers(&b, hyperscaler.Name, hyperscaler.Questions)
	add(&b, avs.Name, avs.Steps)
	add(&b, edp.Name, edp.Steps)
	add(&b, kyma.Name, kyma.Steps)
	add(&b, btp.Name, btp.Steps)
	add(&b, busola.Name, busola.Steps)
	add(&b, provisioner.Name, provisioner.Steps)
	add(&b, reconciler.Name, reconciler.Steps)
	add(&b, lifecyclemanager.Name, lifecyclemanager.Steps)
	add(&b, ias.Name, ias.Steps)
	add(&b, lms.Name, lms.Steps)
	add(&b, eventhubs.Name, eventhubs.Steps)
	add(&b, servicemanager.Name, servicemanager.Steps)
	add(&b, spc.Name, spc.Steps)
	answers(&b, spc.Name, spc.Questions)
	answers(&b, runtimeaccess.Name, runtimeaccess.Questions)
	return b.services, errors.Join(b.errs...)
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
	poll     time.Duration
	services []Service
	errs     []error
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

// add builds the steps of one worker.
func add[C any](b *builder, name string, steps func(C, extclient.Deps) ([]worker.Step, error)) {
	build(b, name, steps, func(s *Service, built []worker.Step) { s.Steps = append(s.Steps, built...) })
}

// answers adds the questions that a worker answers, to its steps if it has some.
func answers[C any](b *builder, name string, questions func(C, extclient.Deps) ([]worker.Question, error)) {
	build(b, name, questions, func(s *Service, built []worker.Question) { s.Questions = append(s.Questions, built...) })
}

func build[C, T any](b *builder, name string, with func(C, extclient.Deps) (T, error), put func(*Service, T)) {
	var cfg C
	if err := service.LoadEnvFrom(&cfg, b.environment, b.defaultOf); err != nil {
		b.errs = append(b.errs, fmt.Errorf("worker %s: %w", name, err))
		return
	}
	built, err := with(cfg, b.deps)
	if err != nil {
		b.errs = append(b.errs, fmt.Errorf("worker %s: %w", name, err))
		return
	}
	at := slices.IndexFunc(b.services, func(s Service) bool { return s.Name == name })
	if at < 0 {
		at, b.services = len(b.services), append(b.services, Service{Name: name, Config: cfg})
	}
	put(&b.services[at], built)
}
