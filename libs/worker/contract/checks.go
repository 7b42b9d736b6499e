package contract

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
)

// registration is the check without which there is nothing to check.
const registration = "registration"

// check is one rule of the contract.
type check struct {
	name string
	// what completes "the worker ...".
	what, hint, docs string
	// live checks do something with the worker; the others look at all that it has done.
	live bool
	run  func(context.Context, *kit)
}

// Names lists the checks in the order in which they run.
func Names() []string {
	var names []string
	for _, c := range checks() {
		names = append(names, c.name)
	}
	return names
}

// The pages that hints point to.
const (
	wireDocs  = "docs/step-author.md#without-go"
	stepDocs  = "docs/step-author.md#what-you-must-know"
	runDocs   = "docs/step-author.md#operate-it"
	checkDocs = "docs/step-author.md#check-your-worker"
	eventDocs = "docs/events.md"
)

func checks() []check {
	return append([]check{
		{
			registration, "registers as a NATS micro service with its name, version and steps",
			"add the micro service keb-worker-<worker> with the metadata worker, version and steps; without it the orchestrator takes the steps for unserved",
			wireDocs, true, checkRegistration,
		},
		{
			"answers", "answers a command for each step, and then acknowledges it",
			"pull from the durable consumer <worker> of KEB_COMMANDS, publish a result and acknowledge", wireDocs, true, checkAnswers,
		},
		{
			"cases", "answers the team's cases as they say", "compare the case with what the step does; the worker's own log says more",
			checkDocs, true, checkCases,
		},
		{
			"repeated", "stands the same command twice, and again with a higher dispatch",
			"look before you create, and answer a repeated command as the first time; each dispatch wants an answer of its own unless it came while the step ran",
			stepDocs, true, checkRepeated,
		},
		{
			"redelivery", "stands that its acknowledgement was lost",
			"the command comes again after the ack wait: execute it again and answer again under the same ids", stepDocs, true, checkRedelivery,
		},
		{
			"result-first", "acknowledges a command only when the stream has taken its result",
			"publish to JetStream with a reply subject, wait for its answer, and only then acknowledge; on an error do not acknowledge", wireDocs, true, checkResultFirst,
		},
		{
			"late", "drops a command whose time is over, and does not execute it",
			"compare executeBefore with the clock right before the step starts; if it has passed, acknowledge and do nothing", wireDocs, true, checkLate,
		},
		{
			"unknown-step", "leaves a command for a step that it does not have to others",
			"give it back with a delay (-NAK), and neither answer nor acknowledge it: another version may have the step", wireDocs, true, checkUnknownStep,
		},
		{
			"unreadable", "puts aside what is no command, and goes on",
			"copy it to keb.dead.KEB_COMMANDS with the header Keb-Dead-Reason, then terminate it (+TERM)", wireDocs, true, checkUnreadable,
		},
		{
			"unknown-members", "ignores members, headers and attributes that it does not know",
			"within a version members are only added: decode what you know, and refuse nothing", wireDocs, true, checkUnknownMembers,
		},
		{
			"large", "stands details of 700 KiB from other workers", "a message may have up to 1 MiB", stepDocs, true, checkLarge,
		},
		{
			"unicode", "stands any text in parameters, names and details", "bodies are JSON in UTF-8", stepDocs, true, checkUnicode,
		},
		{
			"stage-lost", "reports a lost stage memory, or does not need it",
			"if stageMemory is true and the marker of the stage is not in the bucket, answer stage.lost and not failed", stepDocs, true, checkStageLost,
		},
		{
			"long-step", "reports progress while a step takes longer than the ack wait", "send +WPI at least every third of the ack wait while the step runs",
			wireDocs, true, checkLongStep,
		},
		{
			"time-limit", "gives a step up when its time is over", "end the step at executeBefore, and answer with a retry", stepDocs, true, checkTimeLimit,
		},
		{
			"concurrency", "takes no more commands than it can run soon",
			"bound the batch of a pull by the free slots; what waits too long in the worker is delivered a second time", runDocs, true, checkConcurrency,
		},
		{
			"throughput", "answers many commands, and lets none wait for longer than the ack wait", "bound what you pull, and send +WPI for what waits",
			runDocs, true, checkThroughput,
		},
		{
			"reconnect", "comes back by itself when the connection is cut and when NATS restarts, and loses no command",
			"reconnect for ever, with a pause; pull again and register again", wireDocs, true, checkReconnect,
		},
		{
			"consumer-again", "goes on when its consumer was deleted and made again",
			"watch the heartbeats of the pull (idle_heartbeat), and look for the consumer again when they stay away", wireDocs, true, checkConsumer,
		},
		{
			"stop", "ends well on SIGTERM: finishes what runs, gives back the rest, exit code 0",
			"stop pulling, give back (-NAK) what has not begun, wait for what runs and its result, close the connection, end; without a shell or npm in front",
			runDocs, true, checkStop,
		},
		{
			"kill", "loses nothing when it is killed: the next one executes it", "keep no state in the worker, and acknowledge last", stepDocs, true, checkKill,
		},
	}, invariants()...)
}

