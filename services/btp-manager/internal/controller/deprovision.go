package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
	"github.com/kyma-project/keb/services/btp-manager/internal/machine"
	"github.com/kyma-project/keb/services/btp-manager/internal/metric"
	"github.com/kyma-project/keb/services/btp-manager/internal/operand"
	"github.com/kyma-project/keb/services/btp-manager/internal/services"
)

// deprovision performs the next part of a deprovisioning. The status records the progress, so that a restart has no effect.
func (p *pass) deprovision(ctx context.Context) (time.Duration, error) {
	if p.cr.Status.Deprovisioning == nil || p.at() == (machine.At{}) {
		if wait, err := p.begin(ctx); wait != 0 || err != nil {
			return wait, err
		}
	}
	p.deps.Metrics.NotReady()
	switch p.cr.Status.Deprovisioning.Phase {
	case v1alpha1.PhaseHardDelete:
		return p.hardDelete(ctx)
	case v1alpha1.PhaseSoftDelete:
		return p.softDelete(ctx)
	default:
		return p.remove(ctx)
	}
}

// begin starts the deprovisioning, unless service instances or bindings block it, or might block it because the settings are unknown. It returns
// no wait if it has started.
func (p *pass) begin(ctx context.Context) (time.Duration, error) {
	begun := p.cr.Status.Deprovisioning != nil
	if (p.cfg.BlockDeletion || p.rejected != nil) && !begun && p.cr.Labels[v1alpha1.ForceDeleteLabel] != "true" {
		left, err := p.deps.Services(p.cfg).Count(ctx)
		if err != nil {
			return 0, err
		}
		p.deps.Metrics.Left(left.Instances, left.Bindings)
		if !left.None() {
			// Users need a working operand to delete them.
			message := p.keepOperand(ctx)
			if p.rejected != nil {
				message += p.rejected.Error() + ". The deletion waits until the ConfigMap is valid, because it may set BlockDeletion: correct or delete it. "
			}
			message += fmt.Sprintf("%s. Delete them, or set the label %s: \"true\" to have them deleted", remaining(left), v1alpha1.ForceDeleteLabel)
			return p.cfg.ProcessingStateRequeueInterval, p.move(ctx, machine.DeletionBlocked, message, nil)
		}
	}
	return 0, p.move(ctx, machine.DeletionStarted, "service bindings and service instances are being deleted", func(s *v1alpha1.BtpOperatorStatus) {
		now := p.deps.Now()
		s.ReadyDeadline = nil
		if s.Deprovisioning == nil {
			s.Deprovisioning = &v1alpha1.Deprovisioning{
				Phase: v1alpha1.PhaseHardDelete, StartedAt: metav1.NewTime(now), HardDeleteDeadline: metav1.NewTime(now.Add(p.cfg.HardDeleteTimeout)),
			}
		}
	})
}

// hardDelete deletes the users' objects and lets the operand clean up the remote side, until the deadline.
func (p *pass) hardDelete(ctx context.Context) (time.Duration, error) {
	if p.cfg.OperandFirst {
		if err := p.deps.Objects.RemoveWorkload(ctx); err != nil {
			return p.removalFailed(ctx, err)
		}
	}
	until := p.cr.Status.Deprovisioning.HardDeleteDeadline
	late := !p.deps.Now().Before(until.Time)
	left, err := p.deps.Services(p.cfg).HardDelete(ctx)
	_, refused := errors.AsType[*services.RefusedError](err)
	if err == nil {
		p.deps.Metrics.Left(left.Instances, left.Bindings)
	} else if !refused {
		left = last(p.cr.Status.Deprovisioning)
	}
	switch {
	case err == nil && left.None():
		if err := p.enter(ctx, v1alpha1.PhaseRemoval, machine.DeletionStarted, "the operand is being removed", left); err != nil {
			return 0, err
		}
		p.deps.Metrics.Deleted(metric.Hard, metric.Done)
		return p.remove(ctx)
	case refused || late && err != nil:
		return p.giveUp(ctx, failure(err), machine.HardDeleteFailed, "the hard delete failed: "+err.Error(), left)
	case late:
		return p.giveUp(ctx, metric.TimedOut, machine.HardDeleteTimedOut, "the hard delete ran out of time: "+remaining(left), left)
	}
	message := "the hard delete goes on until " + until.UTC().Format(time.RFC3339)
	if err == nil {
		message = remaining(left) + "; " + message
	} else {
		// The soft delete abandons the remote side, so only a rejected deletion or the deadline may cause it. Do not return an error either, because
		// the pauses after errors could exceed the deadline.
		log.FromContext(ctx).Info("the hard delete is delayed", "err", err.Error())
		message += "; the last attempt failed: " + err.Error()
	}
	if !p.cfg.OperandFirst {
		message = p.keepOperand(ctx) + message
	}
	return p.before(until), p.enter(ctx, v1alpha1.PhaseHardDelete, machine.DeletionStarted, message, left)
}

