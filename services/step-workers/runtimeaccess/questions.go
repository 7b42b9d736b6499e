package runtimeaccess

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// Name is the name of the worker.
const Name = "runtime"

// component is the component of errors that no other system caused.
const component = "runtime"

// shared has the dependencies of all answers.
type shared struct {
	cfg      Config
	deps     extclient.Deps
	log      *slog.Logger
	runtimes *provisioner.Client
}

// Questions creates the questions of the worker: event.AskCluster, event.AskBind and event.AskUnbind. The error of an answer contains its
// component and reason, and no secret.
func Questions(cfg Config, deps extclient.Deps) ([]worker.Question, error) {
	p, err := provisioner.NewClient(cfg.ClientConfig, deps)
	if err != nil {
		return nil, err
	}
	s := &shared{cfg: cfg, deps: deps, log: deps.Log, runtimes: p}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	return []worker.Question{
		{Subject: event.AskCluster, Answer: answer(s, s.cluster)},
		{Subject: event.AskBind, Answer: answer(s, s.bind)},
		{Subject: event.AskUnbind, Answer: answer(s, s.unbind)},
	}, nil
}

// answer decodes a question and converts an error into one that the caller may see.
func answer[Q, A any](s *shared, give func(context.Context, Q) (A, error)) func(context.Context, []byte) (any, error) {
	return func(ctx context.Context, question []byte) (any, error) {
		var q Q
		if err := json.Unmarshal(question, &q); err != nil {
			// The decoder's error may contain parts of the question, which may hold a kubeconfig.
			return nil, errors.New("the question is not the JSON object of the contract")
		}
		a, err := give(ctx, q)
		if err != nil {
			e := worker.ErrorOf(component, err)
			refusal := fmt.Errorf("%s (%s): %w", e.Component, e.Reason, e)
			s.log.Warn("question not answered", "err", refusal)
			return nil, refusal
		}
		return a, nil
	}
}

func invalid(format string, args ...any) error {
	return &worker.Error{Component: component, Reason: "err_bad_request", Message: fmt.Sprintf(format, args...)}
}

// errNoRuntime means that the runtime does not exist, or not yet.
var errNoRuntime = &worker.Error{Component: component, Reason: "err_runtime_not_found", Message: "there is no such runtime"}

// kubeconfig returns the kubeconfig of the runtime's administrator.
func (s *shared) kubeconfig(ctx context.Context, at event.RuntimeAccess) ([]byte, error) {
	if at.Kubeconfig != "" {
		return []byte(at.Kubeconfig), nil
	}
	if at.RuntimeID == "" || at.Account == "" {
		return nil, invalid("runtimeId and subscription, or kubeconfig, must not be empty")
	}
	status, err := s.runtimes.RuntimeStatus(ctx, at.Account, at.RuntimeID)
	switch {
	case extclient.IsNotFound(err), err == nil && status.Removed():
		return nil, errNoRuntime
	case err != nil:
		return nil, err
	case status.Configuration.Kubeconfig == "":
		return nil, &worker.Error{Component: "provisioner", Reason: worker.ReasonState, Message: "the runtime has no kubeconfig"}
	}
	return []byte(status.Configuration.Kubeconfig), nil
}

func (s *shared) cluster(ctx context.Context, at event.RuntimeAccess) (event.ClusterAnswer, error) {
	admin, err := s.kubeconfig(ctx, at)
	if err != nil {
		return event.ClusterAnswer{}, err
	}
	c, err := kube.ClusterOf(admin)
	if err != nil {
		return event.ClusterAnswer{}, broken(err)
	}
	return event.ClusterAnswer{Server: c.Server, CAData: base64.StdEncoding.EncodeToString(c.CA)}, nil
}

func (s *shared) bind(ctx context.Context, q event.BindRequest) (event.BindAnswer, error) {
	if q.BindingID == "" || q.ExpirationSeconds <= 0 {
		return event.BindAnswer{}, invalid("bindingId must not be empty, and expirationSeconds must be positive")
	}
	admin, err := s.kubeconfig(ctx, q.Runtime)
	if err != nil {
		return event.BindAnswer{}, err
	}
	c, err := kube.ClusterOf(admin)
	if err != nil {
		return event.BindAnswer{}, broken(err)
	}
	client, err := s.open(admin)
	if err != nil {
		return event.BindAnswer{}, err
	}
	defer client.Close()
	access := newAccess(q.Runtime.InstanceID, q.BindingID)
	if err := access.create(ctx, client); err != nil {
		return event.BindAnswer{}, err
	}
	token, ends, err := client.Token(ctx, namespace, access.name, time.Duration(q.ExpirationSeconds)*time.Second)
	if err != nil {
		return event.BindAnswer{}, err
	}
	kubeconfig, err := access.kubeconfig(c, token)
	if err != nil {
		return event.BindAnswer{}, err
	}
	s.log.Info("access to a runtime created", "instance_id", q.Runtime.InstanceID, "binding_id", q.BindingID, "expires_at", ends)
	return event.BindAnswer{Kubeconfig: kubeconfig, ExpiresAt: ends}, nil
}

func (s *shared) unbind(ctx context.Context, q event.UnbindRequest) (event.UnbindAnswer, error) {
	if q.BindingID == "" {
		return event.UnbindAnswer{}, invalid("bindingId must not be empty")
	}
	admin, err := s.kubeconfig(ctx, q.Runtime)
	if errors.Is(err, errNoRuntime) {
		// All objects of the binding were removed with the runtime.
		return event.UnbindAnswer{}, nil
	}
	if err != nil {
		return event.UnbindAnswer{}, err
	}
	client, err := s.open(admin)
	if err != nil {
		return event.UnbindAnswer{}, err
	}
	defer client.Close()
	if err := newAccess(q.Runtime.InstanceID, q.BindingID).remove(ctx, client); err != nil {
		return event.UnbindAnswer{}, err
	}
	s.log.Info("access to a runtime removed", "instance_id", q.Runtime.InstanceID, "binding_id", q.BindingID)
	return event.UnbindAnswer{}, nil
}

func (s *shared) open(admin []byte) (*kube.Client, error) {
	client, err := kube.FromKubeconfig("runtime", admin, s.cfg.RuntimeTimeout, s.deps)
	if err != nil {
		return nil, broken(err)
	}
	return client, nil
}

func broken(err error) error {
	return &worker.Error{Component: component, Reason: "err_kubeconfig", Err: err}
}
