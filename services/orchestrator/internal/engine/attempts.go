package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
)

// Keys in State.Tries for attempts of stages; no step can have such a name. An attempt number is used once for each stage of an operation,
// because the stage memory is kept by attempt.
const (
	// finallyTries has the attempts of the finally stage of an operation that did not succeed; an operator may retry it.
	finallyTries = "/finally"
	// finishedTries has the highest attempt of a finished stage, if one was repeated.
	finishedTries = "/finished"
	// repeatedTries has the attempt above which stages start since an operator has retried the operation from an earlier stage.
	repeatedTries = "/repeated"
)

// nextAttempt returns the first attempt of the current stage.
func (m *machine) nextAttempt() int {
	used := m.s.Tries[repeatedTries].Attempts
	if m.s.Stage == m.p.Finally() {
		used = m.s.Tries[finallyTries].Attempts
	}
	return used + 1
}

// keepAttempts stores the attempts of the current stage at its end.
func (m *machine) keepAttempts(stage *process.Stage) {
	switch {
	case stage.Finally && m.s.Ending != nil:
		m.setTry(finallyTries, Try{Attempts: m.s.StageAttempt})
	case !stage.Finally && m.s.StageAttempt > max(m.s.Tries[finishedTries].Attempts, 1):
		m.setTry(finishedTries, Try{Attempts: m.s.StageAttempt})
	}
}

// repeatStages makes stages that have finished start with attempts that no stage has used.
func (m *machine) repeatStages() {
	m.s.StageAttempt = max(m.s.StageAttempt, m.s.Tries[finishedTries].Attempts)
	m.setTry(repeatedTries, Try{Attempts: m.s.StageAttempt})
}

// dropTries removes the budgets of all steps, and keeps the attempts of stages.
func (m *machine) dropTries() {
	var kept map[string]Try
	for key, try := range m.s.Tries {
		if !strings.HasPrefix(key, "/") {
			continue
		}
		if kept == nil {
			kept = map[string]Try{}
		}
		kept[key] = try
	}
	m.s.Tries = kept
}

// withoutStages returns the names of steps that are in none of the stages.
func withoutStages(steps []string, stages []process.Stage) []string {
	var others []string
	for _, name := range steps {
		if !slices.ContainsFunc(stages, func(stage process.Stage) bool {
			return slices.ContainsFunc(stage.Steps, func(step process.Step) bool { return step.Name == name })
		}) {
			others = append(others, name)
		}
	}
	return others
}

// retryStage returns the stage from which an operator may retry a failed operation; an empty name is its failed stage.
func retryStage(p *process.Process, s *State, name string) (int, error) {
	if s.Status != event.Failed {
		return 0, fmt.Errorf("%w: the operation is %s, only a failed one can be retried", ErrNotPossible, s.Status)
	}
	if name == "" {
		return s.Stage, nil
	}
	reached := p.Stages[:min(s.Stage+1, len(p.Stages))]
	if i := slices.IndexFunc(reached, func(stage process.Stage) bool { return stage.Name == name }); i >= 0 {
		return i, nil
	}
	return 0, fmt.Errorf("%w: stage %s is not one of those that the operation has reached: %s", ErrNotPossible, name, stageNames(reached))
}

// retryPosition returns the stage and the step from which an operator may retry a failed operation.
func retryPosition(p *process.Process, s *State, e Retry) (stage, step int, err error) {
	if stage, err = retryStage(p, s, e.Stage); err != nil || e.Step == "" {
		return stage, 0, err
	}
	if e.Stage == "" {
		return 0, 0, fmt.Errorf("%w: step %s needs the name of its stage", ErrNotPossible, e.Step)
	}
	reached := p.Stages[stage].Steps
	if stage == s.Stage {
		reached = reached[:min(s.Step+1, len(reached))]
	}
	if step = slices.IndexFunc(reached, func(step process.Step) bool { return step.Name == e.Step }); step < 0 {
		names := make([]string, len(reached))
		for i := range reached {
			names[i] = reached[i].Name
		}
		return 0, 0, fmt.Errorf("%w: step %s is not one of those that the operation has reached in stage %s: %s",
			ErrNotPossible, e.Step, e.Stage, strings.Join(names, ", "))
	}
	return stage, step, nil
}

// LosesMemory reports whether a retry from a step leaves out steps that may have written to the stage memory, which is deleted when the
// operation ends. If a later step then uses it, its worker reports the loss, and the stage starts at its first step. Only of a stage that
// failed without a finally stage is it known what its steps have written.
func LosesMemory(p *process.Process, s *State, e Retry) (bool, error) {
	stage, step, err := retryPosition(p, s, e)
	return err == nil && losesMemory(p, s, stage, step), err
}

func losesMemory(p *process.Process, s *State, stage, step int) bool {
	isKnown := stage == s.Stage && p.Finally() < 0
	return step > 0 && (s.StageMemory || !isKnown)
}

func stageNames(stages []process.Stage) string {
	names := make([]string, len(stages))
	for i := range stages {
		names[i] = stages[i].Name
	}
	return strings.Join(names, ", ")
}
