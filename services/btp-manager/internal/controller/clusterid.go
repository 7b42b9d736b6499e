package controller

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
	"github.com/kyma-project/keb/services/btp-manager/internal/credentials"
	"github.com/kyma-project/keb/services/btp-manager/internal/machine"
	"github.com/kyma-project/keb/services/btp-manager/internal/operand"
)

// What the operand has of the credentials (facts/btp-manager.md 2.8, 4).
const (
	operandConfig    = "sap-btp-operator-config"
	clusterIDKey     = "CLUSTER_ID"
	namespaceKey     = "MANAGEMENT_NAMESPACE"
	initialClusterID = "sap-btp-operator-clusterid"
	initialKey       = "INITIAL_CLUSTER_ID"
	// restarter is the field manager of `kubectl rollout restart`, whose annotation package operand leaves alone.
	restarter = client.FieldOwner("kubectl-rollout")
)

// followCredentials says when the Secret names another credentials namespace or cluster ID than the operand has.
func (p *pass) followCredentials(ctx context.Context, given credentials.Credentials) error {
	if p.at().State != v1alpha1.StateReady {
		return nil
	}
	var has corev1.ConfigMap
	err := p.deps.Client.Get(ctx, client.ObjectKey{Namespace: p.cfg.ChartNamespace, Name: operandConfig}, &has)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read the operand's ConfigMap: %w", err)
	}
	namespace := given.Namespace
	if namespace == "" {
		namespace = p.cfg.ChartNamespace
	}
	if old := has.Data[namespaceKey]; old != "" && old != namespace {
		return p.move(ctx, machine.CredentialsMoved, fmt.Sprintf("the credentials move from namespace %q to %q", old, namespace), p.restartClock)
	}
	if old := has.Data[clusterIDKey]; old != "" && old != given.ClusterID {
		return p.move(ctx, machine.ClusterIDChanged, fmt.Sprintf("the cluster ID changes from %q to %q", old, given.ClusterID), p.restartClock)
	}
	return nil
}

// unblock helps an operand that does not start because it remembers another cluster ID: it ends at once when the one that it
// noted at its first start differs (facts/btp-manager.md 7, row 15). A running operand is left alone.
func (p *pass) unblock(ctx context.Context, given credentials.Credentials, unready []operand.NotReady) error {
	for _, n := range unready {
		if n.Ref.Kind != "Deployment" {
			continue
		}
		key := client.ObjectKey{Namespace: given.Namespace, Name: initialClusterID}
		if key.Namespace == "" {
			key.Namespace = p.cfg.ChartNamespace
		}
		var noted corev1.Secret
		if err := p.deps.Client.Get(ctx, key, &noted); err != nil {
			return client.IgnoreNotFound(err)
		}
		if string(noted.Data[initialKey]) == given.ClusterID {
			return nil
		}
		precondition := client.Preconditions{UID: &noted.UID}
		if err := p.deps.Client.Delete(ctx, &noted, precondition); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete the Secret %s, which holds another cluster ID: %w", key, err)
		}
		log.FromContext(ctx).Info("cluster ID of an earlier start removed", "secret", key.String())
		p.note(corev1.EventTypeNormal, "ClusterIDRemoved", fmt.Sprintf("the Secret %s held another cluster ID and kept the operand from starting", key))
		return p.restart(ctx, n.Ref)
	}
	return nil
}

// restart replaces the operand's pods, as `kubectl rollout restart` does.
func (p *pass) restart(ctx context.Context, ref operand.Ref) error {
	deployment := &appsv1.Deployment{}
	deployment.Namespace, deployment.Name = ref.Namespace, ref.Name
	patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":%q}}}}}`,
		p.deps.Now().UTC().Format(time.RFC3339))
	err := p.deps.Client.Patch(ctx, deployment, client.RawPatch(types.MergePatchType, patch), restarter)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("restart %s: %w", ref, err)
	}
	return nil
}
