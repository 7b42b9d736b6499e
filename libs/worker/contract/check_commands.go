package contract

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/stagemem"
	"github.com/kyma-project/keb/libs/worker"
)

func checkLate(ctx context.Context, k *kit) {
	for _, step := range k.steps {
		o, err := k.order(step, func(c *event.StepExecute) {
			c.FirstTriedAt, c.ExecuteBefore = c.FirstTriedAt.Add(-time.Hour), time.Now().UTC().Add(-time.Minute)
		})
		o.quiet = true
		if err == nil {
			err = k.send(ctx, o)
		}
		if err != nil {
			k.bad("%v", err)
			return
		}
		if !k.wire.await(ctx, k.cfg.Patience, func() bool { return k.gone() || o.acknowledged() || len(o.outcomes) > 0 }) {
			taken := false
			k.wire.look(func() { taken = len(o.given) > 0 })
			if !taken {
				k.bad("%s: the worker did not take a command whose executeBefore has passed within %s", step, k.cfg.Patience)
				return
			}
			k.bad("%s: a command whose executeBefore has passed is not acknowledged within %s: it would be redelivered endlessly", step, k.cfg.Patience)
		}
		k.wire.look(func() {
			if len(o.outcomes) > 0 {
				k.bad("%s: a command whose executeBefore passed a minute ago was executed, and answered with %q", step, o.outcomes[0].outcome())
			}
		})
	}
}

func checkUnknownStep(ctx context.Context, k *kit) {
	o, err := k.order("Kit_Unknown_Step")
	o.quiet = true
	if err == nil {
		err = k.send(ctx, o)
	}
	if err != nil {
		k.bad("%v", err)
		return
	}
	if !k.wire.await(ctx, k.cfg.Patience, func() bool { return len(o.given) > 0 || k.gone() }) {
		k.bad("the worker did not take the command within %s", k.cfg.Patience)
	}
	k.wire.await(ctx, k.cfg.Patience, func() bool { return k.gone() || o.taken() || o.left() })
	k.ask(ctx, "a command behind it", k.steps[0])
	k.wire.look(func() {
		if len(o.outcomes) > 0 {
			k.bad("a command for a step that the worker does not have was answered with %q", o.outcomes[0].outcome())
		} else if o.taken() {
			k.bad("a command for a step that the worker does not have was acknowledged or terminated: no other version will get it")
		}
	})
	if err := k.rig.purge(ctx); err != nil {
		k.bad("%v", err)
	}
}

func checkUnreadable(ctx context.Context, k *kit) {
	before := 0
	k.wire.look(func() { before = k.wire.dead })
	step := k.steps[0]
	for _, bad := range []struct {
		what string
		data string
		drop []string
		kind string
	}{
		{what: "a body that is no JSON", data: "this is no JSON"},
		{what: "a body that is no object", data: "[1,2,3]"},
		{what: "a body without operation and cursor", data: `{"stage":"create_runtime","step":"` + step + `","executeBefore":"2100-01-01T00:00:00Z"}`},
		{what: "no CloudEvents headers", data: `{}`, drop: []string{"ce-specversion", "ce-id", "ce-type", "ce-source"}},
		{what: "another type", kind: "io.kyma-project.keb.step.unheard-of.v1"},
	} {
		o, err := k.order(step)
		if err != nil {
			k.bad("%v", err)
			return
		}
		o.quiet = true
		var data []byte
		if bad.data != "" {
			data = []byte(bad.data)
		}
		m, err := k.message(o, data)
		if err != nil {
			k.bad("%v", err)
			return
		}
		for _, name := range bad.drop {
			m.Header.Del(name)
			delete(m.Header, name)
		}
		if bad.kind != "" {
			m.Header["ce-type"] = []string{bad.kind}
		}
		if err := k.publish(ctx, o, m); err != nil {
			k.bad("%v", err)
			return
		}
		if !k.wire.await(ctx, k.cfg.Patience, func() bool { return k.gone() || o.taken() }) {
			k.bad("%s: neither terminated nor acknowledged within %s: it would be redelivered endlessly", bad.what, k.cfg.Patience)
			return // more of them would only take time
		}
		before++
		k.wire.look(func() {
			if len(o.outcomes) > 0 {
				k.bad("%s: was answered with %q", bad.what, o.outcomes[0].outcome())
				before--
			} else if !k.gone() && k.wire.dead < before {
				k.bad("%s: was removed from the stream without a copy on %s", bad.what, event.DeadSubject(event.StreamCommands))
				before--
			}
		})
		if k.gone() {
			return
		}
	}
	k.ask(ctx, "a command behind them", step)
}

func checkUnknownMembers(ctx context.Context, k *kit) {
	for _, step := range k.steps {
		o, err := k.order(step)
		if err != nil {
			k.bad("%v", err)
			return
		}
		raw, err := json.Marshal(o.command)
		if err != nil {
			k.bad("%v", err)
			return
		}
		var body map[string]any
		if err := json.Unmarshal(raw, &body); err != nil {
			k.bad("%v", err)
			return
		}
		added := map[string]any{"nested": []any{1.5, "x", nil, map[string]any{"y": true}}}
		body["addedLater"] = added
		if operation, ok := body["operation"].(map[string]any); ok {
			operation["addedLater"] = added
			for _, name := range []string{"plan", "context", "runtime"} {
				if part, ok := operation[name].(map[string]any); ok {
					part["addedLater"] = "text"
				}
			}
		}
		data, err := json.Marshal(body)
		if err != nil {
			k.bad("%v", err)
			return
		}
		m, err := k.message(o, data)
		if err != nil {
			k.bad("%v", err)
			return
		}
		m.Header["ce-addedlater"] = []string{"x"}
		m.Header["Keb-Added-Later"] = []string{"x"}
		if err := k.publish(ctx, o, m); err != nil {
			k.bad("%v", err)
			return
		}
		if k.settled(ctx, o, step+", with members that the contract does not have yet") {
			k.like(o, step+", with members that the contract does not have yet")
		}
		if k.gone() {
			return
		}
	}
}

