package kyma

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// versionForms matches a version of Kyma (docs/contracts/kyma-configuration.md#version): of a release, a pull request or a commit.
var versionForms = regexp.MustCompile(`^(\d+\.\d+\.\d+(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?|PR-\d+|[A-Za-z0-9][A-Za-z0-9_.-]*-[0-9a-f]{6,40})$`)

// maxVersion is the maximum length of a version, because it is part of a label name.
const maxVersion = 45

// ErrVersion is the error of an invalid version of Kyma.
var ErrVersion = errors.New("not a version of Kyma")

// checkVersion validates a version; field is its name in the error.
func checkVersion(field, version string) error {
	if len(version) > maxVersion || !versionForms.MatchString(version) {
		return fmt.Errorf(
			"%s: %q is %w, want a semantic version as in 2.20.0, PR-<number> or <branch>-<commit hash>, at most %d characters",
			field, version, ErrVersion, maxVersion)
	}
	return nil
}

// decider selects the version of Kyma that an operation installs.
type decider struct {
	cfg       Config
	store     *store
	artifacts *artifacts
	versions  *Versions
}

// forOrder returns the version of the order, otherwise that of the account.
func (d decider) forOrder(ctx context.Context, op worker.Operation) (Details, error) {
	var p struct {
		KymaVersion string `json:"kymaVersion"`
	}
	if err := op.Parameters(&p); err != nil {
		return Details{}, err
	}
	if p.KymaVersion != "" {
		return Details{Version: p.KymaVersion, Origin: OriginParameters}, checkVersion("parameters.kymaVersion", p.KymaVersion)
	}
	return d.forAccount(ctx, op)
}

// forAccount returns the version of the subaccount, otherwise that of the global account, otherwise the configured one.
func (d decider) forAccount(ctx context.Context, op worker.Operation) (Details, error) {
	versions, err := d.store.mapping(ctx, d.cfg.VersionsConfigMap)
	if err != nil {
		return Details{}, err
	}
	for _, key := range []string{"SA_" + op.Context.SubaccountID, "GA_" + op.Context.GlobalAccountID} {
		if version := versions[key]; version != "" {
			return Details{Version: version, Origin: OriginMapping}, checkVersion("ConfigMap "+d.cfg.VersionsConfigMap+", "+key, version)
		}
	}
	return Details{Version: d.cfg.DefaultVersion, Origin: OriginDefaults}, nil
}

func isKyma1(version string) bool { return strings.HasPrefix(version, "1.") }

// components returns the components of a version for a plan in the order of installation. Kyma 1 has no published list.
func (d decider) components(ctx context.Context, version, plan string) ([]Component, error) {
	if isKyma1(version) {
		return nil, nil
	}
	published, err := d.artifacts.components(ctx, version)
	if err != nil {
		return nil, err
	}
	added, err := d.versions.Get(ctx, version, plan)
	return slices.Concat(published, added.Components), err
}

// save ends a step with the selected version and its components.
func (d decider) save(
	ctx context.Context, op worker.Operation, log *slog.Logger, decided Details, err error,
) (worker.Operation, time.Duration, error) {
	if err == nil {
		decided.Components, err = d.components(ctx, decided.Version, op.Plan.Name)
	}
	if err != nil {
		return op, d.cfg.RetryInterval, err
	}
	log.Info("kyma version selected", "kyma_version", decided.Version, "origin", decided.Origin, "components", len(decided.Components))
	return op, 0, op.SaveDetails(decided)
}
