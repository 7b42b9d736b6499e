package reconciler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// noRuntime is why an update or an upgrade has nothing to apply and nothing to check.
const noRuntime = "the instance has no runtime: it is suspended"

// kept is the configuration that the Reconciler is known to have been given last. It holds secrets, so the broker keeps it sealed.
type kept struct {
	// OperationID is the operation that has begun to give the Reconciler a configuration last. Unless the details name it, too,
	// it is not known whether the Reconciler has got that of this operation or still has this one.
	OperationID   string  `json:"operationId"`
	Configuration cluster `json:"configuration"`
	// Rebuild is true while OperationID gives a configuration that is not Configuration with other credentials: an upgrade of Kyma.
	Rebuild bool `json:"rebuild,omitempty"`
}

// current reports whether Configuration, apart from credentials and kubeconfig, is what the Reconciler has. It is not known after an
// upgrade that ended between its call and its result.
func (k *kept) current(d Details) bool { return k.OperationID == d.AppliedBy || !k.Rebuild }

// stage is what the earlier steps of the stage have prepared.
type stage struct {
	details    Details
	runtimeID  string
	kubeconfig []byte
	overrides  []worker.ComponentOverrides
	// last is nil if the Reconciler was given nothing for this runtime, or it is not kept.
	last *kept
}

// ended is how a step ends before it has called the Reconciler.
type ended struct {
	op    worker.Operation
	after time.Duration
	err   error
}

func end(op worker.Operation, after time.Duration, err error) *ended { return &ended{op, after, err} }

// prepare reads what the step needs; a result ends the step. A step that builds the whole configuration replaces a kept one that does
// not open; an update needs it.
func (s *shared) prepare(ctx context.Context, op worker.Operation, log *slog.Logger) (stage, *ended) {
	var st stage
	var runtime provisioner.Details
	if err := errors.Join(op.Details(Name, &st.details), op.Details(provisioner.Name, &runtime)); err != nil {
		return st, end(worker.Fail(op, outcome.Error(system, err)))
	}
	switch {
	case st.details.appliedBy(op):
		return st, end(op, 0, nil)
	case runtime.RuntimeID == "" && op.Type != event.Provision:
		return st, end(worker.Skip(op, noRuntime))
	case runtime.RuntimeID == "":
		return st, end(worker.Fail(op, &worker.Error{Component: "keb", Message: "no runtime id is saved: the runtime was not created"}))
	}
	st.runtimeID = runtime.RuntimeID
	var err error
	st.kubeconfig, err = op.Recall(ctx, provisioner.KubeconfigKey)
	if errors.Is(err, worker.ErrNotRemembered) {
		return st, end(worker.Fail(op, &worker.Error{Component: "keb", Message: "no kubeconfig: Get_Kubeconfig has not run in this stage"}))
	}
	if err == nil {
		st.overrides, err = op.Overrides(ctx)
	}
	var last kept
	if err == nil {
		err = op.Kept(ctx, &last)
	}
	switch {
	case errors.Is(err, worker.ErrNotKept):
	case errors.Is(err, worker.ErrKeptBroken) && op.Type != event.Update:
		log.Warn("kept configuration does not open, a new one replaces it", "err", err)
		// give marks it, so that no later update takes it for what the Reconciler has, should it open again.
		st.last = &kept{}
	case err != nil:
		return st, end(outcome.Again(op, "keb", s.cfg.RetryInterval, err))
	case last.Configuration.RuntimeID == st.runtimeID:
		st.last = &last
	}
	return st, nil
}

// configure tells the Reconciler about op's runtime, with everything that the steps of the stage have put together.
func (s *shared) configure(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	st, over := s.prepare(ctx, op, log)
	if over != nil {
		return over.op, over.after, over.err
	}
	name, err := clusterName(op, st.details)
	if err != nil {
		return worker.Fail(op, outcome.Error("keb", err))
	}
	body, err := newCluster(op, st.runtimeID, name, st.kubeconfig, st.overrides)
	if err == nil {
		err = body.check()
	}
	if err != nil {
		return worker.Fail(op, outcome.Error("keb", err))
	}
	if op.Upgrade != nil && op.Upgrade.DryRun {
		return worker.Skip(op, "dry run: the reconciler would get "+body.summary())
	}
	if op.Type == event.Provision && st.details.RuntimeID != "" && st.details.RuntimeID != st.runtimeID {
		// The runtime that the instance had before it was suspended was never deregistered.
		if _, _, err := s.reconciler.delete(ctx, st.details.RuntimeID); err != nil {
			return outcome.Of(op, system, s.cfg.RetryInterval, fmt.Errorf("deregister the former runtime: %w", err))
		}
	}
	return s.give(ctx, op, log, st, body)
}

// give sends a configuration, keeps it, and saves the version that this operation has to wait for. The same again makes no new
// version, so all of it may be repeated after a kill: what is kept is marked before the call and replaced after it.
func (s *shared) give(ctx context.Context, op worker.Operation, log *slog.Logger, st stage, body cluster) (worker.Operation, time.Duration, error) {
	if st.last != nil && st.last.OperationID != op.ID {
		mark := kept{OperationID: op.ID, Configuration: st.last.Configuration, Rebuild: op.Type != event.Update}
		if err := op.Keep(ctx, mark); err != nil {
			return outcome.Again(op, "keb", s.cfg.RetryInterval, err)
		}
	}
	got, err := s.reconciler.apply(ctx, body)
	if err != nil {
		return outcome.Of(op, system, s.cfg.RetryInterval, err)
	}
	if err := op.Keep(ctx, kept{OperationID: op.ID, Configuration: body}); err != nil {
		return outcome.Again(op, "keb", s.cfg.RetryInterval, err)
	}
	log.Info("cluster applied", "runtime_id", st.runtimeID, "version", got.ConfigurationVersion)
	return op, 0, op.SaveDetails(map[string]any{
		"runtimeId": st.runtimeID, "clusterName": body.RuntimeInput.Name, "clusterConfigurationVersion": got.ConfigurationVersion,
		"clusterVersion": got.ClusterVersion, "appliedBy": op.ID, "kymaVersion": body.KymaConfig.Version,
		// An instance that gets a runtime again was deregistered before.
		"deregisteredAt": nil,
	})
}

// summary says what the Reconciler would get, without any value that could be a secret.
func (c cluster) summary() string {
	list := make([]string, 0, len(c.KymaConfig.Components))
	for _, part := range c.KymaConfig.Components {
		list = append(list, fmt.Sprintf("%s (%d overrides)", part.Name, len(part.Configuration)))
	}
	return fmt.Sprintf("Kyma %s with the profile %s and the components %s", c.KymaConfig.Version, c.KymaConfig.Profile, strings.Join(list, ", "))
}
