package kyma

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
)

// overrides puts the operators' overrides into the stage memory.
type overrides struct {
	cfg   Config
	store *store
}

// Name implements worker.Step.
func (overrides) Name() string { return "Overrides_From_Secrets_And_Config_Step" }

// labelPart is what may stand in the name of a label. The version comes from the customer.
var labelPart = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,40}[A-Za-z0-9])?$`)

// Run implements worker.Step.
func (s overrides) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	var p struct {
		KymaVersion      string `json:"kymaVersion"`
		OverridesVersion string `json:"overridesVersion"`
	}
	if err := op.Parameters(&p); err != nil {
		return worker.Fail(op, outcome.Error("keb", err))
	}
	version := cmp.Or(p.OverridesVersion, p.KymaVersion, s.cfg.DefaultVersion)
	if !labelPart.MatchString(version) || !labelPart.MatchString(op.Plan.Name) {
		return worker.Fail(op, &worker.Error{Component: "keb", Message: fmt.Sprintf(
			"parameters.overridesVersion, kymaVersion: %q with plan %q cannot be a label, want letters, digits, \"-\", \"_\" or \".\"", version, op.Plan.Name)})
	}
	found := map[string][]worker.Override{}
	if err := s.store.secrets(ctx, found); err != nil {
		return outcome.Of(op, component, s.cfg.RetryInterval, err)
	}
	global, err := s.store.configMaps(ctx, op.Plan.Name, version, found)
	if err != nil {
		return outcome.Of(op, component, s.cfg.RetryInterval, err)
	}
	if global == 0 {
		return worker.Fail(op, &worker.Error{Component: "keb", Message: fmt.Sprintf(
			"no global overrides for plan %s and version %s: want a ConfigMap in %s with the labels overrides-plan-%s=true and overrides-version-%s=true",
			op.Plan.Name, version, s.cfg.Namespace, op.Plan.Name, version)})
	}
	for name, entries := range found {
		op.SetOverrides(name, entries)
	}
	log.Debug("overrides collected", "components", len(found))
	return op, 0, nil
}
