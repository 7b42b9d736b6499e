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

// The operand's copies of the credentials (docs/contracts/btp-manager.md#credentials-and-cluster-id).
const (
	operandConfig    = "sap-btp-operator-config"
	clusterIDKey     = "CLUSTER_ID"
	namespaceKey     = "MANAGEMENT_NAMESPACE"
	initialClusterID = "sap-btp-operator-clusterid"
	initialKey       = "INITIAL_CLUSTER_ID"
	// restarter is the field manager of `kubectl rollout restart`. Package operand keeps its annotation.
	restarter = client.FieldOwner("kubectl-rollout")
)

// followCredentials returns whether the Secret has another credentials namespace or cluster ID than the operand. It moves a Ready BtpOperator
// to the state for that, unless the BtpOperator is being deleted. It deletes the operand's records in a namespace that the operand leaves.
func (p *pass) followCredentials(ctx context.Context, given credentials.Credentials) (moved bool, err error) {
	var has corev1.ConfigMap
	err = p.deps.Client.Get(ctx, client.ObjectKey{Namespace: p.cfg.ChartNamespace, Name: operandConfig}, &has)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read the operand's ConfigMap: %w", err)
	}
	namespace := given.Namespace
	if namespace == "" {
		namespace = p.cfg.ChartNamespace
	}
	ready := p.at().State == v1alpha1.StateReady && p.cr.DeletionTimestamp.IsZero()
	if old := has.Data[namespaceKey]; old != "" && old != namespace {
		// This must happen before the ConfigMap changes, which contains the old namespace.
		if _, err := p.forget(ctx, old, ""); err != nil {
			return false, err
		}
		moved = true
		if ready {
			return true, p.move(ctx, machine.CredentialsMoved, fmt.Sprintf("the credentials move from namespace %q to %q", old, namespace), p.restartClock)
		}
	}
	if old := has.Data[clusterIDKey]; old != "" && old != given.ClusterID {
		moved = true
		if ready {
			return true, p.move(ctx, machine.ClusterIDChanged, fmt.Sprintf("the cluster ID changes from %q to %q", old, given.ClusterID), p.restartClock)
		}
	}
	return moved, nil
}

// unblock helps an operand that does not start because of another cluster ID: the operand exits if its ID differs from the one recorded at
// its first start (docs/contracts/btp-manager.md#credentials-and-cluster-id). It records the ID beside its credentials, and reads it in
// its own namespace. unblock ignores a running operand.
func (p *pass) unblock(ctx context.Context, given credentials.Credentials, unready []operand.NotReady) error {
	for _, n := range unready {
		if n.Kind != "Deployment" {
			continue
		}
		forgotten := false
		for _, namespace := range []string{p.cfg.ChartNamespace, given.Namespace} {
			if namespace == "" {
				continue
			}
			removed, err := p.forget(ctx, namespace, given.ClusterID)
			if err != nil {
				return err
			}
			forgotten = forgotten || removed
		}
		if !forgotten {
			return nil
		}
		return p.restart(ctx, n.Ref)
	}
	return nil
}

// forget deletes the cluster ID that the operand recorded in a namespace, unless it is equal to unless. It reports whether it deleted
// one.
func (p *pass) forget(ctx context.Context, namespace, unless string) (bool, error) {
	key := client.ObjectKey{Namespace: namespace, Name: initialClusterID}
	var noted corev1.Secret
	if err := p.deps.Client.Get(ctx, key, &noted); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return false, nil
		}
		return false, fmt.Errorf("read the Secret %s: %w", key, err)
	}
	if unless != "" && string(noted.Data[initialKey]) == unless {
		return false, nil
	}
	err := p.deps.Client.Delete(ctx, &noted, client.Preconditions{UID: &noted.UID})
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("delete the Secret %s, which holds another cluster ID: %w", key, err)
	}
	log.FromContext(ctx).Info("cluster ID of an earlier start removed", "secret", key.String())
	p.note(corev1.EventTypeNormal, "ClusterIDRemoved", fmt.Sprintf("the Secret %s held the cluster ID of an earlier start", key))
	return true, nil
}

// restart replaces the operand's pods, like `kubectl rollout restart`.
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