func checkRegistration(ctx context.Context, k *kit) {
	info := k.registered(ctx, k.cfg.Patience)
	if info == nil {
		k.bad("nobody answered $SRV.INFO for %s%s within %s; the last that the worker printed:\n%s",
			worker.ServicePrefix, k.cfg.Worker, k.cfg.Patience, k.output.last(8))
		return
	}
	if want := worker.ServicePrefix + k.cfg.Worker; info.Name != want {
		k.bad("the service is called %q: want %q", info.Name, want)
	}
	if got := info.Metadata[worker.MetadataWorker]; got != k.cfg.Worker {
		k.bad("the metadata worker is %q: want %q", got, k.cfg.Worker)
	}
	version, ok := info.Metadata[worker.MetadataVersion]
	if !ok {
		k.bad("the metadata version is missing")
	}
	k.version = cmp.Or(version, info.Version)
	var steps []string
	for step := range strings.SplitSeq(info.Metadata[worker.MetadataSteps], ",") {
		if step != "" {
			steps = append(steps, step)
		}
		if step != "" && !isStepName(step) {
			k.bad("the metadata steps names %q: use letters, digits, hyphens and underscores, and commas between", step)
		}
	}
	for _, want := range k.cfg.Steps {
		if !slices.Contains(steps, want) {
			k.bad("the metadata steps is %q: %s is missing", info.Metadata[worker.MetadataSteps], want)
		}
	}
	k.steps = k.cfg.Steps
	if len(k.steps) == 0 {
		k.steps = steps
	}
	if len(k.steps) == 0 {
		k.bad("the metadata steps is %q: want the names of the steps with commas between", info.Metadata[worker.MetadataSteps])
	}
	ping := "$SRV.PING." + worker.ServicePrefix + k.cfg.Worker
	if k.service(ctx, k.cfg.Patience, ping, func(*nats.Msg) bool { return true }) == nil {
		k.bad("nobody answered %s within %s", ping, k.cfg.Patience)
	}
}

func checkAnswers(ctx context.Context, k *kit) {
	for _, step := range k.steps {
		if o, ok := k.ask(ctx, step, step); ok {
			k.base[step] = o
			k.figure += fmt.Sprintf("%s%s: %s", comma(k.figure), step, k.first(o).outcome())
		}
	}
}

func comma(s string) string {
	if s == "" {
		return ""
	}
	return ", "
}

func checkCases(ctx context.Context, k *kit) {
	n := 0
	for i := range k.cfg.Cases {
		c := &k.cfg.Cases[i]
		if !slices.Contains(k.steps, c.Step) {
			k.bad("%s: step %s is none of this check: %s", c.Name, c.Step, strings.Join(k.steps, ", "))
			continue
		}
		n++
		o, err := k.orderOf(c)
		if err == nil {
			err = k.send(ctx, o)
		}
		if err != nil {
			k.bad("%s: %v", c.Name, err)
			continue
		}
		if k.settledWithin(ctx, k.cfg.Patience+2*time.Duration(c.Takes), o, c.Name) {
			k.expect(c, k.first(o))
		}
	}
	if n == 0 && len(k.problems) == 0 {
		k.skip("there are no cases: write some, and give them with --case")
	}
	k.figure = fmt.Sprintf("%d cases", n)
}

