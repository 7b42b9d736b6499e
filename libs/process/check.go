package process

import (
	"slices"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// check validates a draft, fills in defaults and compiles the conditions. The result is valid only if no problem was added.
func (d *draft) check(compile *compiler, out *problems) *Process {
	p := &Process{Operation: d.operation, Timeout: d.timeout}
	stages, steps := map[string]position{}, map[string]position{}
	for _, ds := range d.stages {
		if first, again := stages[ds.name]; again {
			out.add(ds.at, "stage %q is already defined at %s", ds.name, first)
			continue
		}
		stages[ds.name] = ds.at
		stage := Stage{Name: ds.name, Finally: ds.name == StageFinally}
		for _, step := range ds.steps {
			if first, again := steps[step.Name]; again {
				out.add(step.at, "step %q is already defined at %s", step.Name, first)
				continue
			}
			steps[step.Name] = step.at
			d.checkStep(step, stage.Finally, out)
			c, err := compile.condition(step.When)
			if err != nil {
				out.add(step.where(keyWhen), "step %q: when: %s", step.Name, err)
			}
			step.condition = c
			stage.Steps = append(stage.Steps, step.Step)
		}
		// Overlays may have removed the last step of a stage, which removes the stage.
		if len(stage.Steps) > 0 {
			p.Stages = append(p.Stages, stage)
		}
	}
	if len(p.Stages) == 0 || p.Stages[0].Finally {
		out.add(d.at, "the process %s has no steps", d.operation)
	}
	return p
}

func (d *draft) checkStep(s *draftStep, finally bool, out *problems) {
	if s.Worker == WorkerOrchestrator {
		s.checkBuiltIn(out)
		return
	}
	if finally {
		s.checkFinally(out)
	}
	s.fill()
	s.checkGrowth(out)
	if s.Retry.Timeout > d.timeout {
		out.add(s.where(keyRetryTimeout), "step %q: retry.timeout %s is longer than the operation's timeout %s",
			s.Name, s.Retry.Timeout, d.timeout)
	}
	if s.Wait.Timeout > d.timeout {
		out.add(s.where(keyWaitTimeout), "step %q: wait.timeout %s is longer than the operation's timeout %s",
			s.Name, s.Wait.Timeout, d.timeout)
	}
	if s.Execution > d.timeout {
		out.add(s.where(keyExecution), "step %q: execution %s is longer than the operation's timeout %s",
			s.Name, s.Execution, d.timeout)
	}
	if s.OnTimeout != Skip {
		return
	}
	if s.Waits() && s.Wait.Timeout == 0 {
		out.add(s.where(keyOnTimeout), "step %q: onTimeout: skip needs a wait.timeout beside its wait", s.Name)
	}
	if s.Retry.Timeout == 0 {
		out.add(s.where(keyOnTimeout), "step %q: onTimeout: skip needs a retry.timeout", s.Name)
	} else if d.operation == event.Deprovision && s.Retry.Timeout > MaxSkipBudget {
		out.add(s.where(keyRetryTimeout),
			"step %q: retry.timeout %s is too long; a deprovisioning step with onTimeout: skip allows at most %s",
			s.Name, s.Retry.Timeout, MaxSkipBudget)
	}
}

// checkGrowth validates how the time between tries grows. Definitions in which it does not grow have one form, whatever their files contain.
func (s *draftStep) checkGrowth(out *problems) {
	_, limited := s.given[keyRetryMax]
	_, grows := s.given[keyRetryFactor]
	switch r := &s.Retry; {
	case limited && !grows:
		out.add(s.where(keyRetryMax), "step %q: retry.max has no effect without a retry.factor", s.Name)
	case r.Factor > 1 && !limited:
		out.add(s.where(keyRetryFactor), "step %q: retry.factor needs a retry.max", s.Name)
	case r.Factor > 1 && r.Max < r.Every:
		out.add(s.where(keyRetryMax), "step %q: retry.max %s is shorter than retry.every %s", s.Name, r.Max, r.Every)
	case r.Factor <= 1:
		r.Factor, r.Max = 0, 0
	}
}

// checkFinally validates a step of the finally stage: its retries are limited, and it must not decide how the operation ends.
func (s *draftStep) checkFinally(out *problems) {
	orElse(&s.OnTimeout, Skip)
	orElse(&s.OnFailure, Skip)
	orElse(&s.Retry.Timeout, MaxSkipBudget)
	for _, p := range []struct {
		key    string
		policy Policy
	}{{keyOnTimeout, s.OnTimeout}, {keyOnFailure, s.OnFailure}} {
		if p.policy != Skip {
			out.add(s.where(p.key), "step %q: %s: %s is not allowed in the finally stage; only skip is", s.Name, p.key, p.policy)
		}
	}
	if s.Waits() {
		orElse(&s.Wait.Timeout, MaxSkipBudget)
	}
	for _, b := range []struct {
		key    string
		budget time.Duration
	}{{keyRetryTimeout, s.Retry.Timeout}, {keyWaitTimeout, s.Wait.Timeout}} {
		if b.budget > MaxSkipBudget {
			out.add(s.where(b.key), "step %q: %s %s is too long; a step of the finally stage allows at most %s",
				s.Name, b.key, b.budget, MaxSkipBudget)
		}
	}
}

// checkBuiltIn rejects settings without effect: a built-in step runs inside the transition.
func (s *draftStep) checkBuiltIn(out *problems) {
	if !slices.Contains(BuiltInSteps(), s.Name) {
		out.add(s.at, "step %q: the orchestrator has no built-in step with this name; built-in: %s",
			s.Name, strings.Join(BuiltInSteps(), ", "))
	}
	for _, key := range []string{
		keyRetryEvery, keyRetryMax, keyRetryFactor, keyRetryJitter, keyRetryTimeout, keyRetryScope, keyWaitEvery, keyWaitTimeout, keyExecution,
		keyOnTimeout, keyOnFailure, keyNoWorker, keySystems,
	} {
		if at, ok := s.given[key]; ok {
			out.add(at, "step %q: %s has no effect on a built-in step", s.Name, key)
		}
	}
	s.Retry, s.Wait, s.Execution = Retry{Scope: ScopeStage}, Wait{}, 0
	s.OnTimeout, s.OnFailure, s.NoWorker, s.Systems = Fail, Fail, "", nil
}

// fill sets the defaults of missing settings.
func (s *draftStep) fill() {
	orElse(&s.Retry.Every, DefaultEvery)
	orElse(&s.Retry.Scope, ScopeStage)
	if s.Waits() {
		orElse(&s.Wait.Every, s.Retry.Every)
	}
	orElse(&s.Execution, DefaultExecution)
	orElse(&s.OnTimeout, Fail)
	orElse(&s.OnFailure, Fail)
	if slices.Equal(s.Systems, []string{s.Worker}) {
		s.Systems = nil
	}
}

func orElse[T time.Duration | Scope | Policy](value *T, fallback T) {
	var zero T
	if *value == zero {
		*value = fallback
	}
}
