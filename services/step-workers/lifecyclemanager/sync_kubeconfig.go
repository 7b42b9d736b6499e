package lifecyclemanager

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// configKey is the member of the Secret with the kubeconfig.
const configKey = "config"

// syncKubeconfig stores the kubeconfig of the runtime for the Lifecycle Manager. Without it, a Kyma resource never becomes ready.
func (s *shared) syncKubeconfig(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	d, runtimeID, err := read(op)
	if err != nil {
		return op, 0, err
	}
	if runtimeID == "" {
		return withoutRuntime(op)
	}
	kubeconfig, err := op.Recall(ctx, provisioner.KubeconfigKey)
	if errors.Is(err, worker.ErrNotRemembered) {
		return worker.Fail(op, &worker.Error{Component: "keb", Message: "no kubeconfig: Get_Kubeconfig has not run in this stage"})
	}
	if err != nil {
		return worker.Retry(op, s.cfg.RetryInterval, err)
	}
	namespace, err := s.namespace(ctx, op, d, runtimeID)
	if err != nil {
		return op, s.cfg.RetryInterval, err
	}
	err = s.removeFormer(ctx, op, kube.Secrets, cmp.Or(d.SecretNamespace, d.Home, s.cfg.Namespace), secretName(runtimeID), log)
	if err != nil {
		return op, s.cfg.RetryInterval, err
	}
	if err := s.putSecret(ctx, op, runtimeID, namespace, kubeconfig); err != nil {
		return op, s.cfg.RetryInterval, err
	}
	log.Info("kubeconfig synchronised", "secret", namespace+"/"+secretName(runtimeID))
	return op, 0, op.SaveDetails(Details{SecretNamespace: namespace, Secret: secretName(runtimeID)})
}

// namespace returns the namespace of the runtime's existing or future Kyma resource.
func (s *shared) namespace(ctx context.Context, op worker.Operation, d Details, runtimeID string) (string, error) {
	if d.Namespace != "" && d.Resource == resourceName(runtimeID) {
		return d.Namespace, nil
	}
	_, t, err := s.template(ctx, op, d.Template)
	if err != nil {
		return "", err
	}
	return s.home(d, runtimeID, t), nil
}

// home returns the namespace of the runtime's existing Kyma resource, or of a future one with the template t.
func (s *shared) home(d Details, runtimeID string, t template) string {
	if d.Namespace != "" && d.Resource == resourceName(runtimeID) {
		return d.Namespace
	}
	return cmp.Or(t.namespace(), s.cfg.Namespace)
}

func (s *shared) putSecret(ctx context.Context, op worker.Operation, runtimeID, namespace string, kubeconfig []byte) error {
	labels, annotations := marks(op, runtimeID)
	content := map[string]any{"stringData": map[string]any{configKey: string(kubeconfig)}}
	have, err := s.kube.Get(ctx, kube.Secrets, namespace, secretName(runtimeID))
	switch {
	case kube.IsNotFound(err):
		secret := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "stringData": content["stringData"],
			"metadata": map[string]any{
				"name": secretName(runtimeID), "namespace": namespace, "labels": labels, "annotations": annotations,
			},
		}}
		return s.kube.Create(ctx, kube.Secrets, secret)
	case err != nil:
		return err
	}
	held, _, _ := unstructured.NestedString(have.Object, "data", configKey)
	if held == base64.StdEncoding.EncodeToString(kubeconfig) && isMarked(have, labels, annotations) {
		return nil
	}
	return s.mark(ctx, kube.Secrets, have, labels, annotations, content)
}