func (k *kit) expect(c *Case, r *result) {
	want := c.Expect
	if got := r.outcome(); want.Outcome != "" && got != want.Outcome {
		k.bad("%s: the outcome is %q: want %q; it says: %s", c.Name, got, want.Outcome, cmp.Or(r.body.Message, r.why()))
		return
	}
	if got, want := time.Duration(r.body.RetryAfter*float64(time.Second)), time.Duration(want.RetryAfter); want > 0 && got != want {
		k.bad("%s: retryAfter is %s: want %s", c.Name, got, want)
	}
	e := r.body.Error
	if e == nil {
		e = &event.Error{}
	}
	if want.Component != "" && e.Component != want.Component {
		k.bad("%s: error.component is %q: want %q", c.Name, e.Component, want.Component)
	}
	if want.Reason != "" && e.Reason != want.Reason {
		k.bad("%s: error.reason is %q: want %q", c.Name, e.Reason, want.Reason)
	}
	var details map[string]json.RawMessage
	_ = json.Unmarshal(r.body.Details, &details) // nothing is in what is no object
	for name, value := range want.Details {
		raw, err := json.Marshal(value)
		if err != nil || !sameJSON(raw, details[name]) {
			k.bad("%s: details.%s is %s: want %s", c.Name, name, cmp.Or(string(details[name]), "missing"), raw)
		}
	}
}

func sameJSON(a, b []byte) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	one, err := json.Marshal(x)
	if err != nil {
		return false
	}
	other, err := json.Marshal(y)
	return err == nil && string(one) == string(other)
}

func checkRepeated(ctx context.Context, k *kit) {
	for _, step := range k.steps {
		o, ok := k.ask(ctx, step, step)
		if !ok {
			continue
		}
		// The same message again, as after a restart of the bus that has forgotten the acknowledgement.
		if err := k.send(ctx, o); err != nil {
			k.bad("%v", err)
			return
		}
		if !k.settled(ctx, o, step+", the same command a second time") {
			continue
		}
		// The orchestrator sends a command again that nobody has answered.
		o.command.Dispatch = 2
		if err := k.send(ctx, o); err != nil {
			k.bad("%v", err)
			return
		}
		if !k.settled(ctx, o, step+", with dispatch 2") {
			continue
		}
		k.constant(o, step)
		second := event.DispatchID(o.command.Operation.ID, o.command.Cursor, 2)
		answered := k.wire.await(ctx, k.cfg.Patience, func() bool {
			return k.gone() || slices.ContainsFunc(o.outcomes, func(r *result) bool {
				return r.header.Get(nats.MsgIdHdr) == second || header(r.header, "ce-id") == second
			})
		})
		if !answered {
			k.bad("%s: dispatch 2 came after the first answer, and got none of its own", step)
		}
	}
	// Both at once: one may answer for the other.
	o, err := k.order(k.steps[0])
	if err != nil {
		k.bad("%v", err)
		return
	}
	one, err := k.message(o, nil)
	if err != nil {
		k.bad("%v", err)
		return
	}
	o.command.Dispatch = 2
	two, err := k.message(o, nil)
	if err != nil {
		k.bad("%v", err)
		return
	}
	o.quiet = true
	if err := k.publish(ctx, o, one, two); err != nil {
		k.bad("%v", err)
		return
	}
	if k.settled(ctx, o, "two dispatches at once") {
		k.constant(o, "two dispatches at once")
	}
}

// constant notes when the answers to one command, one for each time it was taken, say different things. A retry in between is
// none: what is outside of the worker may change.
func (k *kit) constant(o *order, what string) {
	k.wire.look(func() {
		seen := map[string]bool{}
		var was, now event.Outcome
		for _, r := range o.outcomes {
			id := r.header.Get(nats.MsgIdHdr)
			if r.stored == 0 || r.outcome() == event.OutcomeRetry || seen[id] {
				continue // of one id the first counts, for the orchestrator, too
			}
			seen[id] = true
			was, now = cmp.Or(was, r.outcome()), r.outcome()
			if done(was) != done(now) {
				k.bad("%s: it is %s first, then %s (%s)", what, was, now, r.why())
				return
			}
		}
	})
}

func checkRedelivery(ctx context.Context, k *kit) {
	lose := func(yes bool) { k.wire.look(func() { k.wire.loseAcks = yes }) }
	lose(true)
	defer lose(false)
	step := k.steps[0]
	o, err := k.order(step)
	if err == nil {
		err = k.send(ctx, o)
	}
	if err != nil {
		k.bad("%v", err)
		return
	}
	if !k.wire.await(ctx, k.cfg.Patience, func() bool { return k.gone() || o.good() != nil && len(o.given) > 0 && o.given[0].settled != "" }) {
		k.bad("%s: the worker did not answer and acknowledge the command within %s", step, k.cfg.Patience)
		return
	}
	lose(false)
	if k.settledWithin(ctx, k.cfg.AckWait+k.cfg.Patience, o, step+", the acknowledgement was lost") {
		k.constant(o, step)
	}
}

