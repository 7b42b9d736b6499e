package orchestration

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
)

type (
	// Targets selects instances; see package operator.
	Targets = operator.Targets
	// Target selects instances by their properties; see package operator.
	Target = operator.Target
)

const targetAll = "all"

// Matcher reports which instances the targets select.
type Matcher struct{ include, exclude []matcher }

type matcher struct {
	target                            *Target
	globalAccount, subaccount, region *regexp.Regexp
}

// NewMatcher compiles targets. Errors name the field.
func NewMatcher(t Targets) (*Matcher, error) {
	var m Matcher
	for _, side := range []struct {
		field   string
		targets []Target
		into    *[]matcher
	}{{"targets.include", t.Include, &m.include}, {"targets.exclude", t.Exclude, &m.exclude}} {
		if len(side.targets) > maxTargets {
			return nil, fmt.Errorf("%s: has %d targets, at most %d are allowed", side.field, len(side.targets), maxTargets)
		}
		for i := range side.targets {
			compiled, err := compile(&side.targets[i], fmt.Sprintf("%s[%d]", side.field, i))
			if err != nil {
				return nil, err
			}
			*side.into = append(*side.into, compiled)
		}
	}
	for i := range t.Exclude {
		if t.Exclude[i] == (Target{Target: targetAll}) {
			return nil, fmt.Errorf(`targets.exclude[%d].target: "all" would exclude every instance; it is allowed only in targets.include`, i)
		}
	}
	return &m, nil
}

func compile(t *Target, at string) (matcher, error) {
	m := matcher{target: t}
	if *t == (Target{}) {
		return m, fmt.Errorf("%s: has no condition; allowed are target, globalAccount, subAccount, region, runtimeID, planName, shoot, instanceID, "+
			"kymaVersion, kubernetesVersion, failed", at)
	}
	if t.Target != "" && t.Target != targetAll {
		return m, fmt.Errorf("%s.target: %.50q: allowed is %q", at, t.Target, targetAll)
	}
	for _, c := range []struct {
		field, value string
		into         **regexp.Regexp
	}{
		{"globalAccount", t.GlobalAccount, &m.globalAccount},
		{"subAccount", t.SubAccount, &m.subaccount},
		{"region", t.Region, &m.region},
		{"runtimeID", t.RuntimeID, nil},
		{"planName", t.PlanName, nil},
		{"shoot", t.Shoot, nil},
		{"instanceID", t.InstanceID, nil},
		{"kymaVersion", t.KymaVersion, nil},
		{"kubernetesVersion", t.KubernetesVersion, nil},
	} {
		if len(c.value) > maxText {
			return m, fmt.Errorf("%s.%s: is %d bytes long, at most %d are allowed", at, c.field, len(c.value), maxText)
		}
		if strings.ContainsRune(c.value, 0) {
			return m, fmt.Errorf("%s.%s: contains the character NUL, which is not allowed", at, c.field)
		}
		if c.into == nil || c.value == "" {
			continue
		}
		compiled, err := compileExpression(c.value)
		if err != nil {
			return m, fmt.Errorf("%s.%s: %w", at, c.field, err)
		}
		*c.into = compiled
	}
	return m, nil
}

// KnownPlans asks the broker for the names of all plans. They are empty if the broker is older than this question.
func KnownPlans(ctx context.Context, asker Asker) ([]string, error) {
	var page event.InstancesAnswer
	if err := asker.Ask(ctx, event.AskInstances, event.InstancesRequest{Limit: 1}, &page); err != nil {
		return nil, err
	}
	return page.Plans, nil
}

// NamesPlan reports whether a target names a plan.
func NamesPlan(t Targets) bool {
	return slices.ContainsFunc(slices.Concat(t.Include, t.Exclude), func(t Target) bool { return t.PlanName != "" })
}

// CheckPlans rejects targets that name a plan that is not known. The error names the field and the known plans.
func CheckPlans(t Targets, known []string) error {
	for _, side := range []struct {
		field   string
		targets []Target
	}{{"targets.include", t.Include}, {"targets.exclude", t.Exclude}} {
		for i := range side.targets {
			if plan := side.targets[i].PlanName; plan != "" && !slices.Contains(known, plan) {
				return fmt.Errorf("%s[%d].planName: unknown plan %.50q; known: %s", side.field, i, plan, strings.Join(known, ", "))
			}
		}
	}
	return nil
}

func compileExpression(text string) (*regexp.Regexp, error) {
	compiled, err := regexp.Compile(text)
	if err != nil {
		return nil, errors.New("is not a regular expression: " + err.Error())
	}
	return compiled, nil
}

// Match reports whether the targets select an instance.
func (m *Matcher) Match(i *event.InstanceSummary) bool {
	return anyMatches(m.include, i) && !anyMatches(m.exclude, i)
}

func anyMatches(list []matcher, i *event.InstanceSummary) bool {
	for k := range list {
		if list[k].match(i) {
			return true
		}
	}
	return false
}

func (m *matcher) match(i *event.InstanceSummary) bool {
	t := m.target
	return matches(m.globalAccount, i.GlobalAccountID) && matches(m.subaccount, i.SubaccountID) && matches(m.region, i.Runtime.Region) &&
		is(t.RuntimeID, i.RuntimeID) && is(t.PlanName, i.Plan.Name) && is(t.Shoot, i.Runtime.ShootName) && is(t.InstanceID, i.InstanceID) &&
		operator.IsVersion(t.KymaVersion, i.KymaVersion) && operator.IsVersion(t.KubernetesVersion, i.KubernetesVersion) && (!t.Failed || i.Failed)
}

// NeedsNewBroker reports whether a target has a condition that brokers of earlier releases cannot answer.
func NeedsNewBroker(t Targets) bool {
	return slices.ContainsFunc(slices.Concat(t.Include, t.Exclude), func(t Target) bool {
		return t.KymaVersion != "" || t.KubernetesVersion != "" || t.Failed
	})
}

func matches(r *regexp.Regexp, v string) bool { return r == nil || r.MatchString(v) }

func is(want, v string) bool { return want == "" || want == v }