// before returns the wait until the next check, at most until the deadline. If the deadline passed during this pass, it returns a short
// wait, because 0 would mean no further pass.
func (p *pass) before(deadline metav1.Time) time.Duration {
	return min(p.cfg.HardDeleteCheckInterval, max(deadline.Sub(p.deps.Now()), time.Millisecond))
}

// giveUp switches from the hard delete to the soft delete.
func (p *pass) giveUp(ctx context.Context, how metric.End, event machine.Event, message string, left services.Left) (time.Duration, error) {
	if err := p.enter(ctx, v1alpha1.PhaseSoftDelete, event, message, left); err != nil {
		return 0, err
	}
	p.deps.Metrics.Deleted(metric.Hard, how) // only after the status is written: otherwise the next pass would count it again
	return soon, nil
}

// softDelete removes the finalizers of the remaining objects. It first removes the operand and its webhooks, which would interfere.
func (p *pass) softDelete(ctx context.Context) (time.Duration, error) {
	if err := p.deps.Objects.RemoveWorkload(ctx); err != nil {
		return p.removalFailed(ctx, err)
	}
	left, err := p.deps.Services(p.cfg).SoftDelete(ctx)
	if err != nil {
		if !temporary(err) && p.at().State == v1alpha1.StateDeleting {
			p.deps.Metrics.Deleted(metric.Soft, failure(err))
		}
		return p.removalFailed(ctx, err)
	}
	p.deps.Metrics.Left(left.Instances, left.Bindings)
	if !left.None() {
		message := "the soft delete goes on: " + remaining(left)
		wait := p.pause(message)
		return wait, p.setPhase(ctx, v1alpha1.PhaseSoftDelete, left, message)
	}
	if err := p.setPhase(ctx, v1alpha1.PhaseRemoval, left, ""); err != nil {
		return 0, err
	}
	p.deps.Metrics.Deleted(metric.Soft, metric.Done)
	return p.remove(ctx)
}

// remove removes the objects of the chart, and then the finalizer of the BtpOperator. It also deletes objects that users have created
// meanwhile, without the operand, which may be removed.
func (p *pass) remove(ctx context.Context) (time.Duration, error) {
	left, err := p.deps.Services(p.cfg).Count(ctx)
	if err != nil {
		return p.removalFailed(ctx, err)
	}
	if !left.None() {
		if p.at().Reason == v1alpha1.ReasonSoftDeleting {
			return soon, p.setPhase(ctx, v1alpha1.PhaseSoftDelete, left, "")
		}
		message := "made while the operand was being removed: " + remaining(left)
		return soon, p.enter(ctx, v1alpha1.PhaseSoftDelete, machine.HardDeleteFailed, message, left)
	}
	// The default values render every object of the operand.
	objects, err := p.deps.Chart.Render(p.release(), nil)
	if err != nil {
		return p.removalFailed(ctx, err)
	}
	waiting, err := p.deps.Objects.Remove(ctx, objects, p.keep)
	if err != nil {
		return p.removalFailed(ctx, err)
	}
	if len(waiting) > 0 {
		log.FromContext(ctx).V(1).Info("waiting for objects to be removed", "objects", len(waiting), "first", waiting[0].String())
		message := "the operand is being removed: " + describe(waiting)
		wait := p.pause(message)
		return wait, p.writeMessage(ctx, message)
	}
	mode := metric.Hard
	if p.cr.Status.Deprovisioning.SoftDeleted {
		mode = metric.Soft
	}
	if err := p.finalize(ctx, controllerutil.RemoveFinalizer); err != nil {
		return 0, err
	}
	log.FromContext(ctx).Info("deprovisioned", "mode", string(mode))
	p.deps.Metrics.Expires(metric.CertificateCA, time.Time{})
	p.deps.Metrics.Expires(metric.CertificateServing, time.Time{})
	p.deps.Metrics.Deprovisioned(mode, p.deps.Now().Sub(p.cr.Status.Deprovisioning.StartedAt.Time))
	return 0, nil
}

