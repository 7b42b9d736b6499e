package controller

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
	"github.com/kyma-project/keb/services/btp-manager/internal/config"
	"github.com/kyma-project/keb/services/btp-manager/internal/machine"
)

// soon is the wait for the end of a short action, such as the removal of an object.
const soon = time.Second

// Reconcile implements reconcile.Reconciler. It reads the state of the cluster, performs what is possible now, and never blocks: it checks
// longer actions again after a while or after an event.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var all v1alpha1.BtpOperatorList
	if err := r.deps.Client.List(ctx, &all); err != nil {
		return reconcile.Result{}, fmt.Errorf("list BtpOperators: %w", err)
	}
	defer func() { r.deps.Metrics.BtpOperators(all.Items) }()
	cfg, rejected, err := r.deps.Settings.Read(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	for i := range all.Items {
		cr := &all.Items[i]
		if client.ObjectKeyFromObject(cr) != req.NamespacedName {
			continue
		}
		started := r.deps.Now()
		p := &pass{Reconciler: r, cr: cr, cfg: cfg, rejected: rejected}
		before := p.at().State
		after, err := p.run(ctx, all.Items)
		r.deps.Metrics.Reconciled(before, r.deps.Now().Sub(started), err)
		switch {
		case ctx.Err() != nil:
			return reconcile.Result{}, nil // BTP Manager stops; the next one continues
		case apierrors.IsConflict(err) && temporary(err):
			// Another client changed the object; the next pass reads it again.
			log.FromContext(ctx).V(1).Info("something changed meanwhile", "err", err.Error())
			after, err = soon, nil
		}
		return reconcile.Result{RequeueAfter: after}, err
	}
	return reconcile.Result{}, nil
}

// pass is one reconciliation of one BtpOperator.
type pass struct {
	*Reconciler
	cr  *v1alpha1.BtpOperator
	cfg config.Config
	// rejected is the reason why cfg may lack settings of the ConfigMap, or nil.
	rejected error
}

func (p *pass) run(ctx context.Context, all []v1alpha1.BtpOperator) (time.Duration, error) {
	deleting, ours := !p.cr.DeletionTimestamp.IsZero(), controllerutil.ContainsFinalizer(p.cr, v1alpha1.Finalizer)
	if deleting && !ours {
		return 0, nil
	}
	if leader := Leader(all); leader.UID != p.cr.UID {
		return p.follow(ctx, leader, deleting, ours)
	}
	if deleting {
		return p.deprovision(ctx)
	}
	return p.provision(ctx)
}

// follow handles a BtpOperator that does not lead. It removes its finalizer, because the operand belongs to the
// leader.
func (p *pass) follow(ctx context.Context, leader *v1alpha1.BtpOperator, deleting, ours bool) (time.Duration, error) {
	if ours {
		if err := p.finalize(ctx, controllerutil.RemoveFinalizer); err != nil {
			return 0, err
		}
	}
	if deleting {
		return 0, nil
	}
	message := fmt.Sprintf("BtpOperator %q in namespace %q is older and leads", leader.Name, leader.Namespace)
	return p.cfg.ReadyStateRequeueInterval, p.move(ctx, machine.OlderExists, message, func(s *v1alpha1.BtpOperatorStatus) {
		s.ReadyDeadline, s.ChartVersion, s.Deprovisioning = nil, "", nil
	})
}

// finalize adds or removes the finalizer.
func (p *pass) finalize(ctx context.Context, change func(client.Object, string) bool) error {
	base := p.cr.DeepCopy()
	if !change(p.cr, v1alpha1.Finalizer) {
		return nil
	}
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	if err := p.deps.Client.Patch(ctx, p.cr, patch); err != nil {
		return fmt.Errorf("set the finalizers of BtpOperator %s: %w", client.ObjectKeyFromObject(p.cr), err)
	}
	return nil
}

// at returns the position of the BtpOperator. A status that this version does not write, or not for this BtpOperator, counts as none: users
// can edit it, and backups restore it.
func (p *pass) at() machine.At {
	c := meta.FindStatusCondition(p.cr.Status.Conditions, v1alpha1.ConditionReady)
	if c == nil {
		return machine.At{}
	}
	m, ok := v1alpha1.Reason(c.Reason).Meaning()
	if !ok || m.State != p.cr.Status.State {
		return machine.At{}
	}
	deleting, begun := !p.cr.DeletionTimestamp.IsZero(), p.cr.Status.Deprovisioning != nil
	possible := true
	switch m.State {
	case v1alpha1.StateProcessing:
		possible = p.cr.Status.ReadyDeadline != nil && !begun
	case v1alpha1.StateReady:
		possible = !begun
	case v1alpha1.StateError:
		possible = !begun || m.Reason == v1alpha1.ReasonResourceRemovalFailed
	case v1alpha1.StateWarning:
		possible = deleting && !begun
	case v1alpha1.StateDeleting:
		possible = deleting && begun
	}
	if !possible {
		return machine.At{}
	}
	return machine.At{State: m.State, Reason: m.Reason}
}

// move performs the transition of an event and writes the status, unless it is unchanged. message is for the user and must contain no
// secret.
func (p *pass) move(ctx context.Context, event machine.Event, message string, change func(*v1alpha1.BtpOperatorStatus)) error {
	from := p.at()
	to, err := machine.Next(from, event)
	if err != nil {
		return reconcile.TerminalError(err)
	}
	m, _ := to.Reason.Meaning()
	base := p.cr.DeepCopy()
	if change != nil {
		change(&p.cr.Status)
	}
	p.cr.Status.State = to.State
	for _, c := range p.cr.Status.Conditions {
		if c.Type != v1alpha1.ConditionReady {
			p.cr.Status.Conditions = nil // from another version of the API: there must be one condition
			break
		}
	}
	condition := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: m.Status, Reason: string(to.Reason), Message: clip(message), ObservedGeneration: p.cr.Generation,
	}
	if from != to {
		condition.LastTransitionTime = metav1.NewTime(p.deps.Now())
		// A new reason is a transition for the user, even if the condition's status stays False.
		p.cr.Status.Conditions = nil
	}
	meta.SetStatusCondition(&p.cr.Status.Conditions, condition)
	if err := p.writeStatus(ctx, base); err != nil {
		return err
	}
	if from != to {
		log.FromContext(ctx).Info("state changed", "from", from.String(), "to", to.String(), "event", string(event), "message", condition.Message)
		p.announce(to, string(event), condition.Message)
	}
	return nil
}

// writeStatus writes the differences from base.
func (p *pass) writeStatus(ctx context.Context, base *v1alpha1.BtpOperator) error {
	if equality.Semantic.DeepEqual(base.Status, p.cr.Status) {
		return nil
	}
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	if err := p.deps.Client.Status().Patch(ctx, p.cr, patch); err != nil {
		return fmt.Errorf("write the status of BtpOperator %s: %w", client.ObjectKeyFromObject(p.cr), err)
	}
	return nil
}
