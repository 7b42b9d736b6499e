package orchestration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
)

const (
	// MaxWorkers is the maximum number of members in progress of an orchestration.
	MaxWorkers = 1000
	// maxTargets limits the targets of an orchestration.
	maxTargets = 1000
	// maxCanary is the maximum size of a canary.
	maxCanary = 100_000
	// maxText limits every text of a request.
	maxText = 500
	// maxVersion limits versions. The broker accepts no longer ones.
	maxVersion = 200
)

// Parameters contains the request for an orchestration.
type Parameters = operator.Upgrade

const (
	typeParallel = "parallel"
	immediate    = "immediate"
)

// scheduled returns when the orchestration is to start; false if at once.
func scheduled(s operator.Strategy) (time.Time, bool) {
	at, err := time.Parse(time.RFC3339, s.Schedule)
	return at.UTC(), err == nil
}

// ParseParameters parses a request for an orchestration of a type, and sets defaults. Every error names the field and the allowed values.
func ParseParameters(t event.OperationType, body []byte) (Parameters, error) {
	var p Parameters
	if err := decode(body, &p); err != nil {
		return Parameters{}, err
	}
	if err := complete(&p, t); err != nil {
		return Parameters{}, err
	}
	return p, nil
}

// decode is strict, so that unknown fields are not ignored.
func decode(body []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
		return fmt.Errorf("%s: is a %s, must be a %s", wrong.Field, wrong.Value, jsonType(wrong))
	}
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("body: is empty, must be a JSON object")
	case err != nil:
		return fmt.Errorf("body: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("body: unexpected data after the JSON object")
	}
	return nil
}

func jsonType(e *json.UnmarshalTypeError) string {
	switch e.Type.Kind().String() {
	case "struct", "map":
		return "JSON object"
	case "slice":
		return "list"
	case "int":
		return "whole number"
	case "bool":
		return "boolean"
	default:
		return e.Type.Kind().String()
	}
}

func complete(p *Parameters, t event.OperationType) error {
	if len(p.Targets.Include) == 0 {
		return errors.New(`targets.include: must name at least one target, for example {"target": "all"}`)
	}
	if _, err := NewMatcher(p.Targets); err != nil {
		return err
	}
	if err := completeStrategy(&p.Strategy); err != nil {
		return err
	}
	switch {
	case t == event.UpgradeKyma && p.Kubernetes != nil:
		return errors.New("kubernetes: is allowed only for POST /upgrade/cluster; an upgrade of Kyma has the field kyma")
	case t == event.UpgradeCluster && p.Kyma != nil:
		return errors.New("kyma: is allowed only for POST /upgrade/kyma; an upgrade of clusters has the field kubernetes")
	}
	return checkVersions(p)
}

func completeStrategy(s *operator.Strategy) error {
	if s.Type == "" {
		s.Type = typeParallel
	}
	if s.Type != typeParallel {
		return fmt.Errorf("strategy.type: %.50q: allowed is %q", s.Type, typeParallel)
	}
	switch s.Schedule {
	case "", immediate, "now":
		s.Schedule = immediate
	case "maintenanceWindow":
		return errors.New(`strategy.schedule: "maintenanceWindow" is no longer a schedule: set strategy.maintenanceWindow to true, ` +
			`and the schedule to "immediate" or to a time`)
	default:
		at, ok := scheduled(*s)
		if !ok {
			return fmt.Errorf(`strategy.schedule: %.50q: must be "immediate", "now" or a time such as 2026-11-21T22:00:00Z`, s.Schedule)
		}
		s.Schedule = at.Format(time.RFC3339)
	}
	if s.Parallel.Workers == 0 {
		s.Parallel.Workers = 1
	}
	if s.Parallel.Workers < 0 || s.Parallel.Workers > MaxWorkers {
		return fmt.Errorf("strategy.parallel.workers: %d: must be from 1 to %d", s.Parallel.Workers, MaxWorkers)
	}
	if _, _, err := s.MaxFailures.Limit(0); err != nil {
		return fmt.Errorf("strategy.maxFailures: %w", err)
	}
	return completeCanary(s.Canary)
}

func completeCanary(c *operator.Canary) error {
	if c == nil {
		return nil
	}
	if c.Size < 1 || c.Size > maxCanary {
		return fmt.Errorf("strategy.canary.size: %d: must be from 1 to %d", c.Size, maxCanary)
	}
	switch c.Then {
	case "":
		c.Then = operator.CanaryApproval
	case operator.CanaryApproval, operator.CanarySuccess:
	default:
		return fmt.Errorf("strategy.canary.then: %.50q: allowed are %q and %q", c.Then, operator.CanaryApproval, operator.CanarySuccess)
	}
	return nil
}

// Forms of versions. A version of Kyma is a release, a pull request, or a commit of a branch
// (docs/contracts/kyma-configuration.md#version).
var (
	kymaVersion       = regexp.MustCompile(`^(v?\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?|PR-\d+|[0-9A-Za-z._/-]+-[0-9a-f]{7,40})$`)
	kubernetesVersion = regexp.MustCompile(`^\d+\.\d+(\.\d+)?$`)
	imageName         = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z._-]*$`)
)

func checkVersions(p *Parameters) error {
	type check struct {
		field, value string
		form         *regexp.Regexp
		want         string
	}
	var checks []check
	if k := p.Kyma; k != nil {
		checks = append(checks, check{"kyma.version", k.Version, kymaVersion, "a version such as 2.20.1, PR-1234 or main-0123abcd"})
	}
	if k := p.Kubernetes; k != nil {
		checks = append(checks,
			check{"kubernetes.kubernetesVersion", k.KubernetesVersion, kubernetesVersion, "a version such as 1.31.4"},
			check{"kubernetes.machineImage", k.MachineImage, imageName, "a name such as gardenlinux"},
			check{"kubernetes.machineImageVersion", k.MachineImageVersion, imageName, "a version such as 1592.4.0"})
	}
	for _, c := range checks {
		if c.value != "" && (len(c.value) > maxVersion || !c.form.MatchString(c.value)) {
			return fmt.Errorf("%s: %.50q: must be %s", c.field, c.value, c.want)
		}
	}
	return nil
}