// noAckFor is how long a worker is watched that must not acknowledge.
func (k *kit) noAckFor() time.Duration { return min(2*time.Second, k.cfg.AckWait) }

func checkResultFirst(ctx context.Context, k *kit) {
	if k.unanswered(); len(k.problems) > 0 {
		k.problems = nil
		k.skip("it acknowledges before its result is in the stream: see acknowledged-last")
		return
	}
	restore, err := k.rig.refuseResults(ctx)
	if err != nil {
		k.bad("%v", err)
		return
	}
	step := k.steps[0]
	o, err := k.order(step)
	if err == nil {
		err = k.send(ctx, o)
	}
	if err != nil {
		k.bad("%v", err)
	} else {
		tried := k.wire.await(ctx, k.cfg.Patience, func() bool { return k.gone() || len(o.outcomes) > 0 })
		if !tried {
			k.bad("%s: the worker did not answer within %s", step, k.cfg.Patience)
		}
		k.wire.await(ctx, k.noAckFor(), func() bool { return o.acknowledged() })
	}
	if err := restore(); err != nil {
		k.bad("%v", err)
		return
	}
	if len(k.problems) > 0 {
		return
	}
	acked := false
	k.wire.look(func() { acked = o.acknowledged() && o.good() == nil })
	if acked {
		k.bad("%s: the stream refused the result, as it does with a full disk, and the worker acknowledged the command all the same: the step would be lost until its time is over", step)
		o.quiet = true // said once
		return
	}
	k.settledWithin(ctx, 2*k.cfg.AckWait+k.cfg.Patience, o, step+", when the stream takes results again")
}

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
			k.bad("%s: a command whose executeBefore has passed is not acknowledged within %s: it would come again and again", step, k.cfg.Patience)
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
	wrong := func() bool {
		return k.gone() || len(o.outcomes) > 0 || slices.ContainsFunc(o.given, func(d *delivery) bool { return d.settled == ack || d.settled == term })
	}
	if !k.wire.await(ctx, k.cfg.Patience, func() bool { return len(o.given) > 0 || k.gone() }) {
		k.bad("the worker did not take the command within %s", k.cfg.Patience)
	}
	if k.wire.await(ctx, k.noAckFor(), wrong) {
		k.wire.look(func() {
			if len(o.outcomes) > 0 {
				k.bad("a command for a step that the worker does not have was answered with %q", o.outcomes[0].outcome())
			} else if len(o.given) > 0 && !k.gone() {
				k.bad("a command for a step that the worker does not have was taken off the stream with %s: no other version will get it", o.given[0].settled)
			}
		})
	}
	k.ask(ctx, "a command behind it", k.steps[0])
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
		settled := func() bool {
			return k.gone() || len(o.outcomes) > 0 || slices.ContainsFunc(o.given, func(d *delivery) bool { return d.settled == ack || d.settled == term })
		}
		if !k.wire.await(ctx, k.cfg.Patience, settled) {
			k.bad("%s: neither terminated nor acknowledged within %s: it would come again for ever", bad.what, k.cfg.Patience)
			return // the others would be no better, and each takes its time
		}
		before++
		k.wire.look(func() {
			if len(o.outcomes) > 0 {
				k.bad("%s: was answered with %q", bad.what, o.outcomes[0].outcome())
				before--
			} else if !k.gone() && k.wire.dead < before {
				k.bad("%s: was taken off the stream without a copy on %s: nobody will ever know", bad.what, event.DeadSubject(event.StreamCommands))
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
		_ = json.Unmarshal(c.Details, &details) // the kit's own
		details[foreign] = map[string]any{"blob": strings.Repeat("0123456789abcdef", 700<<6)}
		c.Details, _ = json.Marshal(details)
	})
	if ok {
		k.like(o, step+", with 700 KiB of details")
	}
}

