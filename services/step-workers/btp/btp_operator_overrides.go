package btp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// operatorOverrides hands the Service Manager credentials to the BTP operator by way of the stage memory.
type operatorOverrides struct{ *shared }

// Name implements worker.Step.
func (operatorOverrides) Name() string { return "BTPOperatorOverrides" }

// Describe implements worker.Described.
func (operatorOverrides) Describe() worker.Description {
	return worker.Description{
		Summary:     "Hands the Service Manager credentials to the BTP operator by overrides.",
		Calls:       []worker.Call{{System: system, Operation: "get configmaps"}},
		Details:     []string{"smClusterId"},
		StageMemory: []string{"overrides:" + Component},
	}
}

// Run implements worker.Step.
func (s operatorOverrides) Run(ctx context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
	c, err := claim(ctx, op)
	if incomplete(err) {
		return worker.Fail(op, outcome.Error("keb", err))
	}
	if err != nil {
		return outcome.Again(op, "keb", s.cfg.RetryInterval, err)
	}
	id, err := s.known(ctx, op)
	if err != nil {
		return outcome.Again(op, component, s.cfg.RetryInterval, fmt.Errorf("read the cluster id of the runtime: %w", err))
	}
	if id == "" {
		if id, err = clusterID(op); err != nil {
			return worker.Fail(op, outcome.Error(component, err))
		}
	}
	op.SetOverrides(Component, []worker.Override{
		{Key: "manager.secret.clientid", Value: c.ClientID, Secret: true},
		{Key: "manager.secret.clientsecret", Value: c.ClientSecret, Secret: true},
		{Key: "manager.secret.url", Value: c.URL},
		{Key: "manager.secret.sm_url", Value: c.SMURL},
		{Key: "manager.secret.tokenurl", Value: c.URL},
		{Key: "cluster.id", Value: id},
		{Key: "manager.priorityClassName", Value: "kyma-system"},
	})
	return op, 0, op.SaveDetails(Details{ClusterID: id})
}

// known is the id under which the Service Manager knows an existing runtime, if nothing was saved about it: the BTP
// operator keeps it there (facts/keb.md 4.3). It is empty for a new runtime.
func (s operatorOverrides) known(ctx context.Context, op worker.Operation) (string, error) {
	var d Details
	if err := op.Details(Name, &d); err != nil || d.ClusterID != "" || op.Type == event.Provision {
		return d.ClusterID, err
	}
	kubeconfig, err := op.Recall(ctx, provisioner.KubeconfigKey)
	if errors.Is(err, worker.ErrNotRemembered) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	runtime, err := s.open(kubeconfig)
	if err != nil {
		return "", err
	}
	defer runtime.Close()
	info, err := runtime.Get(ctx, kube.ConfigMaps, secretNamespace, "cluster-info")
	if kube.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	id, _, err := unstructured.NestedString(info.Object, "data", "id")
	return id, err
}
