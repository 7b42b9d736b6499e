package contract

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
)

func checkRegistration(ctx context.Context, k *kit) {
	info := k.registered(ctx, k.cfg.Patience)
	if info == nil {
		k.bad("no answer to $SRV.INFO for %s%s within %s; the last that the worker printed:\n%s",
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
		k.bad("no answer to %s within %s", ping, k.cfg.Patience)
	}
}

// checkAnswers sends the commands of all steps at once, so that a worker that hangs is waited for only once.
func checkAnswers(ctx context.Context, k *kit) {
	orders := make([]*order, len(k.steps))
	for i, step := range k.steps {
		o, err := k.order(step)
		if err == nil {
			err = k.send(ctx, o)
		}
		if err != nil {
			k.bad("%s: %v", step, err)
			return
		}
		orders[i] = o
	}
	k.wire.await(ctx, k.cfg.Patience, func() bool { return k.gone() || allAnswered(orders) })
	for i, step := range k.steps {
		answered := false
		if k.wire.look(func() { answered = orders[i].answered() }); !answered {
			k.unsettled(k.cfg.Patience, orders[i], step)
			continue
		}
		k.base[step] = orders[i]
		r := k.first(orders[i])
		k.figure += fmt.Sprintf("%s%s: %s", comma(k.figure), step, r.outcome())
		if r.panicked() {
			k.bad("%s: the step panicked: %s", step, r.why())
		}
	}
}

func comma(s string) string {
	if s == "" {
		return ""
	}
	return ", "
}

// checkCases sends the commands of all cases at once.
func checkCases(ctx context.Context, k *kit) {
	sent := map[*Case]*order{}
	var slowest Duration
	for i := range k.cfg.Cases {
		c := &k.cfg.Cases[i]
		if c.Cleanup {
			continue
		}
		if !slices.Contains(k.steps, c.Step) {
			k.bad("%s: step %s is none of this check: %s", c.Name, c.Step, strings.Join(k.steps, ", "))
			continue
		}
		o, err := k.orderOf(c)
		if err == nil {
			err = k.send(ctx, o)
		}
		if err != nil {
			k.bad("%s: %v", c.Name, err)
			continue
		}
		sent[c], slowest = o, max(slowest, c.Takes)
	}
	if len(sent) == 0 && len(k.problems) == 0 {
		k.skip("there are no cases: write some, and give them with --case")
	}
	orders := slices.Collect(maps.Values(sent))
	within := k.cfg.Patience + 2*time.Duration(slowest)
	k.wire.await(ctx, within, func() bool { return k.gone() || allAnswered(orders) })
	for i := range k.cfg.Cases {
		c := &k.cfg.Cases[i]
		o := sent[c]
		if o == nil {
			continue
		}
		answered := false
		if k.wire.look(func() { answered = o.answered() }); !answered {
			k.unsettled(within, o, c.Name)
			continue
		}
		k.expect(c, k.first(o))
	}
	k.figure = fmt.Sprintf("%d cases", len(sent))
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
	awaited := event.AwaitedEvent{}
	if r.body.Event != nil {
		awaited = *r.body.Event
	}
	if key := strings.ReplaceAll(want.Event, "{operation}", r.body.OperationID); key != "" && awaited.Key != key {
		k.bad("%s: event.key is %q: want %q", c.Name, awaited.Key, key)
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
	_ = json.Unmarshal(r.body.Details, &details) // a value that is not an object has no members
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
