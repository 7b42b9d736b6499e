// Package stepworkers puts together the steps of all workers of this module, for a process that runs them all.
package stepworkers

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/avs"
	"github.com/kyma-project/keb/services/step-workers/btp"
	"github.com/kyma-project/keb/services/step-workers/busola"
	"github.com/kyma-project/keb/services/step-workers/edp"
	"github.com/kyma-project/keb/services/step-workers/eventhubs"
	"github.com/kyma-project/keb/services/step-workers/hyperscaler"
	"github.com/kyma-project/keb/services/step-workers/ias"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
	"github.com/kyma-project/keb/services/step-workers/internal/setup"
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
}

// Options say how the workers of one process behave. The zero value looks at the landscape about once a second.
type Options struct {
	// Fast takes the waits out: 100 ms between two looks.
	Fast bool
	// Poll is the time between two looks at something, and after an error; it counts before Fast. Zero means about a second.
	Poll time.Duration
	// Credential is the user, client id, password, secret and token that the landscape takes; default "keb".
	Credential string
	// Registerer gets the metrics keb_external_*; nil means none.
	Registerer prometheus.Registerer
	// Now is used in place of time.Now.
	Now func() time.Time
	// Log gets a word when a system keeps failing; nil means none. What steps log goes to the worker's own logger.
	Log *slog.Logger
}

// All builds the workers of this module for the landscape under one base URL, for example http://127.0.0.1:8090. It
// calls nobody. The environment is not read: what it does not set has the defaults of the workers' configurations.
func All(landscapeURL string, opts Options) ([]Service, error) {
	base := strings.TrimRight(landscapeURL, "/")
	if err := extclient.CheckURL("landscape URL", base); err != nil {
		return nil, err
	}
	b := builder{
		deps:       extclient.Deps{Registerer: opts.Registerer, Now: opts.Now, Log: opts.Log},
		base:       base,
		credential: cmp.Or(opts.Credential, "keb"),
		poll:       time.Second,
	}
	if opts.Fast {
		b.poll = 100 * time.Millisecond
	}
	b.poll = cmp.Or(opts.Poll, b.poll)
	add(&b, hyperscaler.Name, hyperscaler.Steps, b.hyperscaler)
	answers(&b, hyperscaler.Name, hyperscaler.Questions, b.hyperscaler)
	add(&b, avs.Name, avs.Steps, b.avs)
	add(&b, edp.Name, edp.Steps, b.edp)
	add(&b, kyma.Name, kyma.Steps, b.kyma)
	add(&b, btp.Name, btp.Steps, b.btp)
	add(&b, busola.Name, busola.Steps, func(*busola.Config) {})
	add(&b, provisioner.Name, provisioner.Steps, b.provisioner)
	add(&b, reconciler.Name, reconciler.Steps, b.reconciler)
	add(&b, lifecyclemanager.Name, lifecyclemanager.Steps, b.lifecycleManager)
	add(&b, ias.Name, ias.Steps, b.ias)
	add(&b, lms.Name, lms.Steps, b.lms)
	add(&b, eventhubs.Name, eventhubs.Steps, b.eventHubs)
	add(&b, servicemanager.Name, servicemanager.Steps, b.serviceManager)
	add(&b, spc.Name, spc.Steps, b.spc)
	answers(&b, runtimeaccess.Name, runtimeaccess.Questions, b.runtimeAccess)
	return b.services, errors.Join(b.errs...)
}

// callTimeout is the deadline of one call to the landscape: a system that answers nothing must show within the time a
// step has.
const callTimeout = 10 * time.Second

type builder struct {
	deps       extclient.Deps
	base       string
	credential string
	// poll is the time between two looks at something, and after an error.
	poll     time.Duration
	services []Service
	errs     []error
}

// add builds one worker: the defaults of its configuration, changed by adapt.
func add[C any](b *builder, name string, steps func(C, extclient.Deps) ([]worker.Step, error), adapt func(*C)) {
	cfg, err := setup.Defaults[C]()
	if err == nil {
		adapt(&cfg)
		var built []worker.Step
		if built, err = steps(cfg, b.deps); err == nil {
			b.services = append(b.services, Service{Name: name, Steps: built})
			return
		}
	}
	b.errs = append(b.errs, fmt.Errorf("worker %s: %w", name, err))
}

// answers adds the questions that a worker answers, to its steps if it has some.
func answers[C any](b *builder, name string, questions func(C, extclient.Deps) ([]worker.Question, error), adapt func(*C)) {
	cfg, err := setup.Defaults[C]()
	if err == nil {
		adapt(&cfg)
		var built []worker.Question
		if built, err = questions(cfg, b.deps); err == nil {
			at := slices.IndexFunc(b.services, func(s Service) bool { return s.Name == name })
			if at < 0 {
				at, b.services = len(b.services), append(b.services, Service{Name: name})
			}
			b.services[at].Questions = append(b.services[at].Questions, built...)
			return
		}
	}
	b.errs = append(b.errs, fmt.Errorf("worker %s: %w", name, err))
}

