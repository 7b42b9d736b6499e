package btp

import (
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// The Secret that btp-manager reads (facts/keb.md 5.10).
const (
	secretNamespace = "kyma-system"
	secretName      = "sap-btp-manager" //nolint:gosec // a name
	broker          = "kcp-kyma-environment-broker"
)

// injectCredentials puts the Service Manager credentials into the runtime.
type injectCredentials struct{ *shared }

// Name implements worker.Step.
func (injectCredentials) Name() string { return "Inject_BTP_Operator_Credentials" }

// Describe implements worker.Described.
func (injectCredentials) Describe() worker.Description {
	return worker.Description{
		Summary: "Puts the Service Manager credentials into the runtime.",
		Calls: []worker.Call{
			{System: system, Operation: "get namespaces"},
			{System: system, Operation: "create namespaces"},
			{System: system, Operation: "get secrets"},
			{System: system, Operation: "create secrets"},
			{System: system, Operation: "update secrets"},
		},
		Details: []string{"smClusterId"},
	}
}

// Run implements worker.Step. The API of a new runtime may refuse calls for a while, so every failed call is repeated.
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
	if err := runtime.Apply(ctx, kube.Namespaces, namespace()); err != nil && !kube.IsConflict(err) {
		return outcome.Again(op, component, s.cfg.RetryInterval, err)
	}
	if err := runtime.Apply(ctx, kube.Secrets, secret(c, id)); err != nil {
		return outcome.Again(op, component, s.cfg.RetryInterval, err)
	}
	log.Info("credentials injected", "secret", secretNamespace+"/"+secretName)
	return op, 0, op.SaveDetails(Details{ClusterID: id})
}

func hasRuntime(op worker.Operation) bool {
	var d provisioner.Details
	return op.Details(provisioner.Name, &d) == nil && d.RuntimeID != ""
}

func namespace() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": secretNamespace},
	}}
}

func secret(c credentials, clusterID string) *unstructured.Unstructured {
	data := map[string]any{}
	for key, value := range map[string]string{
		"clientid": c.ClientID, "clientsecret": c.ClientSecret, "sm_url": c.SMURL, "tokenurl": c.URL, "cluster_id": clusterID,
	} {
		data[key] = base64.StdEncoding.EncodeToString([]byte(value))
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": data,
		"metadata": map[string]any{
			"name": secretName, "namespace": secretNamespace,
			"labels": map[string]any{
				"app.kubernetes.io/managed-by": broker,
				"app.kubernetes.io/watched-by": broker,
			},
			"annotations": map[string]any{"Warning": "This secret is managed by Kyma Environment Broker: changes are overwritten."},
		},
	}}
}
