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
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// noRuntime is the message of an update or upgrade that is skipped.
const noRuntime = "the instance has no runtime: it is suspended"

// kept is the last configuration that the Reconciler received. It contains secrets, so the broker stores it encrypted.
type kept struct {
	// OperationID is the last operation that began to send a configuration. If the details contain another operation, the Reconciler has
	// either the configuration of OperationID or this one.
	OperationID   string  `json:"operationId"`
	Configuration cluster `json:"configuration"`
	// Rebuild is true if OperationID sends more than the values of an update: an upgrade of Kyma.
	Rebuild bool `json:"rebuild,omitempty"`
}

// current reports whether the Reconciler has Configuration, except for the values of an update. It is false if an upgrade ended between
// its call and its result, because its configuration is unknown.
func (k *kept) current(d Details) bool { return k.OperationID == d.AppliedBy || !k.Rebuild }

// stage is the result of the earlier steps of the stage.
type stage struct {
	details    Details
	runtimeID  string
	kubeconfig []byte
	overrides  []worker.ComponentOverrides
	// last is nil if the Reconciler received nothing for this runtime, or if the configuration is not stored.
	last *kept
}

// ended is the result of a step that ends before it calls the Reconciler.
type ended struct {
	op    worker.Operation
	after time.Duration
	err   error
}

func end(op worker.Operation, after time.Duration, err error) *ended { return &ended{op, after, err} }

// prepare reads the input of the step; a result ends the step. A step that builds the whole configuration replaces a stored one that cannot
// be decrypted; an update needs the stored one.
func (s *shared) prepare(ctx context.Context, op worker.Operation, log *slog.Logger) (stage, *ended) {
	var st stage
	var runtime provisioner.Details
	if err := errors.Join(op.Details(Name, &st.details), op.Details(provisioner.Name, &runtime)); err != nil {
		return st, end(op, 0, err)
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
		log.Warn("the stored configuration cannot be decrypted and will be replaced", "err", err)
		// give marks it, so that no later update uses it if it can be decrypted again.
		st.last = &kept{}
	case err != nil:
		return st, end(worker.Retry(op, s.cfg.RetryInterval, err))
	case last.Configuration.RuntimeID == st.runtimeID:
		st.last = &last
	}
	return st, nil
}

// configure is the step that sends the configuration of a new or an upgraded runtime to the Reconciler, with the results of all steps of
// the stage.
func (s *shared) configure(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	st, over := s.prepare(ctx, op, log)
	if over != nil {
		return over.op, over.after, over.err
	}
	name, err := clusterName(op, st.details)
	if err != nil {
		return worker.Fail(op, &worker.Error{Err: err})
	}
	body, err := newCluster(op, st.runtimeID, name, st.kubeconfig, st.overrides)
	if err == nil {
		err = body.check()
	}
	if err != nil {
		return worker.Fail(op, &worker.Error{Err: err})
	}
	if op.Upgrade != nil && op.Upgrade.DryRun {
		return worker.Skip(op, "dry run: the reconciler would receive "+body.summary())
	}
	if op.Type == event.Provision && st.details.RuntimeID != "" && st.details.RuntimeID != st.runtimeID {
		// The instance's runtime before its suspension was never deregistered.
		if _, _, err := s.reconciler.delete(ctx, st.details.RuntimeID); err != nil {
			return op, s.cfg.RetryInterval, fmt.Errorf("deregister the former runtime: %w", err)
		}
	}
	return s.give(ctx, op, log, st, body)
}

// give sends a configuration, stores it, and saves the version to wait for. It can be repeated after a kill: the same configuration creates
// no new version, and the stored one is marked before the call and replaced after it.
func (s *shared) give(ctx context.Context, op worker.Operation, log *slog.Logger, st stage, body cluster) (worker.Operation, time.Duration, error) {
	if st.last != nil && st.last.OperationID != op.ID {
		mark := kept{OperationID: op.ID, Configuration: st.last.Configuration, Rebuild: op.Type != event.Update}
		if err := op.Keep(ctx, mark); err != nil {
			return worker.Retry(op, s.cfg.RetryInterval, err)
		}
	}
	got, err := s.reconciler.apply(ctx, body)
	if err != nil {
		return op, s.cfg.RetryInterval, err
	}
	if err := op.Keep(ctx, kept{OperationID: op.ID, Configuration: body}); err != nil {
		return worker.Retry(op, s.cfg.RetryInterval, err)
	}
	log.Info("cluster applied", "runtime_id", st.runtimeID, "version", got.ConfigurationVersion)
	return op, 0, op.SaveDetails(map[string]any{
		"runtimeId": st.runtimeID, "clusterName": body.RuntimeInput.Name, "clusterConfigurationVersion": got.ConfigurationVersion,
		"clusterVersion": got.ClusterVersion, "appliedBy": op.ID, "kymaVersion": body.KymaConfig.Version,
		// The instance was deregistered before it got a new runtime.
		"deregisteredAt": nil,
	})
}

// summary describes the configuration without any value that could be secret.
func (c cluster) summary() string {
	list := make([]string, 0, len(c.KymaConfig.Components))
	for _, part := range c.KymaConfig.Components {
		list = append(list, fmt.Sprintf("%s (%d overrides)", part.Name, len(part.Configuration)))
	}
	return fmt.Sprintf("Kyma %s with the profile %s and the components %s", c.KymaConfig.Version, c.KymaConfig.Profile, strings.Join(list, ", "))
}
