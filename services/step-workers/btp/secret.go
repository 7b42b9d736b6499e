package btp

import (
	"context"
	"encoding/base64"
	"log/slog"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/keb/services/step-workers/internal/kube"
)

// The Secret that btp-manager reads (docs/contracts/btp.md#secret-of-btp-manager).
const (
	secretNamespace = "kyma-system"
	secretName      = "sap-btp-manager" //nolint:gosec // a name
	secretType      = "Opaque"

	managedByLabel = "app.kubernetes.io/managed-by"
	watchedByLabel = "app.kubernetes.io/watched-by"
	broker         = "kcp-kyma-environment-broker"
	// skipLabel is put on the Secret, with the value "true", by customers who bring credentials of their own.
	skipLabel = "kyma-project.io/skip-reconciliation"
)

// secret is how the Secret is to be.
func secret(c credentials, clusterID string) *unstructured.Unstructured {
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

// write makes the Secret in the runtime be as want, with no other keys, or leaves it alone when its label asks for that
// (kept).
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
	if theirs(have) {
		return true, nil
	}
	if by := have.GetLabels()[managedByLabel]; by != broker {
		log.Warn("secret of somebody else is overwritten", "secret", secretNamespace+"/"+secretName, "managed_by", by)
	}
	if fixed(have) {
		if err := runtime.Delete(ctx, kube.Secrets, secretNamespace, secretName); err != nil {
			return false, err
		}
		return false, runtime.Create(ctx, kube.Secrets, want)
	}
	return false, runtime.Turn(ctx, kube.Secrets, have, want)
}

// theirs tells whether customers keep the Secret themselves.
func theirs(s *unstructured.Unstructured) bool { return s.GetLabels()[skipLabel] == "true" }

// fixed tells whether Kubernetes refuses to change the Secret: its type never changes, and an immutable one not at all.
func fixed(s *unstructured.Unstructured) bool {
	kind, _, _ := unstructured.NestedString(s.Object, "type")
	immutable, _, _ := unstructured.NestedBool(s.Object, "immutable")
	return immutable || kind != "" && kind != secretType
}

// withdraw takes the Secret out of the runtime again, unless it is not ours.
func withdraw(ctx context.Context, runtime *kube.Client) error {
	have, err := runtime.Get(ctx, kube.Secrets, secretNamespace, secretName)
	if kube.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if theirs(have) || have.GetLabels()[managedByLabel] != broker {
		return nil
	}
	return runtime.Delete(ctx, kube.Secrets, secretNamespace, secretName)
}

func namespace() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": secretNamespace},
	}}
}