// pause returns the wait until the next pass of a soft delete or a removal: a short one while its message changes, which is a sign of progress.
func (p *pass) pause(message string) time.Duration {
	c := meta.FindStatusCondition(p.cr.Status.Conditions, v1alpha1.ConditionReady)
	if c != nil && c.Message == clip(message) {
		return p.cfg.HardDeleteCheckInterval
	}
	return soon
}

// keep reports whether an object is an input of BTP Manager, whatever its labels: the credentials and the settings.
func (p *pass) keep(ref operand.Ref) bool {
	return ref.Namespace == p.cfg.ChartNamespace &&
		(ref.Kind == "Secret" && ref.Name == p.cfg.SecretName || ref.Kind == "ConfigMap" && ref.Name == p.cfg.ConfigName)
}

// removalFailed reports the cause. The returned error causes a retry with growing pauses.
func (p *pass) removalFailed(ctx context.Context, cause error) (time.Duration, error) {
	if temporary(cause) {
		return 0, errors.Join(cause, p.writeMessage(ctx, "tried again: "+cause.Error()))
	}
	return 0, errors.Join(cause, p.move(ctx, machine.RemovalFailed, cause.Error(), nil))
}

// enter writes the phase and the remaining objects together with the transition.
func (p *pass) enter(
	ctx context.Context, phase v1alpha1.DeprovisioningPhase, event machine.Event, message string, left services.Left,
) error {
	return p.move(ctx, event, message, func(s *v1alpha1.BtpOperatorStatus) { s.Deprovisioning = at(s.Deprovisioning, phase, left) })
}

// setPhase writes the phase, the remaining objects and, unless it is empty, the message. The state stays.
func (p *pass) setPhase(ctx context.Context, phase v1alpha1.DeprovisioningPhase, left services.Left, message string) error {
	base := p.cr.DeepCopy()
	p.cr.Status.Deprovisioning = at(p.cr.Status.Deprovisioning, phase, left)
	p.setMessage(message)
	return p.writeStatus(ctx, base)
}

// writeMessage writes the message. The state stays.
func (p *pass) writeMessage(ctx context.Context, message string) error {
	base := p.cr.DeepCopy()
	p.setMessage(message)
	return p.writeStatus(ctx, base)
}

func (p *pass) setMessage(message string) {
	if c := meta.FindStatusCondition(p.cr.Status.Conditions, v1alpha1.ConditionReady); c != nil && message != "" {
		c.Message = clip(message)
	}
}

func at(d *v1alpha1.Deprovisioning, phase v1alpha1.DeprovisioningPhase, left services.Left) *v1alpha1.Deprovisioning {
	next := *d
	next.SoftDeleted = next.SoftDeleted || phase == v1alpha1.PhaseSoftDelete
	next.Phase, next.ServiceInstances, next.ServiceBindings = phase, int32(left.Instances), int32(left.Bindings)
	return &next
}

// last returns the numbers of the last count.
func last(d *v1alpha1.Deprovisioning) services.Left {
	return services.Left{Instances: int(d.ServiceInstances), Bindings: int(d.ServiceBindings)}
}

// keepOperand keeps the operand in line with its chart and the Secret while users or the hard delete need it. A failure does not stop the
// deprovisioning. keepOperand returns it as the beginning of a message, because clip removes the end of a long one.
func (p *pass) keepOperand(ctx context.Context) string {
	given, _, err := p.credentials(ctx)
	if err == nil {
		_, err = p.reconcileOperand(ctx, given)
	}
	if err == nil {
		return ""
	}
	log.FromContext(ctx).Info("the operand could not be reconciled during the deprovisioning", "err", err.Error())
	return "the operand could not be reconciled: " + err.Error() + "; "
}

func failure(err error) metric.End {
	if _, ok := errors.AsType[*services.RefusedError](err); ok {
		return metric.Refused
	}
	return metric.Broken
}

// remaining describes the remaining objects, with the names of the first ones.
func remaining(left services.Left) string {
	text := fmt.Sprintf("%s and %s left", plural(left.Instances, "service instance"), plural(left.Bindings, "service binding"))
	if len(left.First) > 0 {
		text += " (" + strings.Join(left.First, "; ") + ")"
	}
	return text
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
