package btp

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// injectCredentials adds the Service Manager credentials to the runtime.
// The API of a new runtime may reject calls for a while, so every failed call is repeated.
func (s *shared) injectCredentials(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	kubeconfig, err := op.Recall(ctx, provisioner.KubeconfigKey)
	if errors.Is(err, worker.ErrNotRemembered) {
		if op.Type == event.Update && !hasRuntime(op) {
			return worker.Skip(op, "the instance has no runtime: it is suspended")
		}
		return worker.Fail(op, &worker.Error{Component: component, Message: "no kubeconfig: Get_Kubeconfig has not run in this stage"})
	}
	if err != nil {
		return worker.Retry(op, s.cfg.RetryInterval, err)
	}
	c, err := claim(ctx, op)
	if incomplete(err) {
		return worker.Fail(op, &worker.Error{Err: err})
	}
	if err != nil {
		return worker.Retry(op, s.cfg.RetryInterval, err)
	}
	id, err := clusterID(op)
	if err != nil {
		return op, 0, err
	}
	runtime, err := s.open(kubeconfig)
	if err != nil {
		return op, 0, err
	}
	defer runtime.Close()
	kept, err := write(ctx, runtime, secret(c, id), log)
	if err != nil {
		return worker.Retry(op, s.cfg.RetryInterval, err)
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