// anyText has what breaks programs that take a byte for a character: other alphabets, an emoji of several code points, a
// combining accent, writing from right to left, quotes, a line separator and a character outside of the basic plane.
const anyText = "Zoë \"漢字\" 👩‍🚀 e\u0301 שלום \\ \u2028 𝒳 <&> '\t"

func checkUnicode(ctx context.Context, k *kit) {
	step := k.steps[0]
	o, ok := k.ask(ctx, step, step, func(c *event.StepExecute) {
		c.Operation.Context.UserID, c.Operation.UserAgent = anyText, anyText
		merge := func(into *json.RawMessage, name string, value any) {
			members := map[string]any{}
			_ = json.Unmarshal(*into, &members) // the kit's own, or nothing
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
			// Nothing was ever put under this attempt: to the worker it looks as if the bus had lost it.
			c.StageMemory, c.StageAttempt, c.StepAttempt = true, 2, 2
		})
		if !ok {
			continue
		}
		k.like(o, step+", with a stage memory that is gone")
		k.figure += fmt.Sprintf("%s%s: %s", comma(k.figure), step, k.first(o).outcome())
	}
}

// slow is the team's case of a step that takes at least so long.
func (k *kit) slow(least time.Duration) *Case {
	for i := range k.cfg.Cases {
		if c := &k.cfg.Cases[i]; time.Duration(c.Takes) >= least && slices.Contains(k.steps, c.Step) {
			return c
		}
	}
	return nil
}

func checkLongStep(ctx context.Context, k *kit) {
	c := k.slow(k.cfg.AckWait + 1)
	if c == nil {
		k.skip("no case takes longer than the ack wait: write one with takes: %s", k.cfg.AckWait+5*time.Second)
		return
	}
	o, err := k.orderOf(c)
	if err == nil {
		o.command.ExecuteBefore = o.command.ExecuteBefore.Add(2 * time.Duration(c.Takes))
		err = k.send(ctx, o)
	}
	if err != nil {
		k.bad("%s: %v", c.Name, err)
		return
	}
	if !k.settledWithin(ctx, 2*time.Duration(c.Takes)+k.cfg.Patience, o, c.Name) {
		return
	}
	k.wire.look(func() {
		if n := len(o.given); n > 1 {
			k.bad("%s: the command was delivered %d times, as nothing was heard for %s", c.Name, n, o.given[0].longest.Round(time.Millisecond))
		}
		took := o.given[0].when.Sub(o.given[0].at)
		if took < k.cfg.AckWait {
			k.bad("%s: takes says %s, and the step took %s: that says nothing about progress", c.Name, time.Duration(c.Takes), took.Round(time.Millisecond))
		}
		k.figure = fmt.Sprintf("%s, %d times progress, silent for %s at most", took.Round(time.Millisecond), o.given[0].told, o.given[0].longest.Round(time.Millisecond))
	})
}

func checkTimeLimit(ctx context.Context, k *kit) {
	const least = 3 * time.Second
	c := k.slow(least)
	if c == nil {
		k.skip("no case takes %s or longer", least)
		return
	}
	takes := time.Duration(c.Takes)
	limit, grace := takes/3, min(takes/3, 5*time.Second)
	o, err := k.orderOf(c)
	if err == nil {
		o.quiet = true
		o.command.ExecuteBefore = time.Now().UTC().Add(limit)
		err = k.send(ctx, o)
	}
	if err != nil {
		k.bad("%s: %v", c.Name, err)
		return
	}
	k.wire.await(ctx, limit+grace, func() bool { return k.gone() || o.good() != nil && o.acknowledged() })
	k.wire.look(func() {
		if r := o.good(); r != nil {
			k.figure = fmt.Sprintf("%s after %s", r.outcome(), r.at.Sub(o.given[0].at).Round(time.Millisecond))
			return
		}
		if len(o.given) == 0 {
			k.bad("%s: the worker did not take the command within %s", c.Name, limit+grace)
		}
	})
	if k.figure == "" && len(k.problems) == 0 {
		// No answer is fine: the orchestrator sends the command again. An answer that comes when it has is not.
		if k.wire.await(ctx, takes, func() bool { return k.gone() || len(o.outcomes) > 0 }) && !k.gone() {
			k.bad("%s: the step went on for more than %s after its executeBefore, and answered then", c.Name, grace)
		}
		if err := k.rig.purge(ctx); err != nil {
			k.bad("%v", err)
		}
	}
}

