package batch

import (
	"context"
	"errors"
	"fmt"
	"slices"

	brokerapi "github.com/kyma-project/keb/libs/api/broker"
	"github.com/kyma-project/keb/services/jobs/internal/broker"
)

// CleanupName is the name of the job.
const CleanupName = "subaccount-cleanup"

// UserAgent is the user agent of the deprovisionings. It selects the immediate clean-up of the BTP objects, because their account no longer
// exists (docs/contracts/broker.md#requests).
const UserAgent = "accountcleanup-job"

// chunk is the number of sub-accounts in one query.
const chunk = 50

// Inventory returns the deleted sub-accounts.
type Inventory interface {
	// DeletedSubaccounts returns their ids without duplicates.
	DeletedSubaccounts(ctx context.Context) ([]string, error)
}

// CleanupBroker has the methods of the broker that the job needs. Its client must use UserAgent.
type CleanupBroker interface {
	Runtimes(ctx context.Context, f broker.Filter) ([]brokerapi.Runtime, error)
	Deprovision(ctx context.Context, r brokerapi.Runtime) (operation string, err error)
	Follower
}

// cleanupStates returns the cleanupStates of the instances to deprovision. Incomplete deprovisionings belong to the job retrigger. An instance in
// deprovisioning is included, because its operation may only be a suspension.
func cleanupStates() []brokerapi.RuntimeState {
	return []brokerapi.RuntimeState{
		brokerapi.RuntimeSucceeded, brokerapi.RuntimeFailed, brokerapi.RuntimeError, brokerapi.RuntimeProvisioning, brokerapi.RuntimeDeprovisioning, brokerapi.RuntimeUpgrading, brokerapi.RuntimeUpdating,
		brokerapi.RuntimeSuspended,
	}
}

// CleanUp finds the instances of deleted sub-accounts and deprovisions each. It reads the sub-accounts from the events of the cloud inventory. In a dry run it only finds them. It returns an error if the job
// could not begin or complete. Failures of single instances are in the report.
func CleanUp(ctx context.Context, opts Options, inventory Inventory, b CleanupBroker) (Report, error) {
	report := Report{Job: CleanupName, DryRun: opts.DryRun, Failed: []Failure{}}
	gone, err := inventory.DeletedSubaccounts(ctx)
	if err != nil {
		return report, fmt.Errorf("%s: %w", CleanupName, err)
	}
	var found []brokerapi.Runtime
	for subaccounts := range slices.Chunk(gone, chunk) {
		listed, err := b.Runtimes(ctx, broker.Filter{Subaccounts: subaccounts, States: cleanupStates()})
		if err != nil {
			return report, fmt.Errorf("%s: %w", CleanupName, err)
		}
		for _, r := range listed {
			// A broker that ignores the filter would return all instances; the job must not touch the others.
			if slices.Contains(subaccounts, r.SubAccountID) {
				found = append(found, r)
			}
		}
	}
	return Run(ctx, report, opts.Parallel, found, broker.ID, func(ctx context.Context, r brokerapi.Runtime) (Outcome, error) {
		if opts.DryRun {
			return Started, nil
		}
		operation, err := b.Deprovision(ctx, r)
		if errors.Is(err, broker.ErrGone) {
			return Skipped, nil
		}
		if err != nil {
			return Skipped, err
		}
		return Follow(ctx, opts, b, r.InstanceID, operation)
	})
}
