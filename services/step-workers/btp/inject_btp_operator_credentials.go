package btp

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// injectCredentials adds the Service Manager credentials to the runtime.
type injectCredentials struct{ *shared }

// Name implements worker.Step.
func (injectCredentials) Name() string { return "Inject_BTP_Operator_Credentials" }

// Describe implements worker.Described.
func (injectCredentials) Describe() worker.Description {
	return worker.Description{
		Summary: "Creates or updates the Secret with the Service Manager credentials for the BTP manager in the runtime. A Secret that " +
			"customers manage themselves is not changed.",
		Calls: []worker.Call{
			{System: system, Operation: "get secrets"},
			{System: system, Operation: "create namespaces"},
			{System: system, Operation: "create secrets"},
			{System: system, Operation: "update secrets"},
			{System: system, Operation: "delete secrets"},
		},
		Details: []string{"smClusterId"},
	}
}

// Run implements worker.Step. The API of a new runtime may reject calls for a while, so every failed call is repeated.
func (s injectCredentials) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	kubeconfig, err := op.Recall(ctx, provisioner.KubeconfigKey)
	if errors.Is(err, worker.ErrNotRemembered) {
		if op.Type == event.Update && !hasRuntime(op) {
			return worker.Skip(op, "the instance has no runtime: it is suspended")
		}
		return worker.Fail(op, &worker.Error{Component: component, Message: "no kubeconfig: Get_Kubeconfig has not run in this stage"})
	}
	if err != nil {
		return outcome.Again(op, component, s.cfg.RetryInterval, err)
	}
	c, err := claim(ctx, op)
	if incomplete(err) {
		return worker.Fail(op, outcome.Error("keb", err))
	}
	if err != nil {
		return outcome.Again(op, "keb", s.cfg.RetryInterval, err)
	}
	id, err := clusterID(op)
	if err != nil {
		return worker.Fail(op, outcome.Error(component, err))
	}
	runtime, err := s.open(kubeconfig)
	if err != nil {
		return worker.Fail(op, outcome.Error(component, err))
	}
	defer runtime.Close()
	kept, err := write(ctx, runtime, secret(c, id), log)
	if err != nil {
		return outcome.Again(op, component, s.cfg.RetryInterval, err)
	}
	if kept {
		return worker.Skip(op, "the Secret "+secretNamespace+"/"+secretName+" has the label "+skipLabel+": it is not changed")
	}
	log.Info("credentials injected", "secret", secretNamespace+"/"+secretName)
	return op, 0, op.SaveDetails(Details{ClusterID: id})
}

func hasRuntime(op worker.Operation) bool {
	var d provisioner.Details
	return op.Details(provisioner.Name, &d) == nil && d.RuntimeID != ""
}
