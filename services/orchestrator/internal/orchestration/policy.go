package orchestration

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/kyma-project/keb/libs/event"
)

// Policy contains maintenance windows that override those of the shoots (docs/contracts/processes.md#orchestrations). A nil Policy has
// none.
type Policy struct {
	rules    []rule
	fallback times
}

type rule struct {
	globalAccount, plan, region *regexp.Regexp
	times                       times
}

// times is a window that may be incomplete.
type times struct {
	days       Days
	begin, end *TimeOfDay
}

// timesText and policyText are the format of a policy file.
type timesText struct {
	Days      []string `json:"days"`
	TimeBegin string   `json:"timeBegin"`
	TimeEnd   string   `json:"timeEnd"`
}

type policyText struct {
	Rules []struct {
		Match struct {
			GlobalAccountID string `json:"globalAccountID"`
			Plan            string `json:"plan"`
			Region          string `json:"region"`
		} `json:"match"`
		timesText
	} `json:"rules"`
	Default timesText `json:"default"`
}

// ParsePolicy parses a policy, a JSON object {"rules": [{"match": {"globalAccountID", "plan", "region"}, "days", "timeBegin", "timeEnd"}],
// "default": {"days", "timeBegin", "timeEnd"}}. The members of match are regular expressions, all of which must match. Errors name the
// field.
func ParsePolicy(text []byte) (*Policy, error) {
	var in policyText
	if err := decode(text, &in); err != nil {
		return nil, err
	}
	var p Policy
	var err error
	for i := range in.Rules {
		at := fmt.Sprintf("rules[%d]", i)
		var r rule
		for _, c := range []struct {
			field, text string
			into        **regexp.Regexp
		}{
			{"globalAccountID", in.Rules[i].Match.GlobalAccountID, &r.globalAccount},
			{"plan", in.Rules[i].Match.Plan, &r.plan},
			{"region", in.Rules[i].Match.Region, &r.region},
		} {
			if c.text == "" {
				continue
			}
			if *c.into, err = compileExpression(c.text); err != nil {
				return nil, fmt.Errorf("%s.match.%s: %w", at, c.field, err)
			}
		}
		if r.globalAccount == nil && r.plan == nil && r.region == nil {
			return nil, fmt.Errorf("%s.match: must have globalAccountID, plan or region; use default for a rule that applies to all", at)
		}
		if r.times, err = in.Rules[i].parse(at); err != nil {
			return nil, err
		}
		if r.times.begin == nil && len(r.times.days) == 0 {
			return nil, fmt.Errorf("%s: must have days, or timeBegin and timeEnd", at)
		}
		p.rules = append(p.rules, r)
	}
	if p.fallback, err = in.Default.parse("default"); err != nil {
		return nil, err
	}
	return &p, nil
}

func (t timesText) parse(at string) (times, error) {
	days, err := parseDays(t.Days)
	if err != nil {
		return times{}, fmt.Errorf("%s.%w", at, err)
	}
	out := times{days: days}
	if (t.TimeBegin == "") != (t.TimeEnd == "") {
		return out, errors.New(at + ": must have both timeBegin and timeEnd, or neither")
	}
	for _, c := range []struct {
		field, text string
		into        **TimeOfDay
	}{{"timeBegin", t.TimeBegin, &out.begin}, {"timeEnd", t.TimeEnd, &out.end}} {
		if c.text == "" {
			continue
		}
		parsed, err := ParseTimeOfDay(c.text)
		if err != nil {
			return out, fmt.Errorf("%s.%s: %w", at, c.field, err)
		}
		*c.into = &parsed
	}
	return out, nil
}

// window returns the window of an instance's runtime: from the first matching rule, otherwise from the default, otherwise from its shoot.
// Days or times that one of them leaves open are taken from the next. It is nil if none of them has times.
func (p *Policy) window(i *event.InstanceSummary, shoots map[string]Window) *Window {
	var w Window
	found := false
	take := func(t times) {
		if len(w.Days) == 0 {
			w.Days = t.days
		}
		if !found && t.begin != nil {
			w.Begin, w.End, found = *t.begin, *t.end, true
		}
	}
	if p != nil {
		for k := range p.rules {
			if p.rules[k].match(i) {
				take(p.rules[k].times)
				break
			}
		}
		take(p.fallback)
	}
	if shoot, ok := shoots[i.Runtime.ShootName]; ok {
		take(times{begin: &shoot.Begin, end: &shoot.End})
	}
	if !found {
		return nil
	}
	return &w
}

func (r *rule) match(i *event.InstanceSummary) bool {
	return matches(r.globalAccount, i.GlobalAccountID) && matches(r.plan, i.Plan.Name) && matches(r.region, i.Runtime.Region)
}
