package process

import (
	"fmt"
	"slices"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// stepRemoveInstance is the deprovisioning step that frees the id of the instance in the broker.
const stepRemoveInstance = "Remove_Instance"

// Warnings compares processes with those that they were made from, and describes changes that are valid and probably not
// intended: a deprovisioning that leaves something behind, a missing built-in step, and budgets that add up to more than the
// timeout of the operation.
func Warnings(before, after Set) []string {
	var warnings []string
	for _, t := range event.OperationTypes() {
		old, changed := before[t], after[t]
		if old == nil || changed == nil || old.Equal(changed) {
			continue
		}
		warn := func(format string, args ...any) {
			warnings = append(warnings, string(t)+": "+fmt.Sprintf(format, args...))
		}
		for i := range old.Stages {
			for j := range old.Stages[i].Steps {
				step := &old.Stages[i].Steps[j]
				if _, _, kept := changed.Find(step.Name); kept {
					continue
				}
				switch {
				case step.BuiltIn():
					warn("the built-in step %s is disabled; nothing else records that the operation has begun", step.Name)
				case step.Name == stepRemoveInstance:
					warn("the step %s is disabled; a deprovisioned instance is never removed, and its id cannot be ordered again", step.Name)
				case t == event.Deprovision && after.creates(step.Worker):
					warn("the step %s is disabled, but other processes still have steps of the worker %s; what these create stays behind", step.Name, step.Worker)
				}
			}
		}
		if was, is := old.longest(), changed.longest(); is > changed.Timeout && (was <= old.Timeout || is > was) {
			warn("the budgets of the steps add up to %s, but the operation has only %s", is, changed.Timeout)
		}
	}
	return warnings
}

// creates reports whether a process other than the deprovisioning has a step of the worker.
func (s Set) creates(worker string) bool {
	for t, p := range s {
		if t == event.Deprovision {
			continue
		}
		for i := range p.Stages {
			if slices.ContainsFunc(p.Stages[i].Steps, func(step Step) bool { return step.Worker == worker }) {
				return true
			}
		}
	}
	return false
}

// longest is the time that the steps may take together, where they have budgets. The finally stage has its own time.
func (p *Process) longest() time.Duration {
	var sum time.Duration
	for i := range p.Stages {
		if p.Stages[i].Finally {
			continue
		}
		for j := range p.Stages[i].Steps {
			s := &p.Stages[i].Steps[j]
			sum += max(s.Retry.Timeout, s.Wait.Timeout)
		}
	}
	return sum
}
