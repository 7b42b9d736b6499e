package avs

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// tags adds the location of the cluster to the internal evaluation.
func (s *shared) tags(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	if !s.cfg.TagsEnabled {
		return worker.Skip(op, "additional tags are disabled (KEB_AVS_TAGS_ENABLED)")
	}
	d, err := read(op)
	if err != nil {
		return op, 0, err
	}
	switch {
	case d.Tagged:
		return op, 0, nil
	case d.InternalID == 0:
		return worker.Skip(op, "there is no internal evaluation")
	}
	var runtime provisioner.Details
	if err := op.Details(provisioner.Name, &runtime); err != nil {
		return op, 0, err
	}
	if runtime.RuntimeID == "" {
		return worker.Skip(op, "there is no runtime")
	}
	status, err := s.runtimes.RuntimeStatus(ctx, op.Context.GlobalAccountID, runtime.RuntimeID)
	if err != nil {
		return op, s.cfg.RuntimeInterval, err
	}
	cluster := status.Configuration.Cluster
	for _, t := range []struct {
		what, content string
		class         int
	}{
		{"shoot name", cluster.Name, s.cfg.ShootTagClass},
		{"seed", cluster.Seed, s.cfg.SeedTagClass},
		{"region", cluster.Region, s.cfg.RegionTagClass},
	} {
		if t.content == "" {
			continue
		}
		if err := s.avs.addTag(ctx, d.InternalID, Tag{Content: t.content, ClassID: t.class}); err != nil {
			return op, s.cfg.RetryInterval, fmt.Errorf("add the tag of the %s: %w", t.what, err)
		}
	}
	log.Info("evaluation tagged", "evaluation_id", d.InternalID)
	return op, 0, op.SaveDetails(Details{InternalID: d.InternalID, Tagged: true})
}
