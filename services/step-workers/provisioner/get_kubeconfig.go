package provisioner

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
)

// minKubeconfig is the minimum length of a kubeconfig; a shorter text is a placeholder.
const minKubeconfig = 10

// getKubeconfig stores the runtime's kubeconfig in the stage memory.
func (s *shared) getKubeconfig(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	if op.Plan.Name == PlanOwnCluster {
		return s.own(ctx, op)
	}
	d, err := read(op)
	if err != nil {
		return op, 0, err
	}
	if d.RuntimeID == "" && op.Type != event.Provision {
		return worker.Skip(op, noRuntime)
	}
	if d.RuntimeID == "" {
		return worker.Fail(op, &worker.Error{Component: component, Message: "no runtime was created: its id is not saved"})
	}
	status, err := s.runtimes.RuntimeStatus(ctx, op.Context.GlobalAccountID, d.RuntimeID)
	if err != nil {
		return op, s.cfg.RetryInterval, err
	}
	kubeconfig := status.Configuration.Kubeconfig
	if len(kubeconfig) < minKubeconfig {
		return worker.Wait(op, s.cfg.KubeconfigInterval, "the runtime has no kubeconfig yet")
	}
	log.Debug("kubeconfig received", "runtime_id", d.RuntimeID)
	return remember(op, kubeconfig)
}

// own returns the customer's kubeconfig, and creates a runtime id that is the same in every attempt.
func (s *shared) own(ctx context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
	var given struct {
		Kubeconfig string `json:"kubeconfig"`
	}
	if err := op.ClaimCredentials(ctx, event.CredentialsKubeconfig, &given); err != nil {
		return worker.Retry(op, s.cfg.RetryInterval, err)
	}
	if err := op.SaveDetails(Details{RuntimeID: OwnRuntimeID(op.InstanceID)}); err != nil {
		return op, 0, err
	}
	return remember(op, given.Kubeconfig)
}

// OwnRuntimeID returns the runtime id of an own_cluster instance: its UUID of version 5 in the namespace of OIDs.
func OwnRuntimeID(instanceID string) string {
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte("keb runtime "+instanceID)).String()
}

func remember(op worker.Operation, kubeconfig string) (worker.Operation, time.Duration, error) {
	client, err := kube.FromKubeconfig("runtime", []byte(kubeconfig), 0, extclient.Deps{})
	if err != nil {
		return worker.Fail(op, &worker.Error{Component: component, Reason: "err_kubeconfig", Err: err})
	}
	client.Close()
	op.Remember(KubeconfigKey, []byte(kubeconfig))
	return op, 0, nil
}
