package eventhubs

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// deprovision deletes the resource group of the instance's Event Hubs and waits for the end of the deletion. If it takes longer than the
// process permits, Azure continues alone, and the next deprovisioning checks the result.
func (s *shared) deprovision(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	var d Details
	if err := op.Details(Name, &d); err != nil {
		return op, 0, err
	}
	group, err := s.azure.groupOf(ctx, op.InstanceID)
	switch {
	case err != nil:
		return s.failed(op, fmt.Errorf("look up the resource group: %w", err))
	case group == nil && d.ResourceGroup == "":
		return worker.Skip(op, "the instance has no Event Hubs")
	case group == nil:
		log.Info("resource group is gone", "resource_group", d.ResourceGroup)
		return op, 0, op.SaveDetails(map[string]any{"resourceGroup": nil})
	}
	after := time.Duration(0)
	if group.Properties.State != stateDeleting {
		gone := false
		if after, gone, err = s.azure.deleteGroup(ctx, group.Name); err != nil {
			return s.failed(op, fmt.Errorf("delete the resource group: %w", err))
		}
		if gone {
			return op, 0, op.SaveDetails(map[string]any{"resourceGroup": nil})
		}
		op.NoteRemoved("resource group " + group.Name)
		log.Info("deletion of the resource group started", "resource_group", group.Name)
	}
	return worker.Wait(op, cmp.Or(after, s.cfg.PollInterval), "the resource group is being deleted")
}