// mostHeld is how many times its concurrency a worker may hold: what runs, and what is next.
const mostHeld = 4

func checkConcurrency(ctx context.Context, k *kit) {
	const least = 3 * time.Second
	c := k.slow(least)
	if c == nil {
		k.skip("no case takes %s or longer", least)
		return
	}
	most := mostHeld * k.cfg.Concurrency
	k.wire.look(func() { k.wire.mostHeld = len(k.wire.held) })
	var orders []*order
	for range most + k.cfg.Concurrency {
		o, err := k.orderOf(c)
		if err == nil {
			o.quiet = true
			o.command.ExecuteBefore = o.command.ExecuteBefore.Add(10 * time.Duration(c.Takes))
			err = k.send(ctx, o)
		}
		if err != nil {
			k.bad("%s: %v", c.Name, err)
			return
		}
		orders = append(orders, o)
	}
	over := func() bool { return k.gone() || k.wire.mostHeld > most }
	k.wire.await(ctx, min(time.Duration(c.Takes), k.cfg.AckWait), over)
	k.wire.look(func() {
		k.figure = fmt.Sprintf("held %d at most, runs %d at once", k.wire.mostHeld, k.cfg.Concurrency)
		if k.wire.mostHeld > most && !k.gone() {
			k.bad("the worker held %d commands at once, and runs %d: at most %d times as many are fine", k.wire.mostHeld, k.cfg.Concurrency, mostHeld)
		}
	})
	// What has begun ends; the rest need not.
	if err := k.rig.purge(ctx); err != nil {
		k.bad("%v", err)
	}
	k.wire.await(ctx, k.cfg.Patience+2*time.Duration(c.Takes), func() bool { return k.gone() || len(k.wire.held) == 0 })
	k.twice(orders)
}

// twice notes commands that were delivered again although the worker had not given them back: they waited too long.
func (k *kit) twice(orders []*order) {
	n := 0
	k.wire.look(func() {
		for _, o := range orders {
			last := map[uint64]*delivery{}
			for _, d := range o.given {
				if before := last[d.seq]; before != nil && d.count > 1 && (before.settled == "" || before.settle > d.tick) {
					n++
				}
				last[d.seq] = d
			}
		}
	})
	if n > 0 {
		k.bad("%d of %d commands were delivered again while the worker still had them", n, len(orders))
	}
}

func checkThroughput(ctx context.Context, k *kit) {
	began := time.Now()
	orders, err := k.sendMany(ctx, k.cfg.Commands, k.steps[0])
	if err != nil {
		k.bad("%v", err)
		return
	}
	next := 0 // those before it were answered; to count all of them at each message would be what is measured
	k.wire.await(ctx, 4*k.cfg.Patience, func() bool {
		for next < len(orders) && orders[next].answered() {
			next++
		}
		return next == len(orders) || k.gone()
	})
	took := time.Since(began)
	n := 0
	k.wire.look(func() {
		for _, o := range orders {
			if o.good() != nil && slices.ContainsFunc(o.given, func(d *delivery) bool { return d.settled == ack && !d.lost }) {
				n++
			}
		}
	})
	if n < len(orders) {
		k.bad("%d of %d commands are answered and acknowledged after %s", n, len(orders), took.Round(time.Second))
	}
	k.twice(orders)
	k.figure = fmt.Sprintf("%d commands in %s, %.0f/s", n, took.Round(time.Millisecond), float64(n)/took.Seconds())
}

// fewCommands is how many go through what has come back.
const fewCommands = 5

func checkReconnect(ctx context.Context, k *kit) {
	step := k.steps[0]
	k.door.cut()
	cut, err := k.sendMany(ctx, fewCommands, step)
	k.door.restore()
	if err != nil {
		k.bad("%v", err)
		return
	}
	if !k.allSettled(ctx, cut, "after the connection was cut") {
		return
	}
	down, err := k.sendMany(ctx, fewCommands, step)
	if err == nil {
		k.door.cut()
		err = k.rig.restart(ctx)
	}
	k.door.restore() // first the workers, then the orchestrator, as bad as it gets
	if err == nil {
		err = k.rig.furnish(ctx)
	}
	if err != nil {
		k.bad("%v", err)
		return
	}
	up, err := k.sendMany(ctx, fewCommands, step)
	if err != nil {
		k.bad("%v", err)
		return
	}
	k.wire.forget()
	if !k.allSettledWithin(ctx, k.cfg.AckWait+k.cfg.Patience, append(down, up...), "after a restart of NATS") {
		return
	}
	if k.registered(ctx, k.cfg.Patience) == nil && !k.gone() {
		k.bad("after a restart of NATS the worker is not registered any more")
	}
}

