package process

import (
	"maps"
	"slices"
	"strings"

	"github.com/kyma-project/keb/libs/event"
)

// changes returns what applies a change, by the key of the change.
func changes() map[string]func(*draft, node) {
	return map[string]func(*draft, node){
		"add":      (*draft).addStep,
		"addStage": (*draft).addStage,
		"move":     (*draft).move,
		"disable":  (*draft).disable,
		"retime":   (*draft).retime,
	}
}

// applyOverlay applies the changes of an overlay file to the draft of its operation, in order.
func applyOverlay(root node, drafts map[event.OperationType]*draft) {
	fields := root.object(keys[overlayFile]()...)
	if fields == nil {
		return
	}
	operation, ok := readOperation(root, fields)
	if !ok {
		return
	}
	list, ok := fields["changes"]
	if !ok {
		root.problem(`the key "changes" is missing`)
		return
	}
	d := drafts[operation]
	if d == nil {
		var known []string
		for _, k := range slices.Sorted(maps.Keys(drafts)) {
			known = append(known, string(k))
		}
		fields["operation"].problem("there is no process %s to change; known: %s", operation, strings.Join(known, ", "))
		return
	}
	apply, kinds := changes(), keys[change]()
	for _, item := range list.list() {
		fields := item.object(kinds...)
		if fields == nil || d.broken {
			continue
		}
		// A mapping has no order, so each list item has exactly one change.
		if len(item.Content) != 2 {
			item.problem("a change must have exactly one of the keys %s", strings.Join(kinds, ", "))
			continue
		}
		for kind, n := range fields {
			apply[kind](d, n)
		}
	}
}

// addStep adds a step to a stage.
func (d *draft) addStep(n node) {
	fields := n.object(keys[addStep]()...)
	if fields == nil {
		return
	}
	definition, ok := fields["step"]
	if !ok {
		n.problem(`the key "step" is missing: the step to add`)
		return
	}
	step := readStep(definition)
	stage, i, ok := d.place(n, fields)
	if step == nil || !ok {
		return
	}
	if first, j := d.find(step.Name); first != nil {
		n.out.add(step.at, "step %q is already defined at %s", step.Name, first.steps[j].at)
		return
	}
	stage.steps = slices.Insert(stage.steps, i, step)
}

// addStage adds a stage before or after another one, or at the end.
func (d *draft) addStage(n node) {
	fields := n.object(keys[addStage]()...)
	if fields == nil {
		return
	}
	// Without the place, the node is an ordinary stage.
	inner := node{Node: n.without("before", "after"), file: n.file, out: n.out}
	stage := readStage(inner)
	if stage == nil {
		return
	}
	at := len(d.stages)
	if i := d.stage(StageFinally); i >= 0 {
		at = i
	}
	before, isBefore := fields["before"]
	after, isAfter := fields["after"]
	if isBefore && isAfter {
		n.problem("before and after exclude each other")
		return
	}
	for _, target := range []struct {
		node
		given bool
		shift int
	}{{before, isBefore, 0}, {after, isAfter, 1}} {
		if !target.given {
			continue
		}
		name, ok := target.text()
		if !ok {
			return
		}
		i := d.stage(name)
		if i < 0 {
			target.problem("unknown stage %q; %s", name, hint(name, d.stageNames()))
			return
		}
		if at = i + target.shift; name == StageFinally && target.shift > 0 {
			target.problem("the stage %s must remain the last one", StageFinally)
			return
		}
	}
	d.stages = slices.Insert(d.stages, at, stage)
}

// move moves a step.
func (d *draft) move(n node) {
	fields := n.object(keys[moveStep]()...)
	if fields == nil {
		return
	}
	from, i, ok := d.target(n, fields)
	if !ok {
		return
	}
	// Remove the step first, so that a place relative to itself is reported as an unknown step.
	step := from.steps[i]
	from.steps = slices.Delete(from.steps, i, i+1)
	stage, j, ok := d.place(n, fields)
	if !ok {
		from.steps = slices.Insert(from.steps, i, step)
		return
	}
	stage.steps = slices.Insert(stage.steps, j, step)
}

// disable removes a step from the process.
func (d *draft) disable(n node) {
	name, ok := n.text()
	if !ok {
		return
	}
	stage, i := d.find(name)
	if stage == nil {
		n.problem("unknown step %q; %s", name, hint(name, d.stepNames()))
		return
	}
	stage.steps = slices.Delete(stage.steps, i, i+1)
}

// retime changes settings of a step, or the timeout of the operation.
func (d *draft) retime(n node) {
	fields := n.object(keys[retime]()...)
	if fields == nil {
		return
	}
	_, hasStep := fields["step"]
	timeout, hasTimeout := fields["timeout"]
	switch {
	case hasTimeout && len(fields) > 1:
		timeout.problem("timeout is the timeout of the operation and cannot be combined with other keys; a step has retry.timeout")
	case hasTimeout:
		if v, ok := timeout.duration(); ok {
			d.timeout, d.timeoutAt = v, timeout.at()
		}
	case hasStep && len(fields) == 1:
		n.problem("nothing to change; give when, retry, wait, execution, onTimeout, onFailure, noWorker or systems")
	default:
		if stage, i, ok := d.target(n, fields); ok {
			stage.steps[i].set(fields)
		}
	}
}

// target returns the step that a change names.
func (d *draft) target(n node, fields map[string]node) (*draftStage, int, bool) {
	step, ok := fields["step"]
	if !ok {
		n.problem(`the key "step" is missing: the step to change`)
		return nil, 0, false
	}
	name, ok := step.text()
	if !ok {
		return nil, 0, false
	}
	stage, i := d.find(name)
	if stage == nil {
		step.problem("unknown step %q; %s", name, hint(name, d.stepNames()))
		return nil, 0, false
	}
	return stage, i, true
}

// place returns the target position of a step: before or after another step, or at the end of a stage.
func (d *draft) place(n node, fields map[string]node) (*draftStage, int, bool) {
	before, isBefore := fields["before"]
	after, isAfter := fields["after"]
	named, isNamed := fields["stage"]
	switch {
	case isBefore && isAfter:
		n.problem("before and after exclude each other")
		return nil, 0, false
	case !isBefore && !isAfter && !isNamed:
		n.problem("no position; give before or after (a step), or stage")
		return nil, 0, false
	}
	var stage *draftStage
	if isNamed {
		name, ok := named.text()
		if !ok {
			return nil, 0, false
		}
		i := d.stage(name)
		if i < 0 && name == StageFinally {
			i = len(d.stages)
			d.stages = append(d.stages, &draftStage{name: StageFinally, at: named.at()})
		}
		if i < 0 {
			named.problem("unknown stage %q; %s", name, hint(name, d.stageNames()))
			return nil, 0, false
		}
		stage = d.stages[i]
	}
	if !isBefore && !isAfter {
		return stage, len(stage.steps), true
	}
	neighbour, shift := before, 0
	if isAfter {
		neighbour, shift = after, 1
	}
	name, ok := neighbour.text()
	if !ok {
		return nil, 0, false
	}
	found, i := d.find(name)
	switch {
	case found == nil:
		neighbour.problem("unknown step %q; %s", name, hint(name, d.stepNames()))
		return nil, 0, false
	case stage != nil && stage != found:
		neighbour.problem("step %q is in the stage %s, not in %s", name, found.name, stage.name)
		return nil, 0, false
	}
	return found, i + shift, true
}
