package process

import (
	"slices"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// A draft is a process that has been read and not validated yet. It keeps the position of every setting, so that a problem in an overlay is
// reported there.
type (
	draft struct {
		operation event.OperationType
		at        position
		timeout   time.Duration
		timeoutAt position
		stages    []*draftStage
		// broken drafts are not checked further, because every other problem would follow from the first.
		broken bool
	}
	draftStage struct {
		name  string
		at    position
		steps []*draftStep
	}
	draftStep struct {
		Step
		at position
		// given contains the positions of the settings that are present.
		given map[string]position
	}
)

// Keys of a step in a file.
const (
	keyName      = "name"
	keyWorker    = "worker"
	keyWhen      = "when"
	keyRetry     = "retry"
	keyWait      = "wait"
	keyExecution = "execution"
	keyOnTimeout = "onTimeout"
	keyOnFailure = "onFailure"
	keyNoWorker  = "noWorker"
	keySystems   = "systems"

	keyRetryEvery   = "retry.every"
	keyRetryMax     = "retry.max"
	keyRetryFactor  = "retry.factor"
	keyRetryJitter  = "retry.jitter"
	keyRetryTimeout = "retry.timeout"
	keyRetryScope   = "retry.scope"
	keyWaitEvery    = "wait.every"
	keyWaitTimeout  = "wait.timeout"
)

// readProcess reads a process file. The draft is never nil.
func readProcess(root node) *draft {
	d := &draft{at: root.at(), timeoutAt: root.at(), timeout: DefaultTimeout}
	fields := root.object(keys[processFile]()...)
	if fields == nil {
		d.broken = true
		return d
	}
	if operation, ok := readOperation(root, fields); ok {
		d.operation = operation
	}
	if timeout, ok := fields["timeout"]; ok {
		if v, ok := timeout.duration(); ok {
			d.timeout, d.timeoutAt = v, timeout.at()
		}
	}
	stages, ok := fields["stages"]
	if !ok {
		root.problem(`the key "stages" is missing`)
		d.broken = true
		return d
	}
	for _, item := range stages.list() {
		if stage := readStage(item); stage != nil {
			d.stages = append(d.stages, stage)
		}
	}
	if finally, ok := fields[StageFinally]; ok {
		stage := &draftStage{name: StageFinally, at: finally.at()}
		for _, item := range finally.list() {
			if step := readStep(item); step != nil {
				stage.steps = append(stage.steps, step)
			}
		}
		d.stages = append(d.stages, stage)
	}
	// Without a stage, every target of an overlay would be reported as missing.
	d.broken = len(d.stages) == 0
	return d
}

// readOperation reads the operation type of a file.
func readOperation(root node, fields map[string]node) (event.OperationType, bool) {
	operation, ok := fields["operation"]
	if !ok {
		root.problem(`the key "operation" is missing`)
		return "", false
	}
	var allowed []string
	for _, t := range event.OperationTypes() {
		allowed = append(allowed, string(t))
	}
	v, ok := operation.word(allowed...)
	return event.OperationType(v), ok
}

// readStage returns nil if the stage has no valid name.
func readStage(n node) *draftStage {
	fields := n.object(keys[stageFile]()...)
	if fields == nil {
		return nil
	}
	stage := &draftStage{at: n.at()}
	name, ok := fields[keyName]
	if !ok {
		n.problem(`a stage has no "name"`)
		return nil
	}
	if stage.name, ok = name.name(); !ok {
		return nil
	}
	if stage.name == StageFinally {
		name.problem("%s is reserved for the steps under the key %s of the process", StageFinally, StageFinally)
		return nil
	}
	steps, ok := fields["steps"]
	if !ok {
		n.problem("stage %q has no steps", stage.name)
		return stage
	}
	for _, item := range steps.list() {
		if step := readStep(item); step != nil {
			stage.steps = append(stage.steps, step)
		}
	}
	return stage
}

// readStep returns nil if the step has no valid name.
func readStep(n node) *draftStep {
	fields := n.object(keys[Step]()...)
	if fields == nil {
		return nil
	}
	step := &draftStep{at: n.at(), given: map[string]position{}}
	name, ok := fields[keyName]
	if !ok {
		n.problem(`a step has no "name"`)
		return nil
	}
	if step.Name, ok = name.name(); !ok {
		return nil
	}
	if worker, ok := fields[keyWorker]; ok {
		step.Worker, _ = worker.name()
	} else {
		n.problem("step %q has no worker; a built-in step has the worker %s", step.Name, WorkerOrchestrator)
	}
	step.set(fields)
	return step
}

func (s *draftStep) setSystems(n node) {
	s.Systems, s.given[keySystems] = nil, n.at()
	for _, item := range n.list() {
		if name, ok := item.name(); ok {
			s.Systems = append(s.Systems, name)
		}
	}
	slices.Sort(s.Systems)
	s.Systems = slices.Compact(s.Systems)
}

// set applies the settings that are present. Overlays use it to change some of them.
func (s *draftStep) set(fields map[string]node) {
	if n, ok := fields[keyWhen]; ok {
		if v, ok := n.text(); ok {
			s.When, s.given[keyWhen] = v, n.at()
		}
	}
	if n, ok := fields[keyRetry]; ok {
		retry := n.object(keys[Retry]()...)
		if n, ok := retry["every"]; ok {
			s.setDuration(&s.Retry.Every, keyRetryEvery, n)
			// An overlay that changes only the first interval must not have to know about the longest one.
			s.Retry.Max = max(s.Retry.Max, s.Retry.Every)
		}
		if n, ok := retry["max"]; ok {
			s.setDuration(&s.Retry.Max, keyRetryMax, n)
		}
		s.setNumber(&s.Retry.Factor, keyRetryFactor, retry, 1, MaxFactor)
		s.setNumber(&s.Retry.Jitter, keyRetryJitter, retry, 0, 1)
		if n, ok := retry["timeout"]; ok {
			s.setDuration(&s.Retry.Timeout, keyRetryTimeout, n)
		}
		if n, ok := retry["scope"]; ok {
			if v, ok := n.word(string(ScopeStage), string(ScopeStep)); ok {
				s.Retry.Scope, s.given[keyRetryScope] = Scope(v), n.at()
			}
		}
	}
	if n, ok := fields[keyWait]; ok {
		wait := n.object(keys[Wait]()...)
		if wait != nil && len(n.Content) == 0 {
			n.problem("give every, timeout or both")
		}
		if n, ok := wait["every"]; ok {
			s.setDuration(&s.Wait.Every, keyWaitEvery, n)
		}
		if n, ok := wait["timeout"]; ok {
			s.setDuration(&s.Wait.Timeout, keyWaitTimeout, n)
		}
	}
	if n, ok := fields[keyExecution]; ok {
		s.setDuration(&s.Execution, keyExecution, n)
	}
	s.setPolicy(&s.OnTimeout, keyOnTimeout, fields)
	s.setPolicy(&s.OnFailure, keyOnFailure, fields)
	if n, ok := fields[keyNoWorker]; ok {
		if v, ok := n.word(string(NoWorkerWait)); ok {
			s.NoWorker, s.given[keyNoWorker] = NoWorker(v), n.at()
		}
	}
	if n, ok := fields[keySystems]; ok {
		s.setSystems(n)
	}
}

func (s *draftStep) setDuration(into *time.Duration, key string, n node) {
	if v, ok := n.duration(); ok {
		*into, s.given[key] = v, n.at()
	}
}

// setNumber reads the member of retry that the key names.
func (s *draftStep) setNumber(into *float64, key string, retry map[string]node, least, most float64) {
	if n, ok := retry[strings.TrimPrefix(key, keyRetry+".")]; ok {
		if v, ok := n.number(least, most); ok {
			*into, s.given[key] = v, n.at()
		}
	}
}

func (s *draftStep) setPolicy(into *Policy, key string, fields map[string]node) {
	if n, ok := fields[key]; ok {
		if v, ok := n.word(string(Fail), string(Skip)); ok {
			*into, s.given[key] = Policy(v), n.at()
		}
	}
}

// where returns the position of a setting, or of the step if the setting is absent.
func (s *draftStep) where(key string) position {
	if at, ok := s.given[key]; ok {
		return at
	}
	return s.at
}

// find returns the stage of a step, and the index of the step in it.
func (d *draft) find(step string) (*draftStage, int) {
	for _, stage := range d.stages {
		if i := slices.IndexFunc(stage.steps, func(s *draftStep) bool { return s.Name == step }); i >= 0 {
			return stage, i
		}
	}
	return nil, -1
}

// stage returns the index of a stage, or -1.
func (d *draft) stage(name string) int {
	return slices.IndexFunc(d.stages, func(s *draftStage) bool { return s.name == name })
}

func (d *draft) stageNames() []string {
	var names []string
	for _, stage := range d.stages {
		names = append(names, stage.name)
	}
	return names
}

func (d *draft) stepNames() []string {
	var names []string
	for _, stage := range d.stages {
		for _, step := range stage.steps {
			names = append(names, step.Name)
		}
	}
	return names
}

// hint suggests the name that was probably meant, or lists all known names.
func hint(wrong string, known []string) string {
	best, distance := "", 4
	for _, k := range known {
		if d := editDistance(strings.ToLower(wrong), strings.ToLower(k)); d < distance {
			best, distance = k, d
		}
	}
	if best != "" {
		return "did you mean " + best + "?"
	}
	return "known: " + strings.Join(known, ", ")
}

// editDistance returns the number of letters to insert, delete or replace to turn a into b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
