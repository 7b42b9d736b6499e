package kyma

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
)

// labelPart is the syntax of a part of a label name. The version may come from the customer.
var labelPart = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,43}[A-Za-z0-9])?$`)

// overrides stores the operators' overrides for the selected version in the stage memory.
func (s decider) overrides(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	version, err := s.version(op)
	if err != nil {
		return worker.Fail(op, &worker.Error{Err: err})
	}
	if !labelPart.MatchString(version) || !labelPart.MatchString(op.Plan.Name) {
		return worker.Fail(op, &worker.Error{Component: "keb", Reason: "err_bad_request", Message: fmt.Sprintf(
			"parameters.overridesVersion, kymaVersion: %q with plan %q cannot be a label, want letters, digits, \"-\", \"_\" or \".\"", version, op.Plan.Name)})
	}
	by := selection{secrets: "runtime-override=true", configMaps: overridesSelector(op.Plan.Name, version)}
	if isKyma1(version) {
		const both = "provisioning-runtime-override=true"
		by = selection{secrets: both, configMaps: both, withoutDefaultForLite: isLite(op.Plan.Name)}
	}
	found := map[string][]worker.Override{}
	global, err := s.store.collect(ctx, by, found)
	if err != nil {
		return op, s.cfg.RetryInterval, err
	}
	if global == 0 && !isKyma1(version) {
		return worker.Fail(op, &worker.Error{Component: component, Reason: reasonNoMatch, Message: fmt.Sprintf(
			"no global overrides for plan %s and version %s: want a ConfigMap in %s with the labels %s and without the label %s",
			op.Plan.Name, version, s.cfg.Namespace, overridesSelector(op.Plan.Name, version), labelComponent)})
	}
	for name, entries := range found {
		op.SetOverrides(name, entries)
	}
	log.Debug("overrides collected", "components", len(found))
	return op, 0, nil
}

// isLite reports whether a plan has the licence type TestDevelopmentAndDemo.
func isLite(plan string) bool { return plan == "azure_lite" || plan == "trial" }

// version returns the version of the overrides. An order for a new runtime may have a separate version for them.
func (s decider) version(op worker.Operation) (string, error) {
	var p struct {
		KymaVersion      string `json:"kymaVersion"`
		OverridesVersion string `json:"overridesVersion"`
	}
	var decided Details
	if err := errors.Join(op.Parameters(&p), op.Details(Name, &decided)); err != nil {
		return "", err
	}
	if p.OverridesVersion != "" && op.Type == event.Provision {
		return p.OverridesVersion, nil
	}
	// An operation that began with another process definition has saved no version.
	return cmp.Or(decided.Version, p.KymaVersion, s.cfg.DefaultVersion), nil
}