func checkLarge(ctx context.Context, k *kit) {
	step := k.steps[0]
	o, ok := k.ask(ctx, step, step, func(c *event.StepExecute) {
		details := map[string]any{}
		_ = json.Unmarshal(c.Details, &details) // created by the kit
		details[foreign] = map[string]any{"blob": strings.Repeat("0123456789abcdef", 700<<6)}
		c.Details, _ = json.Marshal(details)
	})
	if ok {
		k.like(o, step+", with 700 KiB of details")
	}
}

// anyText breaks programs that confuse bytes and characters. It contains other alphabets, an emoji of several code points, a combining
// accent, right-to-left text, quotes, a line separator and a character outside of the basic plane.
const anyText = "Zoë \"漢字\" 👩‍🚀 e\u0301 שלום \\ \u2028 𝒳 <&> '\t"

func checkUnicode(ctx context.Context, k *kit) {
	step := k.steps[0]
	o, ok := k.ask(ctx, step, step, func(c *event.StepExecute) {
		c.Operation.Context.UserID, c.Operation.UserAgent = anyText, anyText
		merge := func(into *json.RawMessage, name string, value any) {
			members := map[string]any{}
			_ = json.Unmarshal(*into, &members) // created by the kit, or nothing
			members[name] = value
			*into, _ = json.Marshal(members)
		}
		merge(&c.Operation.Parameters, "unheardOf", anyText)
		merge(&c.Details, foreign, map[string]string{anyText: anyText})
	})
	if ok {
		k.like(o, step+", with texts of all kinds")
	}
}

func checkStageLost(ctx context.Context, k *kit) {
	for _, step := range k.steps {
		o, ok := k.ask(ctx, step+", the stage memory is gone", step, func(c *event.StepExecute) {
			// This attempt has no stage memory, as if the bus had lost it.
			c.StageMemory, c.StageAttempt, c.StepAttempt = true, 2, 2
		})
		if !ok {
			continue
		}
		k.like(o, step+", with a stage memory that is gone")
		k.figure += fmt.Sprintf("%s%s: %s", comma(k.figure), step, k.first(o).outcome())
	}
}

// checkStageMemory reads the stage memory after each step, like the next step of the stage.
func checkStageMemory(ctx context.Context, k *kit) {
	for _, step := range k.steps {
		o, err := k.order(step)
		if err != nil {
			k.bad("%v", err)
			return
		}
		scope := stagemem.Scope{OperationID: o.command.Operation.ID, Stage: o.command.Stage, StageAttempt: o.command.StageAttempt}
		before, err := k.rig.memory.List(ctx, scope, "")
		if err == nil {
			err = k.send(ctx, o)
		}
		if err != nil {
			k.bad("%s: %v", step, err)
			return
		}
		if !k.settled(ctx, o, step) {
			continue
		}
		after, err := k.rig.memory.List(ctx, scope, "")
		if err != nil {
			k.bad("%s: an entry of the stage memory is not readable: %v", step, err)
			continue
		}
		maps.DeleteFunc(after, func(name string, value []byte) bool { return bytes.Equal(before[name], value) && before[name] != nil })
		k.written(ctx, o, scope, after)
	}
}

// written checks the entries that an execution wrote into the stage memory.
func (k *kit) written(ctx context.Context, o *order, scope stagemem.Scope, entries map[string][]byte) {
	step, r := o.command.Step, k.first(o)
	names := strings.Join(slices.Sorted(maps.Keys(entries)), ", ")
	k.figure += fmt.Sprintf("%s%s: %s", comma(k.figure), step, cmp.Or(names, "nothing"))
	switch said := r.body.StageMemory; {
	case len(entries) == 0 && said:
		k.bad("%s: the result has stageMemory, and nothing was written under the keys of its stage attempt", step)
	case len(entries) == 0:
		return
	case !said:
		k.bad("%s: the step has written %s, and the result has no stageMemory: a later step would not notice the loss", step, names)
	case !done(r.outcome()):
		k.bad("%s: the step has written %s although its outcome is %s", step, names, r.outcome())
	}
	if err := k.rig.memory.Check(ctx, scope); len(entries) > 0 && err != nil {
		k.bad("%s: the marker of the stage attempt is not readable: %v", step, err)
	}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		if _, value := stagemem.ValueKey(name); !value {
			k.overrides(o, name, entries[name])
		}
	}
}

// overrides checks an entry that is not a remembered value.
func (k *kit) overrides(o *order, name string, value []byte) {
	var set struct {
		Component string            `json:"component"`
		Cursor    int64             `json:"cursor"`
		Entries   []worker.Override `json:"entries"`
	}
	step := o.command.Step
	switch err := json.Unmarshal(value, &set); {
	case err != nil:
		k.bad("%s: the entry %q is neither a remembered value nor overrides", step, name)
	case name != stagemem.OverrideName(step, set.Component):
		k.bad("%s: the entry %q has the overrides of the component %q: want the name %q", step, name, set.Component, stagemem.OverrideName(step, set.Component))
	case set.Cursor != o.command.Cursor:
		k.bad("%s: the entry %q has the cursor %d: want %d, as in the command", step, name, set.Cursor, o.command.Cursor)
	}
}
