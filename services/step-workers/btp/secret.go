package btp

import (
	"context"
	"encoding/base64"
	"log/slog"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
)

// The Secret of btp-manager (docs/contracts/btp.md#secret-of-btp-manager).
const (
	secretNamespace = "kyma-system"
	secretName      = "sap-btp-manager" //nolint:gosec // a name
	secretType      = "Opaque"

	managedByLabel = "app.kubernetes.io/managed-by"
	watchedByLabel = "app.kubernetes.io/watched-by"
	broker         = "kcp-kyma-environment-broker"
	// skipLabel is the label, with the value "true", of a Secret with the customer's own credentials.
	skipLabel = "kyma-project.io/skip-reconciliation"
)

// secret returns the wanted Secret.
func secret(c event.ServiceManagerCredentials, clusterID string) *unstructured.Unstructured {
	data := map[string]any{}
	for key, value := range map[string]string{
		"clientid": c.ClientID, "clientsecret": c.ClientSecret, "sm_url": c.SMURL, "tokenurl": c.URL, "cluster_id": clusterID,
	} {
		data[key] = base64.StdEncoding.EncodeToString([]byte(value))
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": secretType, "data": data,
		"metadata": map[string]any{
			"name": secretName, "namespace": secretNamespace,
			"labels":      map[string]any{managedByLabel: broker, watchedByLabel: broker},
			"annotations": map[string]any{"Warning": "This secret is generated. Do not edit!"},
		},
	}}
}

// write creates the Secret in the runtime, or updates it so that it has no other keys. It reports kept for a Secret that the customer
// manages, and does not change it.
func write(ctx context.Context, runtime *kube.Client, want *unstructured.Unstructured, log *slog.Logger) (kept bool, err error) {
	have, err := runtime.Get(ctx, kube.Secrets, secretNamespace, secretName)
	if kube.IsNotFound(err) {
		if err := runtime.Create(ctx, kube.Namespaces, namespace()); err != nil && !kube.IsConflict(err) {
			return false, err
		}
		return false, runtime.Create(ctx, kube.Secrets, want)
	}
	if err != nil {
		return false, err
	}
	if isCustomerManaged(have) {
		return true, nil
	}
	if by := have.GetLabels()[managedByLabel]; by != broker {
		log.Warn("overwriting a secret with another manager", "secret", secretNamespace+"/"+secretName, "managed_by", by)
	}
	if isImmutable(have) {
		if err := runtime.Delete(ctx, kube.Secrets, secretNamespace, secretName); err != nil {
			return false, err
		}
		return false, runtime.Create(ctx, kube.Secrets, want)
	}
	return false, runtime.Turn(ctx, kube.Secrets, have, want)
}

// isCustomerManaged reports whether the customer manages the Secret.
func isCustomerManaged(s *unstructured.Unstructured) bool { return s.GetLabels()[skipLabel] == "true" }

// isImmutable reports whether Kubernetes rejects changes of the Secret: of an immutable Secret, or of its type.
func isImmutable(s *unstructured.Unstructured) bool {
	kind, _, _ := unstructured.NestedString(s.Object, "type")
	immutable, _, _ := unstructured.NestedBool(s.Object, "immutable")
	return immutable || kind != "" && kind != secretType
}

// withdraw deletes the Secret from the runtime, unless another manager owns it.
func withdraw(ctx context.Context, runtime *kube.Client) error {
	have, err := runtime.Get(ctx, kube.Secrets, secretNamespace, secretName)
	if kube.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if isCustomerManaged(have) || have.GetLabels()[managedByLabel] != broker {
		return nil
	}
	return runtime.Delete(ctx, kube.Secrets, secretNamespace, secretName)
}

func namespace() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": secretNamespace},
	}}
}