func checkConsumer(ctx context.Context, k *kit) {
	if err := k.rig.recreate(ctx); err != nil {
		k.bad("%v", err)
		return
	}
	began := time.Now()
	if k.askMany(ctx, fewCommands, "after its consumer was made again", k.steps[0]) {
		k.figure = fmt.Sprintf("after %s", time.Since(began).Round(time.Millisecond))
	}
}

// burst sends commands, slow ones if the team has a case for them, and waits until the worker is in the middle of them.
func (k *kit) burst(ctx context.Context) (orders []*order, ok bool) {
	c := k.slow(time.Second)
	n := 50
	if c != nil && time.Duration(c.Takes) < k.cfg.Drain-time.Second {
		n = k.cfg.Concurrency
	} else {
		c = nil
	}
	for range n {
		var o *order
		var err error
		if c != nil {
			o, err = k.orderOf(c)
		} else {
			o, err = k.order(k.steps[0])
		}
		if err == nil {
			err = k.send(ctx, o)
		}
		if err != nil {
			k.bad("%v", err)
			return nil, false
		}
		orders = append(orders, o)
	}
	began := k.wire.await(ctx, k.cfg.Patience, func() bool {
		return k.gone() || slices.ContainsFunc(orders, func(o *order) bool { return len(o.outcomes) > 0 || c != nil && len(o.given) > 0 })
	})
	if !began {
		k.bad("the worker did not begin within %s", k.cfg.Patience)
	}
	return orders, began
}

// holds is how many commands the worker has, and has not settled.
func (k *kit) holds() (n int) {
	k.wire.look(func() { n = len(k.wire.held) })
	return n
}

const attached = "somebody else runs the worker: let the check start it to have this checked"

func checkStop(ctx context.Context, k *kit) {
	if k.instance == nil {
		k.skip(attached)
		return
	}
	orders, ok := k.burst(ctx)
	if !ok {
		return
	}
	began, held := time.Now(), k.holds()
	if err := k.instance.Stop(); err != nil {
		k.bad("%v", err)
		return
	}
	limit := k.cfg.Drain + 10*time.Second
	select {
	case <-k.instance.Done():
		took := time.Since(began)
		if err := k.instance.Err(); err != nil {
			k.bad("it ended with %v: want exit code 0; the last that it printed:\n%s", err, k.output.last(8))
		}
		k.figure = fmt.Sprintf("ended after %s, held %d commands when it was stopped", took.Round(time.Millisecond), held)
	case <-time.After(limit):
		k.bad("it has not ended %s after SIGTERM, with a drain time of %s", limit, k.cfg.Drain)
		k.kill()
	case <-ctx.Done():
		return
	}
	// What it sent last is still on its way to us.
	k.wire.await(ctx, time.Second, func() bool { return len(k.wire.held) == 0 })
	k.wire.look(func() {
		if n := len(k.wire.held); n > 0 {
			k.bad("it kept %d commands that it neither answered nor gave back: they stand still for the ack wait, %s", n, k.cfg.AckWait)
		}
	})
	if k.registered(ctx, answerPatience) != nil {
		k.bad("it has ended, and something still answers as %s%s", worker.ServicePrefix, k.cfg.Worker)
	}
	k.next(ctx, orders, "after it was stopped and started again")
}

func checkKill(ctx context.Context, k *kit) {
	if k.instance == nil {
		k.skip(attached)
		return
	}
	orders, ok := k.burst(ctx)
	if !ok {
		return
	}
	k.kill()
	k.figure = fmt.Sprintf("held %d commands when it was killed", k.holds())
	k.next(ctx, orders, "after it was killed and started again")
}

// next starts another instance, which has to do what the one before has left.
func (k *kit) next(ctx context.Context, orders []*order, what string) {
	if err := k.another(); err != nil {
		k.bad("it cannot be started again: %v", err)
		return
	}
	k.allSettledWithin(ctx, k.cfg.AckWait+2*k.cfg.Patience, orders, what)
}
