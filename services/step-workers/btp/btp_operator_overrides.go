package btp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// operatorOverrides passes the Service Manager credentials to the BTP operator through the stage memory.
func (s *shared) operatorOverrides(ctx context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
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
	if id, err = s.known(ctx, op, id); err != nil {
		return worker.Retry(op, s.cfg.RetryInterval, fmt.Errorf("find the cluster id of the runtime: %w", err))
	}
	op.SetOverrides(Component, []worker.Override{
		{Key: "manager.secret.clientid", Value: c.ClientID, Secret: true},
		{Key: "manager.secret.clientsecret", Value: c.ClientSecret, Secret: true},
		{Key: "manager.secret.url", Value: c.SMURL},
		{Key: "manager.secret.sm_url", Value: c.SMURL},
		{Key: "manager.secret.tokenurl", Value: c.URL},
		{Key: "cluster.id", Value: id},
		{Key: "manager.priorityClassName", Value: "kyma-system"},
	})
	if isDryRun(op) {
		return op, 0, nil // the runtime may not have the id
	}
	return op, 0, op.SaveDetails(Details{ClusterID: id})
}

func isDryRun(op worker.Operation) bool { return op.Upgrade != nil && op.Upgrade.DryRun }

// The BTP operator stores the cluster id of a runtime in this ConfigMap (docs/contracts/btp.md#cluster-id).
const (
	infoName = "cluster-info"
	infoKey  = "id"
)

// known returns the cluster id of an existing runtime without a saved id, from the ConfigMap of the BTP operator. If there is no
// ConfigMap, known creates it with id, except in a dry run. For a new runtime it returns id.
func (s *shared) known(ctx context.Context, op worker.Operation, id string) (string, error) {
	var d Details
	if err := op.Details(Name, &d); err != nil || d.ClusterID != "" || op.Type == event.Provision {
		return id, err
	}
	kubeconfig, err := op.Recall(ctx, provisioner.KubeconfigKey)
	if errors.Is(err, worker.ErrNotRemembered) {
		return id, nil
	}
	if err != nil {
		return "", err
	}
	runtime, err := s.open(kubeconfig)
	if err != nil {
		return "", err
	}
	defer runtime.Close()
	info, err := runtime.Get(ctx, kube.ConfigMaps, secretNamespace, infoName)
	if kube.IsNotFound(err) && isDryRun(op) {
		return id, nil
	}
	if kube.IsNotFound(err) {
		return id, announce(ctx, runtime, id)
	}
	if err != nil {
		return "", err
	}
	found, _, err := unstructured.NestedString(info.Object, "data", infoKey)
	return cmp.Or(found, id), err
}

// announce stores the cluster id in a runtime without one. If another client is faster, the step is repeated and reads its id.
func announce(ctx context.Context, runtime *kube.Client, id string) error {
	if err := runtime.Create(ctx, kube.Namespaces, namespace()); err != nil && !kube.IsConflict(err) {
		return err
	}
	return runtime.Create(ctx, kube.ConfigMaps, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{infoKey: id},
		"metadata": map[string]any{"name": infoName, "namespace": secretNamespace},
	}})
}
