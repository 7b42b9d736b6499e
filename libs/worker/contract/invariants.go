package contract

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"mime"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
)

// skew is the maximum difference between the clocks of the worker and the kit.
const skew = 2 * time.Second

const (
	maxDetails = 256 << 10
	maxRetry   = 24 * time.Hour
)

// invariants evaluate all earlier messages of the worker.
func invariants() []check {
	return []check{
		{
			"one-result", "publishes exactly one result each time it executes a command", "publish once; the same result again only if the stream has not answered",
			false, checkOneResult,
		},
		{
			"acknowledged-last", "never acknowledges before its result is in the stream", "wait for the answer of the stream, then acknowledge", false,
			func(_ context.Context, k *kit) { k.unanswered() },
		},
		{
			"late-progress", "reports no progress after the executeBefore of a command", "stop +WPI at executeBefore, also if the step does not end: the bus then delivers the command again",
			false, checkLateProgress,
		},
		{
			"more-time", "asks for more time only for a command that it executes, or not at all",
			"ask keb.ask.orchestrator.extend.<worker> with operationId, cursor and seconds (more than 0, at most a day), before executeBefore and before the result",
			false, checkMoreTime,
		},
		{"subject", "publishes results on keb.result.<worker>.<step>", "take the step from the command", false, each(checkSubject)},
		{
			"attributes", "sends CloudEvents 1.0 in binary mode, with the type, source, id and time of the contract",
			"set ce-specversion, ce-id, ce-type, ce-source and ce-time as headers, and the JSON of the result as the body", false, each(checkAttributes),
		},
		{
			"message-id", "gives each result the message id <operation id>/<cursor>/<dispatch>", "set Nats-Msg-Id, so that the stream drops a second copy", false,
			each(checkMessageID),
		},
		{"echo", "repeats operation id, cursor, stage and step of the command, and names itself", "copy them from the command", false, each(checkEcho)},
		{"schema", "sends bodies that fit the JSON Schema of their type", "validate against api/events", false, each(checkSchema)},
		{"trace", "goes on with the trace of the command", "copy ce-traceparent, or send that of a span below it", false, each(checkTrace)},
		{"times", "says when it began and ended, by a clock that is right", "set startedAt and finishedAt around the step; UTC is best", false, each(checkTimes)},
		{
			"details", "patches members of its own details only, at most 256 KiB", "details are the members under the worker's own name, without that name around them",
			false, each(checkDetails),
		},
		{
			"errors", "reports component, reason and message of an error", "an operator sorts errors by component and reason", false, each(checkError),
		},
		{"retry-after", "asks for a wait of 0 seconds to a day", "retryAfter is in seconds", false, each(checkRetryAfter)},
		{
			"secrets", "keeps secrets out of everything that it sends and prints", "keep credentials, keys and the stage memory out of results, details, errors and logs",
			false, checkSecrets,
		},
		{
			"panics", "never panics", "the worker's own log has the stack; check what may be missing in a command before you use it", false,
			each(checkPanic),
		},
		{
			"bucket", "keeps only values of operations in the stage memory", "write under <operation id>.<stage>.<attempt>: the orchestrator removes these keys when the stage ends",
			false, checkBucket,
		},
		{"permissions", "tries nothing that its user on the bus may not do", "look at libs/event/permissions.go for what a worker may", false, checkPermissions},
	}
}

// checkLateProgress tolerates one late report of a delivery, which may have been delayed on its way.
func checkLateProgress(_ context.Context, k *kit) {
	k.wire.look(func() {
		for _, d := range k.wire.deliveries {
			if d.late > 1 {
				k.bad("%s: the worker reported progress %d times more than %s after executeBefore", d.order.command.Step, d.late, lateGrace)
			}
		}
	})
}

func checkMoreTime(_ context.Context, k *kit) {
	k.rig.states.mu.Lock()
	refused := slices.Clone(k.rig.states.extensions)
	k.rig.states.mu.Unlock()
	for _, request := range refused {
		k.bad("a request on %s is refused: %s", event.AskExtendAs(k.cfg.Worker), request)
	}
	k.wire.look(func() { k.figure = fmt.Sprintf("%d times granted", k.wire.extensions) })
}

// each makes a check from a function for one result. The order of that result is never nil.
func each(f func(k *kit, r *result) []string) func(context.Context, *kit) {
	return func(_ context.Context, k *kit) {
		k.wire.look(func() {
			if len(k.wire.results) == 0 {
				k.skip("there was no result")
				return
			}
			for _, r := range k.wire.results {
				if r.order == nil {
					continue // the check one-result reports it
				}
				for _, problem := range f(k, r) {
					k.bad("%s: %s", r.order.command.Step, problem)
				}
			}
		})
		slices.Sort(k.problems)
	}
}