func (b *builder) hyperscaler(c *hyperscaler.Config) {
	c.GardenerURL, c.GardenerToken = b.base+"/k8s/gardener", b.credential
	c.RetryInterval, c.GardenerTimeout = b.poll, callTimeout
}

func (b *builder) avs(c *avs.Config) {
	c.URL, c.TokenURL = b.base+"/avs/api/v2/evaluationmetadata", b.base+"/avs/oauth2/token"
	c.ClientID, c.Username, c.Password = b.credential, b.credential, b.credential
	c.ProvisionerURL, c.ProvisionerTimeout, c.Timeout = b.provisionerURL(), callTimeout, callTimeout
	c.RetryInterval, c.CleanUpInterval, c.RuntimeInterval = b.poll, b.poll, b.poll
}

func (b *builder) edp(c *edp.Config) {
	c.URL, c.TokenURL, c.Secret = b.base+"/edp", b.base+"/edp/oauth2/token", b.credential
	c.RetryInterval, c.ConflictInterval, c.Timeout = b.poll, b.poll, callTimeout
}

func (b *builder) ias(c *ias.Config) {
	c.URL, c.Username, c.Password = b.base+"/ias", b.credential, b.credential
	c.RetryInterval, c.RegistrationInterval, c.Timeout = b.poll, b.poll, callTimeout
}

func (b *builder) lms(c *lms.Config) {
	c.URL, c.Token, c.Timeout = b.base+"/lms", b.credential, callTimeout
	c.TenantInterval, c.CertificateInterval = b.poll, b.poll
}

func (b *builder) eventHubs(c *eventhubs.Config) {
	c.URL, c.LoginURL, c.Timeout = b.base+"/azure", b.base+"/azure", callTimeout
	c.ClientID, c.ClientSecret = b.credential, b.credential
	c.RetryInterval, c.PollInterval = b.poll, b.poll
}

func (b *builder) serviceManager(c *servicemanager.Config) {
	c.Username, c.Password, c.RetryInterval = b.credential, b.credential, b.poll
}

func (b *builder) kyma(c *kyma.Config) {
	c.ControlPlane = b.controlPlane(c.ControlPlane)
	c.RetryInterval = b.poll
}

func (b *builder) btp(c *btp.Config) {
	c.ProvisionerURL, c.ProvisionerTimeout, c.RuntimeTimeout = b.provisionerURL(), callTimeout, callTimeout
	c.RetryInterval = b.poll
}

func (b *builder) provisioner(c *provisioner.Config) {
	c.ProvisionerURL, c.ProvisionerTimeout, c.DirectorTimeout = b.provisionerURL(), callTimeout, callTimeout
	c.DirectorURL, c.DirectorTokenURL = b.base+"/director/graphql", b.base+"/director/oauth2/token"
	c.DirectorClientID, c.DirectorClientSecret = b.credential, b.credential
	c.RetryInterval, c.ErrorInterval, c.PollInterval = b.poll, b.poll, b.poll
	c.UpgradePollInterval, c.RemovalPollInterval, c.KubeconfigInterval = b.poll, b.poll, b.poll
}

func (b *builder) reconciler(c *reconciler.Config) {
	c.URL, c.Timeout = b.base+"/reconciler/v1", callTimeout
	c.RetryInterval, c.PollInterval, c.ErrorInterval, c.ProblemInterval = b.poll, b.poll, b.poll, b.poll
}

func (b *builder) runtimeAccess(c *runtimeaccess.Config) {
	c.ProvisionerURL, c.ProvisionerTimeout, c.RuntimeTimeout = b.provisionerURL(), callTimeout, callTimeout
}

func (b *builder) lifecycleManager(c *lifecyclemanager.Config) {
	c.ControlPlane = b.controlPlane(c.ControlPlane)
	c.RetryInterval, c.PollInterval = b.poll, b.poll
}

func (b *builder) controlPlane(c kube.ControlPlane) kube.ControlPlane {
	c.KCPURL, c.KCPToken, c.KCPTimeout = b.base+"/k8s/control-plane", b.credential, callTimeout
	return c
}

func (b *builder) spc(c *spc.Config) {
	c.URL, c.Timeout, c.RetryInterval = b.base+"/spc", callTimeout, b.poll
}

func (b *builder) provisionerURL() string { return b.base + "/provisioner/graphql" }
