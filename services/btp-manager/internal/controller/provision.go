package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
	"github.com/kyma-project/keb/services/btp-manager/internal/certs"
	"github.com/kyma-project/keb/services/btp-manager/internal/credentials"
	"github.com/kyma-project/keb/services/btp-manager/internal/machine"
	"github.com/kyma-project/keb/services/btp-manager/internal/metric"
	"github.com/kyma-project/keb/services/btp-manager/internal/operand"
)

// provision reconciles the operand with the chart and the Secret, and checks whether it is ready.
func (p *pass) provision(ctx context.Context) (time.Duration, error) {
	if err := p.finalize(ctx, controllerutil.AddFinalizer); err != nil {
		return 0, err
	}
	if at := p.at(); at == (machine.At{}) || at.Reason == v1alpha1.ReasonOlderCRExists {
		if err := p.move(ctx, machine.Leads, "provisioning started", p.restartClock); err != nil {
			return 0, err
		}
	}
	given, event, err := p.credentials(ctx)
	if event != "" {
		p.deps.Metrics.NotReady()
		return p.cfg.ProcessingStateRequeueInterval, p.move(ctx, event, err.Error(), nil)
	}
	if err != nil {
		return p.chartFailed(ctx, err)
	}
	if r := p.at().Reason; r == v1alpha1.ReasonMissingSecret || r == v1alpha1.ReasonInvalidSecret {
		if err := p.move(ctx, machine.SecretUsable, "the credentials are there", p.restartClock); err != nil {
			return 0, err
		}
	}
	found, err := p.reconcileOperand(ctx, given)
	if err != nil {
		return p.chartFailed(ctx, err)
	}
	p.troubledSince = time.Time{}
	if len(found.unready) > 0 {
		return p.notReady(ctx, found.unready)
	}
	return p.ready(ctx, found.certificates, found.kept)
}

// operandState is the state of the operand after a reconciliation: its certificates, the obsolete definitions that stay, and the objects that
// are not ready.
type operandState struct {
	certificates certs.Result
	kept         []*operand.InUseError
	unready      []operand.NotReady
}

// reconcileOperand brings the operand in line with its chart and the Secret, and helps it to start with changed credentials.
func (p *pass) reconcileOperand(ctx context.Context, given credentials.Credentials) (operandState, error) {
	objects, certificates, err := p.operand(ctx, given)
	if err != nil {
		return operandState{}, err
	}
	moved, err := p.followCredentials(ctx, given)
	if err != nil {
		return operandState{}, err
	}
	applied, err := p.deps.Objects.Apply(ctx, objects)
	p.corrected(ctx, applied, moved)
	if err != nil {
		return operandState{}, err
	}
	unready, err := p.deps.Objects.Unready(ctx, objects)
	if err != nil {
		return operandState{}, err
	}
	p.deps.Metrics.NotReady(kinds(unready)...)
	return operandState{certificates, applied.Kept, unready}, p.unblock(ctx, given, unready)
}

// restartClock sets the deadline by which the objects of the chart must be ready. It clears the progress of a deprovisioning that a backup
// may have restored, because that deadline would have passed.
func (p *pass) restartClock(s *v1alpha1.BtpOperatorStatus) {
	at := metav1.NewTime(p.deps.Now().Add(p.cfg.ReadyTimeout))
	s.ReadyDeadline, s.Deprovisioning = &at, nil
}

// inTime reports whether the deadline of the chart's objects has not passed.
func (p *pass) inTime() bool {
	at := p.cr.Status.ReadyDeadline
	return p.at().State == v1alpha1.StateProcessing && at != nil && p.deps.Now().Before(at.Time)
}

// credentials reads the Secret. If it is unusable, it returns an event, and an error for the user.
func (p *pass) credentials(ctx context.Context) (credentials.Credentials, machine.Event, error) {
	var secret corev1.Secret
	key := client.ObjectKey{Namespace: p.cfg.ChartNamespace, Name: p.cfg.SecretName}
	err := p.deps.Client.Get(ctx, key, &secret)
	if apierrors.IsNotFound(err) {
		return credentials.Credentials{}, machine.SecretMissing, fmt.Errorf("the Secret %s with the credentials does not exist", key)
	}
	if err != nil {
		return credentials.Credentials{}, "", fmt.Errorf("read the Secret %s: %w", key, err)
	}
	given, err := credentials.Parse(&secret)
	if err != nil {
		return credentials.Credentials{}, machine.SecretInvalid, fmt.Errorf("the Secret %s cannot be used: %w", key, err)
	}
	return given, "", nil
}

// operand renders the objects of the chart. It also renews the certificates of their webhooks.
func (p *pass) operand(ctx context.Context, given credentials.Credentials) ([]*unstructured.Unstructured, certs.Result, error) {
	certificates, err := p.deps.Certificates(p.cfg).Ensure(ctx)
	for _, name := range certificates.Regenerated {
		p.deps.Metrics.Regenerated(name)
		log.FromContext(ctx).Info("certificate made", "certificate", name)
	}
	if err != nil {
		return nil, certs.Result{}, err
	}
	p.deps.Metrics.Expires(metric.CertificateCA, certificates.CANotAfter)
	p.deps.Metrics.Expires(metric.CertificateServing, certificates.ServingNotAfter)
	objects, err := p.render(given, certificates.CABundle)
	return objects, certificates, err
}