func checkOneResult(_ context.Context, k *kit) {
	k.wire.look(func() {
		if len(k.wire.results) == 0 {
			k.skip("there was no result")
			return
		}
		for _, r := range k.wire.results {
			if r.order == nil {
				k.bad("a result on %s belongs to no command: %.100q", r.subject, r.data)
			}
		}
		for _, o := range k.wire.orders {
			times, bodies := map[string]int{}, map[string]map[string]bool{}
			for _, d := range o.given {
				times[d.id]++
			}
			for _, r := range o.outcomes {
				id := cmp.Or(header(r.header, "ce-id"), r.header.Get(nats.MsgIdHdr))
				if bodies[id] == nil {
					bodies[id] = map[string]bool{}
				}
				bodies[id][string(r.data)] = true
			}
			for id, different := range bodies {
				if n := times[id]; n > 0 && len(different) > n {
					k.bad("%s: a command that was delivered %s got %d different results", o.command.Step, number(n), len(different))
				}
			}
		}
	})
}

func number(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// unanswered reports commands that were acknowledged before one of their results was in the stream.
func (k *kit) unanswered() {
	k.wire.look(func() {
		for _, o := range k.wire.orders {
			if o.quiet {
				continue
			}
			stored := math.MaxInt
			for _, r := range o.outcomes {
				if r.stored > 0 {
					stored = min(stored, r.stored)
				}
			}
			for _, d := range o.given {
				if d.settled == ack && d.settle < stored {
					k.bad("%s: a command was acknowledged, and its result was not in the stream then", o.command.Step)
				}
			}
		}
	})
}

func checkPanic(_ *kit, r *result) []string {
	if r.panicked() {
		return []string{"the step panicked: " + r.why()}
	}
	return nil
}

func checkSubject(k *kit, r *result) []string {
	if want := event.ResultSubject(k.cfg.Worker, r.order.command.Step); r.subject != want {
		return []string{fmt.Sprintf("the result is on %s: want %s", r.subject, want)}
	}
	return nil
}

func checkAttributes(k *kit, r *result) (problems []string) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if media, _, err := mime.ParseMediaType(header(r.header, "content-type")); err == nil && strings.HasPrefix(media, "application/cloudevents") {
		return []string{"the event is in structured mode: want binary mode, with the attributes in headers"}
	}
	want := func(name, want string) {
		if got := header(r.header, name); got != want {
			bad("%s is %q: want %q", name, got, want)
		}
	}
	want("ce-specversion", "1.0")
	want("ce-source", event.WorkerSource(k.cfg.Worker))
	if r.outcome() == "" {
		bad("ce-type is %q: want the type of a result, for example %q", header(r.header, "ce-type"), event.TypeStepSucceeded)
	}
	if id := header(r.header, "ce-id"); !r.order.ids[id] {
		bad("ce-id is %q: want <operation id>/<cursor>/<dispatch> of the command", id)
	}
	if at := header(r.header, "ce-time"); at == "" {
		bad("ce-time is missing")
	} else if _, err := time.Parse(time.RFC3339Nano, at); err != nil {
		bad("ce-time is %q: want a time as in RFC 3339", at)
	}
	if ct := header(r.header, "ce-datacontenttype"); ct != "" && ct != "application/json" {
		bad("ce-datacontenttype is %q: want application/json", ct)
	}
	if subject := header(r.header, "ce-subject"); subject != "" && subject != r.order.command.Operation.ID {
		bad("ce-subject is %q: want the operation id", subject)
	}
	return problems
}

func checkMessageID(_ *kit, r *result) []string {
	if id := r.header.Get(nats.MsgIdHdr); !r.order.ids[id] {
		return []string{fmt.Sprintf("Nats-Msg-Id is %q: want %q", id, event.DispatchID(r.order.command.Operation.ID, r.order.command.Cursor, r.order.command.Dispatch))}
	}
	return nil
}

func checkEcho(k *kit, r *result) (problems []string) {
	c, b := &r.order.command, &r.body
	for _, field := range []struct {
		name      string
		got, want any
	}{
		{"operationId", b.OperationID, c.Operation.ID},
		{"cursor", b.Cursor, c.Cursor},
		{"stage", b.Stage, c.Stage},
		{"step", b.Step, c.Step},
		{"worker.name", b.Worker.Name, k.cfg.Worker},
	} {
		if field.got != field.want {
			problems = append(problems, fmt.Sprintf("%s is %v: want %v, as in the command", field.name, quoted(field.got), quoted(field.want)))
		}
	}
	return problems
}

func quoted(v any) any {
	if s, ok := v.(string); ok {
		return fmt.Sprintf("%q", s)
	}
	return v
}

//go:embed schemas/*.json
var schemaFiles embed.FS

// schemas are compiled at their first use.
var schemas = sync.OnceValues(func() (map[event.Type]*jsonschema.Schema, error) {
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	compiled := map[event.Type]*jsonschema.Schema{}
	for _, entry := range event.Contract() {
		if entry.Direction != event.WorkerToOrchestrator {
			continue
		}
		name := "schemas/" + string(entry.Type) + ".schema.json"
		raw, err := schemaFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
		if err != nil {
			return nil, err
		}
		// A schema needs an absolute URL: a relative name would be resolved against the working folder.
		address := "keb:/" + name
		if err := compiler.AddResource(address, document); err != nil {
			return nil, err
		}
		if compiled[entry.Type], err = compiler.Compile(address); err != nil {
			return nil, err
		}
	}
	return compiled, nil
})

