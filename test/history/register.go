package history

import (
	"hash/maphash"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

type phase string

const (
	absent    phase = "absent"
	ordered   phase = "ordered"
	refused   phase = "refused"
	ready     phase = "ready"
	updating  phase = "updating"
	deleting  phase = "deleting"
	undeleted phase = "undeleted"
)

// unnamed is the id of an operation whose answer was lost.
const unnamed = "?"

// register is the state of an instance.
type register struct {
	phase phase
	// op is the newest operation, and end its end; empty while it runs.
	op, end string
	// order is the value of the provisioning, value the current one, and next that of the running update.
	order, value, next string
}

// ended returns the register after the end of the newest operation.
func (g register) ended(end string) register {
	g.end = end
	ok := end == Succeeded
	switch {
	case g.phase == ordered && ok:
		g.phase = ready
	case g.phase == ordered:
		g.phase = refused
	case g.phase == updating:
		if g.phase = ready; ok {
			g.value = g.next
		}
		g.next = ""
	case ok:
		g = register{phase: absent, op: g.op, end: end}
	default:
		g.phase = undeleted
	}
	return g
}

// accept returns the register after it accepted a request with a new operation; ok is false if it would not.
func (g register) accept(r *Record, op string) (after register, ok bool) {
	isNew := op == unnamed || op != g.op
	switch r.Kind {
	case Provision:
		return register{phase: ordered, op: op, order: r.Value, value: r.Value}, isNew && g.phase == absent
	case Update:
		isChange := r.Value != g.value || g.end == HasFailed
		return register{phase: updating, op: op, order: g.order, value: g.value, next: r.Value}, isNew && g.phase == ready && isChange
	case Deprovision:
		return register{phase: deleting, op: op, order: g.order, value: g.value}, isNew && g.phase != absent && g.phase != deleting
	}
	return g, false
}

// repeats reports whether a request is the one that runs.
func (g register) repeats(r *Record) bool {
	switch r.Kind {
	case Provision:
		return g.phase == ordered && r.Value == g.order
	case Update:
		return g.phase == updating && r.Value == g.next
	case Deprovision:
		return g.phase == deleting
	}
	return false
}

// after returns the registers after an invocation; none if it cannot have had that outcome. The newest operation does not end meanwhile.
func (g register) after(r *Record) []register {
	if r.Outcome == Unknown {
		if accepted, ok := g.accept(r, unnamed); ok {
			return []register{g, accepted}
		}
		return []register{g}
	}
	if r.isAccepted() {
		if accepted, ok := g.accept(r, r.Operation); ok {
			return []register{accepted}
		}
		if g.repeats(r) && (g.op == unnamed || g.op == r.Operation) {
			g.op = r.Operation
			return []register{g}
		}
		return nil
	}
	if g.allows(r) {
		return []register{g}
	}
	return nil
}

// allows reports whether the register gives an answer that does not change it.
func (g register) allows(r *Record) bool {
	in := func(phases ...phase) bool { return slices.Contains(phases, g.phase) }
	switch r.Kind {
	case Provision:
		switch r.Status {
		case 200:
			return in(ready, updating) && r.Value == g.order
		case 409:
			return in(refused, undeleted) || in(ordered, ready, updating) && r.Value != g.order
		case 422:
			return in(deleting)
		}
	case Update:
		switch r.Status {
		case 200:
			return in(ready) && r.Value == g.value && g.end != HasFailed
		case 404:
			return in(absent)
		case 422:
			return in(ordered, refused, deleting, undeleted) || in(updating) && r.Value != g.next
		}
	case Deprovision:
		return r.Status == 410 && in(absent)
	case Get:
		switch r.Status {
		case 200:
			return in(ready) && r.Value == g.value
		case 404:
			return !in(ready, updating)
		case 422:
			return in(updating)
		}
	case Bind:
		return in(ready)
	case Poll:
		switch {
		case r.Status == 410:
			return in(absent)
		case r.Operation != g.op:
			return r.State != InProgress
		case r.State == InProgress:
			return g.end == ""
		}
		return g.end == r.State
	}
	return false
}

// isRegistered reports whether an invocation constrains the register.
func isRegistered(r *Record) bool {
	switch r.Kind {
	case Provision, Update, Deprovision:
		return true
	case Get:
		return r.Outcome != Unknown
	case Poll:
		return r.Outcome == OK || r.Status == 410
	case Bind:
		return r.Outcome == OK && r.Status == 201
	}
	return false
}

// linearize checks the invocations of one instance. ends are the polled ends of operations. If the history is not linearizable, stuck is the
// first invocation that does not fit into the longest order that was found.
func linearize(records []*Record, ends map[string]string, limit time.Duration) (result porcupine.CheckResult, stuck *Record) {
	seed := maphash.MakeSeed()
	nondeterministic := porcupine.NondeterministicModel{
		Init: func() []any { return []any{register{phase: absent, end: Succeeded}} },
		Step: func(state, input, _ any) (next []any) {
			g, r := state.(register), input.(*Record)
			for _, after := range g.after(r) {
				next = append(next, after)
			}
			if g.end != "" {
				return next
			}
			for _, end := range []string{Succeeded, HasFailed} {
				if seen := ends[g.op]; seen != "" && seen != end {
					continue
				}
				for _, after := range g.ended(end).after(r) {
					next = append(next, after)
				}
			}
			return next
		},
		Hash: func(state any) uint64 { return maphash.Comparable(seed, state.(register)) },
	}
	model := nondeterministic.ToModel()
	var operations []porcupine.Operation
	for _, r := range records {
		if !isRegistered(r) {
			continue
		}
		o := porcupine.Operation{ClientId: r.Client, Input: r, Call: r.Call, Return: r.Return}
		if r.Outcome == Unknown {
			o.Return = math.MaxInt64
		}
		operations = append(operations, o)
	}
	if result = porcupine.CheckOperationsTimeout(model, operations, limit); result != porcupine.Illegal {
		return result, nil
	}
	_, info := porcupine.CheckOperationsVerbose(model, operations, limit)
	var longest []porcupine.Operation
	for _, order := range slices.Concat(info.PartialLinearizationsOperations()...) {
		if len(order) > len(longest) {
			longest = order
		}
	}
	placed := map[*Record]bool{}
	for _, o := range longest {
		placed[o.Input.(*Record)] = true
	}
	for _, o := range operations {
		r := o.Input.(*Record)
		if !placed[r] && r.Outcome != Unknown && (stuck == nil || r.Return < stuck.Return) {
			stuck = r
		}
	}
	return result, stuck
}