// settled reports whether the operand has already been complete with this version of the chart, and no change was requested since. With
// this version, the reason Initialized means that a later pass has found a problem in a BtpOperator that was Ready. During a deletion the
// operand only follows the Secret.
func (p *pass) settled() bool {
	if p.cr.Status.ChartVersion != p.deps.Chart.Version() {
		return false
	}
	at := p.at()
	return at.State == v1alpha1.StateReady || at.Reason == v1alpha1.ReasonInitialized || !p.cr.DeletionTimestamp.IsZero()
}

// corrected reports the drift that a pass has corrected. It ignores the first passes, and passes in which the credentials namespace or the
// cluster ID has changed.
func (p *pass) corrected(ctx context.Context, applied operand.Applied, moved bool) {
	logger := log.FromContext(ctx)
	settled := p.settled() && !moved
	for _, change := range applied.Changed {
		logger.Info("object applied", "object", change.String())
		if settled {
			p.deps.Metrics.Drift(change.Kind)
		}
	}
	for _, ref := range applied.Removed {
		logger.Info("obsolete object removed", "object", ref.String())
	}
	p.deps.Metrics.Removed(len(applied.Removed))
	if settled && len(applied.Changed) > 0 {
		names := make([]string, 0, len(applied.Changed))
		for _, change := range applied.Changed {
			names = append(names, change.String())
		}
		p.note(corev1.EventTypeNormal, "DriftCorrected", "brought back to the chart: "+strings.Join(names, ", "))
	}
}

// chartFailed waits for temporary errors, and reports all others immediately. The returned error causes a retry with growing
// pauses.
func (p *pass) chartFailed(ctx context.Context, cause error) (time.Duration, error) {
	if temporary(cause) && (p.isBrief(cause) || p.inTime()) {
		return 0, cause
	}
	return 0, errors.Join(cause, p.move(ctx, machine.ChartFailed, cause.Error(), nil))
}

// isBrief reports whether a temporary problem has lasted less than the time that objects have to get ready. A Ready BtpOperator has no
// deadline in its status: a restart of the API server is no reason to write one. Conflicts may be brief in every state: a single
// one does not prove that the operand is broken, even after the deadline.
func (p *pass) isBrief(cause error) bool {
	if p.at().State != v1alpha1.StateReady && !apierrors.IsConflict(cause) {
		return false
	}
	if p.troubledSince.IsZero() {
		p.troubledSince = p.deps.Now()
	}
	return p.deps.Now().Sub(p.troubledSince) < p.cfg.ReadyTimeout
}

// notReady waits until the deadline. A BtpOperator in Error stays there until its objects are ready.
func (p *pass) notReady(ctx context.Context, unready []operand.NotReady) (time.Duration, error) {
	message := describe(unready)
	switch {
	case p.at().State == v1alpha1.StateReady:
		return p.cfg.ReadyCheckInterval, p.move(ctx, machine.ObjectsNotReady, message, p.restartClock)
	case p.inTime():
		left := p.cr.Status.ReadyDeadline.Sub(p.deps.Now())
		return min(p.cfg.ReadyCheckInterval, max(left, time.Millisecond)), p.move(ctx, machine.ObjectsNotReady, message, nil)
	default:
		message = fmt.Sprintf("not ready within %s: %s", p.cfg.ReadyTimeout, message)
		return p.cfg.ProcessingStateRequeueInterval, p.move(ctx, machine.ReadyTimedOut, message, nil)
	}
}

// ready reports success, and the obsolete definitions that stay because users still have resources of their kinds.
func (p *pass) ready(ctx context.Context, certificates certs.Result, kept []*operand.InUseError) (time.Duration, error) {
	all := []string{"the operand is ready"}
	for _, k := range kept {
		all = append(all, k.Error())
	}
	message := strings.Join(all, "; ")
	switch p.at().State {
	case v1alpha1.StateError:
		if err := p.move(ctx, machine.ObjectsReady, message, p.restartClock); err != nil {
			return 0, err
		}
	case v1alpha1.StateProcessing:
		started := p.cr.Status.ReadyDeadline.Add(-p.cfg.ReadyTimeout)
		p.deps.Metrics.Provisioned(max(0, p.deps.Now().Sub(started)))
	}
	err := p.move(ctx, machine.ObjectsReady, message, func(s *v1alpha1.BtpOperatorStatus) {
		s.ReadyDeadline, s.ChartVersion = nil, p.deps.Chart.Version()
	})
	return min(p.cfg.ReadyStateRequeueInterval, max(certificates.RenewAt.Sub(p.deps.Now()), soon)), err
}

// describe returns the names of the first objects that are not ready, with the reasons, and the number of the others.
func describe(unready []operand.NotReady) string {
	const named = 3
	var b strings.Builder
	for i, n := range unready {
		if i == named {
			fmt.Fprintf(&b, "; and %d more", len(unready)-named)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s: %s", n.Ref, n.Reason)
	}
	return b.String()
}

func kinds(unready []operand.NotReady) []string {
	all := make([]string, len(unready))
	for i, n := range unready {
		all[i] = n.Kind
	}
	return all
}