func checkSchema(k *kit, r *result) []string {
	if !r.readable && !json.Valid(r.data) {
		return []string{"the body is no JSON"}
	}
	all, err := schemas()
	if err != nil {
		return []string{err.Error()}
	}
	schema := all[r.kind]
	if schema == nil || len(checkEcho(k, r)) > 0 {
		return nil // other checks report these
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(r.data))
	if err == nil {
		err = schema.Validate(document)
	}
	if err == nil {
		return nil
	}
	invalid, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return []string{err.Error()}
	}
	var problems []string
	for _, line := range strings.Split(invalid.Error(), "\n")[1:] {
		problems = append(problems, string(r.kind)+": "+strings.TrimSpace(strings.TrimLeft(line, " -")))
	}
	return problems
}

var parents = regexp.MustCompile(`^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}$`)

func checkTrace(_ *kit, r *result) []string {
	got := header(r.header, "ce-traceparent")
	want := r.order.trace[3:35]
	if match := parents.FindStringSubmatch(got); match == nil || match[1] != want {
		return []string{fmt.Sprintf("ce-traceparent is %q: want one of the trace %s, which the command named", got, want)}
	}
	return nil
}

func checkTimes(_ *kit, r *result) (problems []string) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	start, end := r.body.StartedAt, r.body.FinishedAt
	if start.IsZero() || end.IsZero() {
		return nil // the schema reports it
	}
	if end.Before(start) {
		bad("finishedAt %s is before startedAt %s", end.Format(time.RFC3339Nano), start.Format(time.RFC3339Nano))
	}
	if late := end.Sub(r.at); late > skew {
		bad("finishedAt is %s after the result was sent", late.Round(time.Millisecond))
	}
	if given := r.order.given; len(given) > 0 && start.Before(given[0].at.Add(-skew)) {
		bad("startedAt is %s before the command was delivered", given[0].at.Sub(start).Round(time.Millisecond))
	}
	return problems
}

func checkDetails(k *kit, r *result) (problems []string) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if len(r.body.Details) > maxDetails {
		bad("details have %d bytes: at most %d are allowed", len(r.body.Details), maxDetails)
	}
	var patch, before map[string]json.RawMessage
	if json.Unmarshal(r.body.Details, &patch) != nil {
		return problems // no value, or not an object, which the schema reports
	}
	_ = json.Unmarshal(r.order.command.Details, &before) // created by the kit
	for name, value := range patch {
		_, others := before[name]
		isObject := bytes.HasPrefix(bytes.TrimSpace(value), []byte("{"))
		if (name == k.cfg.Worker || others && name != k.cfg.Worker) && isObject {
			bad("details.%s looks like the details of worker %s: a patch has the members of the worker's own part, and nothing of others", name, name)
		}
	}
	if event.HoldsNUL(r.data) {
		bad("a text holds a NUL character, which cannot be stored")
	}
	return problems
}

func checkError(_ *kit, r *result) (problems []string) {
	e := r.body.Error
	if e == nil {
		return nil // the schema reports a required value that is missing
	}
	for _, field := range []struct{ name, value string }{{"component", e.Component}, {"reason", e.Reason}, {"message", e.Message}} {
		if strings.TrimSpace(field.value) == "" {
			problems = append(problems, fmt.Sprintf("the error of a result %q has no %s", r.outcome(), field.name))
		}
	}
	return problems
}

func checkRetryAfter(_ *kit, r *result) []string {
	if after := r.body.RetryAfter; after < 0 || after > maxRetry.Seconds() {
		return []string{fmt.Sprintf("retryAfter is %v seconds: want 0 to %v", after, maxRetry.Seconds())}
	}
	return nil
}

func checkSecrets(ctx context.Context, k *kit) {
	secrets := k.rig.secrets()
	own := func(m *nats.Msg) bool {
		var is micro.ServiceIdentity
		return json.Unmarshal(m.Data, &is) == nil && (is.Name == worker.ServicePrefix+k.cfg.Worker || is.Metadata[worker.MetadataWorker] == k.cfg.Worker)
	}
	for _, ask := range []struct {
		subject string
		within  time.Duration
	}{{"$SRV.INFO", k.cfg.Patience}, {"$SRV.STATS", statsPatience}} {
		m := k.service(ctx, ask.within, ask.subject, own)
		if m == nil {
			continue // the check registration reports it
		}
		for value, what := range secrets {
			if strings.Contains(string(m.Data), value) {
				k.bad("the micro service shows %s", what)
			}
		}
	}
	k.wire.look(func() {
		for leak := range k.wire.leaks {
			k.bad("%s", leak)
		}
	})
	for _, what := range k.output.leaks() {
		k.bad("the worker printed %s", what)
	}
	slices.Sort(k.problems)
}

func checkPermissions(_ context.Context, k *kit) {
	k.wire.look(func() { k.problems = append(k.problems, k.wire.refused...) })
	slices.Sort(k.problems)
}
