package jobs

import (
	"context"
	"errors"
	"maps"
	"net/url"
	"slices"

	"github.com/kyma-project/keb/libs/api/broker"
)

// work is what a job does.
type work struct {
	// find returns the instances to process.
	find func(ctx context.Context) ([]broker.Runtime, error)
	// request requests an operation from the broker; it is empty if none is needed. In a dry run it changes nothing, and returns only an
	// operation that already runs. The error is errSettled if nothing is left to do.
	request func(ctx context.Context, i *broker.Runtime) (operation string, err error)
	// check, unless nil, checks the instance after the operation has succeeded.
	check func(ctx context.Context, i *broker.Runtime) error
}

func (r *runner) work() work {
	switch r.job {
	case DeprovisionRetrigger:
		return work{find: r.incomplete, request: r.retrigger, check: r.checkComplete}
	case TrialExpiry:
		return work{find: r.aged, request: r.expire}
	case SubaccountCleanup:
		return work{find: r.orphaned, request: r.deprovision}
	}
	panic("job without work: " + string(r.job)) // Validate rejects unknown jobs
}

// incomplete finds the instances whose deprovisioning did not complete some steps.
func (r *runner) incomplete(ctx context.Context) ([]broker.Runtime, error) {
	return r.broker.runtimes(ctx, url.Values{}, broker.RuntimeIncomplete)
}

// retrigger runs the steps that were not completed again: the broker starts a new deprovisioning with only those steps. In a dry run it asks the
// broker whether it would do that.
func (r *runner) retrigger(ctx context.Context, i *broker.Runtime) (string, error) {
	return r.broker.retrigger(ctx, i.InstanceID, r.cfg.DryRun)
}

// checkComplete returns an error if the new deprovisioning succeeded but did not complete a step again.
func (r *runner) checkComplete(ctx context.Context, i *broker.Runtime) error {
	left, err := r.broker.runtimes(ctx, url.Values{"instance_id": {i.InstanceID}}, broker.RuntimeIncomplete)
	if err == nil && len(left) > 0 {
		err = errors.New("the deprovisioning did not complete some of its steps again")
	}
	return err
}

// aged finds the instances of the plans trial and free that are older than the age of their plan
// (docs/contracts/broker.md#suspension-and-expiry). They include expired instances whose suspension was rejected or failed. The broker
// only marks a suspended instance. Those in deprovisioning, or whose deprovisioning has failed, are ignored.
func (r *runner) aged(ctx context.Context) ([]broker.Runtime, error) {
	ages := r.cfg.ages()
	listed, err := r.broker.runtimes(ctx, url.Values{"plan": slices.Sorted(maps.Keys(ages))},
		broker.RuntimeSucceeded, broker.RuntimeFailed, broker.RuntimeError, broker.RuntimeUpgrading, broker.RuntimeUpdating, broker.RuntimeSuspended)
	now := r.deps.Now()
	return slices.DeleteFunc(listed, func(i broker.Runtime) bool {
		age, ok := ages[i.ServicePlanName]
		expired := !i.Status.ExpiredAt.IsZero() && i.Status.State == broker.RuntimeSuspended
		stuck := i.Status.State == broker.RuntimeFailed && i.Status.Deprovisioning != nil
		// An instance without a creation time must not count as old.
		return !ok || expired || stuck || i.Status.CreatedAt.IsZero() || now.Sub(i.Status.CreatedAt) <= age
	}), err
}

func (r *runner) expire(ctx context.Context, i *broker.Runtime) (string, error) {
	if r.cfg.DryRun {
		return "", nil
	}
	return r.broker.expire(ctx, i.InstanceID)
}

// cleanupAgent is the user agent of the deprovisionings of SubaccountCleanup. It selects the immediate clean-up of the BTP objects, because
// their account no longer exists (docs/contracts/broker.md#requests).
const cleanupAgent = "accountcleanup-job"

// chunk is the number of sub-accounts in one query.
const chunk = 50

// orphaned finds the instances of deleted sub-accounts, which it reads from the events of the cloud inventory. Incomplete deprovisionings
// belong to the job DeprovisionRetrigger. An instance in deprovisioning is included, because its operation may only be a suspension.
func (r *runner) orphaned(ctx context.Context) ([]broker.Runtime, error) {
	gone, err := r.cis.deletedSubaccounts(ctx)
	if err != nil {
		return nil, err
	}
	var found []broker.Runtime
	for subaccounts := range slices.Chunk(gone, chunk) {
		listed, err := r.broker.runtimes(ctx, url.Values{"subaccount": subaccounts},
			broker.RuntimeSucceeded, broker.RuntimeFailed, broker.RuntimeError, broker.RuntimeProvisioning, broker.RuntimeDeprovisioning,
			broker.RuntimeUpgrading, broker.RuntimeUpdating, broker.RuntimeSuspended)
		if err != nil {
			return nil, err
		}
		for _, i := range listed {
			// A broker that ignores the filter would return all instances; the job must not touch the others.
			if slices.Contains(subaccounts, i.SubAccountID) {
				found = append(found, i)
			}
		}
	}
	return found, nil
}

func (r *runner) deprovision(ctx context.Context, i *broker.Runtime) (string, error) {
	if r.cfg.DryRun {
		return "", nil
	}
	return r.broker.deprovision(ctx, i)
}
