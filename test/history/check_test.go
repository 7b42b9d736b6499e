package history_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/test/history"
)

// shortLimit is the time for the search of one instance.
const shortLimit = 20 * time.Second

// answer is an invocation of one instance; its outcome follows from the status, and 0 is no answer.
func answer(kind history.Kind, status int, operation, value string) *history.Record {
	outcome := history.OK
	switch {
	case status == 0 || status >= 500:
		outcome = history.Unknown
	case status >= 400:
		outcome = history.Failed
	}
	return &history.Record{Kind: kind, Instance: "i", Status: status, Operation: operation, Value: value, Outcome: outcome}
}

func provision(value string, status int, op string) *history.Record {
	return answer(history.Provision, status, op, value)
}

func update(value string, status int, op string) *history.Record {
	return answer(history.Update, status, op, value)
}

func remove(status int, op string) *history.Record {
	return answer(history.Deprovision, status, op, "")
}
func get(status int, value string) *history.Record { return answer(history.Get, status, "", value) }

func poll(op, state string) *history.Record {
	r := answer(history.Poll, 200, op, "")
	r.State = state
	return r
}

func refusedPoll(op string, status int) *history.Record { return answer(history.Poll, status, op, "") }

func binding(kind history.Kind, status int, value string) *history.Record {
	r := answer(kind, status, "", value)
	r.Binding = "b"
	return r
}

func of(instance string, r *history.Record) *history.Record { r.Instance = instance; return r }

// during lets an invocation return after the n following ones.
func during(n int64, r *history.Record) *history.Record { r.Return = n; return r }

func objects(kind history.Kind, n int) *history.Record {
	r := &history.Record{Kind: kind, Objects: map[string]int{"avs/evaluation": n}}
	if kind == history.Holds {
		r.Instance = "i"
	}
	return r
}

// transitions are the ledger of a provisioning: its transitions are 1 to 3.
func transitions(op string) (records []*history.Record) {
	for cursor := range int64(3) {
		records = append(records, &history.Record{Kind: history.Transition, Instance: "i", Operation: op, Cursor: cursor + 1, Type: "provision"})
	}
	return records
}

func fact(op string, cursor int64, kind string) *history.Record {
	return &history.Record{Kind: history.Fact, Instance: "i", Operation: op, Cursor: cursor, Type: kind}
}

// sequence places the invocations one after the other. An element is a record, or several.
func sequence(elements ...any) (records []*history.Record) {
	for _, e := range elements {
		if several, ok := e.([]*history.Record); ok {
			records = append(records, several...)
			continue
		}
		records = append(records, e.(*history.Record))
	}
	for i, r := range records {
		r.Call = int64(i)*10 + 1
		r.Return = r.Call + r.Return*10 + 5
	}
	return records
}

// provisioned is the beginning of most histories.
func provisioned() []*history.Record {
	return []*history.Record{provision("1", 202, "A"), poll("A", "in progress"), poll("A", "succeeded")}
}

func deleted() []*history.Record {
	return []*history.Record{remove(202, "Z"), poll("Z", "succeeded")}
}

// ledger is that of a provisioned instance, without facts.
func counts(holds, created int) []*history.Record {
	return append(transitions("A"), objects(history.Complete, 2), objects(history.Holds, holds), objects(history.Created, created))
}

func allFacts() []*history.Record {
	return []*history.Record{fact("A", 1, "started"), fact("A", 2, "step-finished"), fact("A", 3, "succeeded")}
}

func TestCheck_CorrectHistory_IsAccepted(t *testing.T) {
	t.Parallel()
	for name, h := range map[string][]*history.Record{
		"empty": sequence(),
		"life": sequence(provision("1", 202, "A"), get(404, ""), update("2", 422, ""), poll("A", "succeeded"), get(200, "1"), update("2", 202, "B"),
			get(422, ""), poll("B", "succeeded"), get(200, "2"), update("2", 200, ""), remove(202, "C"), update("3", 422, ""), poll("C", "in progress"),
			poll("A", "succeeded"), poll("C", "succeeded"), get(404, ""), update("3", 404, ""), remove(410, ""), refusedPoll("C", 410)),
		"repetitions": sequence(provision("1", 202, "A"), provision("1", 202, "A"), provision("2", 409, ""), poll("A", "succeeded"), provision("1", 200, ""),
			update("2", 202, "B"), update("2", 202, "B"), update("3", 422, ""), poll("B", "succeeded"), remove(202, "C"), remove(202, "C"),
			provision("1", 422, ""), poll("C", "succeeded")),
		"ordered again after the end": sequence(provisioned(), deleted(), provision("2", 202, "B"), poll("B", "succeeded"), get(200, "2"), poll("Z", "succeeded")),
		"answer lost, request accepted": sequence(provision("1", 0, ""), provision("1", 202, "A"), poll("A", "succeeded"), update("2", 503, ""),
			get(422, ""), update("2", 202, "B"), poll("B", "succeeded"), get(200, "2")),
		"request lost":                      sequence(provisioned(), update("2", 0, ""), get(200, "1"), update("3", 202, "B"), poll("B", "succeeded"), get(200, "3")),
		"unknown request takes effect late": sequence(provisioned(), update("2", 0, ""), get(200, "1"), get(200, "1"), get(422, ""), get(200, "2")),
		"unknown deletion takes effect":     sequence(provisioned(), remove(500, ""), get(404, ""), remove(410, "")),
		"concurrent updates": sequence(provisioned(), during(2, update("2", 202, "B")), update("3", 422, ""), get(422, ""), poll("B", "succeeded"),
			get(200, "2")),
		"concurrent read sees the old value": sequence(provisioned(), during(3, get(200, "1")), update("2", 202, "B"), poll("B", "succeeded"), get(200, "2")),
		"concurrent polls overtake each other": sequence(provision("1", 202, "A"), during(1, poll("A", "in progress")), poll("A", "succeeded"),
			get(200, "1")),
		"deletion during provisioning": sequence(provision("1", 202, "A"), remove(202, "B"), poll("A", "failed"), poll("B", "succeeded"), get(404, "")),
		"deletion during update": sequence(provisioned(), update("2", 202, "B"), remove(202, "C"), poll("B", "failed"), poll("C", "in progress"),
			poll("C", "succeeded")),
		"failed update is repeated": sequence(provisioned(), update("2", 202, "B"), poll("B", "failed"), get(200, "1"), update("1", 202, "C"),
			poll("C", "succeeded"), update("1", 200, "")),
		"failed provisioning is removed": sequence(provision("1", 202, "A"), poll("A", "failed"), provision("1", 409, ""), update("2", 422, ""), get(404, ""),
			deleted()),
		"failed deletion is repeated": sequence(provisioned(), remove(202, "B"), poll("B", "failed"), provision("1", 409, ""), deleted()),
		"bindings": sequence(provisioned(), binding(history.Bind, 0, ""), binding(history.Bind, 201, "k"), binding(history.GetBinding, 200, "k"),
			binding(history.Bind, 200, "k"), binding(history.Unbind, 200, ""), binding(history.GetBinding, 404, "")),
		"binding ends with its instance": sequence(provisioned(), binding(history.Bind, 201, "k"), deleted(), binding(history.GetBinding, 404, "")),
		"binding refused while busy":     sequence(provision("1", 202, "A"), binding(history.Bind, 422, ""), poll("A", "succeeded")),
		"ledger":                         sequence(provisioned(), get(200, "1"), counts(2, 2), allFacts(), fact("A", 3, "succeeded")),
		"ledger of a removed instance": sequence(provision("1", 202, "A"), remove(202, "B"), poll("A", "failed"), poll("B", "succeeded"), get(404, ""),
			counts(0, 1), fact("A", 1, "started"), fact("A", 2, "step-finished"), fact("A", 3, "cancelled"),
			&history.Record{Kind: history.Transition, Instance: "i", Operation: "B", Cursor: 1}, fact("B", 1, "started"), fact("B", 2, "succeeded")),
		"instances are independent": sequence(provisioned(), of("j", provision("9", 202, "J")), of("j", poll("J", "succeeded")), of("j", get(200, "9")), get(200, "1")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, v := range history.Check(h, shortLimit).Violations {
				t.Error(v)
			}
		})
	}
}

// only are the contradicted rules of a history.
func only(rules ...history.Rule) []history.Rule { return rules }

// planted are histories that contradict one promise each. The offending invocation is the last of those that the violation names.
var planted = []struct {
	name     string
	history  []*history.Record
	rules    []history.Rule
	problem  string
	offender int // index in the history; -1 for none
}{
	{
		"stale read after an update", sequence(provisioned(), update("2", 202, "B"), poll("B", "succeeded"), get(200, "1")),
		only(history.Linearizable), "explains", 5,
	},
	{"read goes back", sequence(provisioned(), update("2", 0, ""), get(200, "2"), get(200, "1")), only(history.Linearizable), "explains", 5},
	{"value that was never sent", sequence(provisioned(), get(200, "7")), only(history.Linearizable), "explains", 3},
	{
		"value of a refused update", sequence(provision("1", 202, "A"), update("2", 422, ""), poll("A", "succeeded"), get(200, "2")),
		only(history.Linearizable), "explains", 3,
	},
	{
		"value of a failed update", sequence(provisioned(), update("2", 202, "B"), poll("B", "failed"), get(200, "2")),
		only(history.Linearizable), "explains", 5,
	},
	{
		"one of two accepted updates is lost", sequence(provisioned(), update("2", 202, "B"), poll("B", "succeeded"), update("3", 202, "C"),
			poll("C", "succeeded"), get(200, "2")),
		only(history.Linearizable), "explains", 7,
	},
	{
		"value before the end of the update", sequence(provisioned(), update("2", 202, "B"), get(200, "2"), poll("B", "in progress"),
			poll("B", "succeeded")),
		only(history.Linearizable), "explains", 5,
	},
	{
		"instance visible while it is ordered", sequence(provision("1", 202, "A"), get(200, "1"), poll("A", "in progress"),
			poll("A", "succeeded")),
		only(history.Linearizable), "explains", 2,
	},
	{"instance vanishes without a deletion", sequence(provisioned(), get(404, "")), only(history.Linearizable), "explains", 3},
	{"instance visible after its deletion", sequence(provisioned(), deleted(), get(200, "1")), only(history.Linearizable), "explains", 5},
	{"other order is accepted for an existing instance", sequence(provisioned(), provision("2", 200, "")), only(history.Linearizable), "explains", 3},
	{
		"other order during the provisioning is accepted", sequence(provision("1", 202, "A"), provision("2", 202, "B"), poll("B", "in progress"),
			poll("A", "succeeded"), poll("B", "succeeded")),
		only(history.Linearizable), "explains", 1,
	},
	{"conflict without an instance", sequence(provision("1", 409, "")), only(history.Linearizable), "explains", 0},
	{
		"repetition gets a second operation", sequence(provision("1", 202, "A"), provision("1", 202, "B"), poll("A", "succeeded"),
			poll("B", "succeeded")),
		only(history.Linearizable), "explains", 1,
	},
	{
		"two updates at the same time", sequence(provisioned(), update("2", 202, "B"), update("3", 202, "C"), poll("B", "in progress"),
			poll("B", "succeeded"), poll("C", "succeeded")),
		only(history.Linearizable), "explains", 5,
	},
	{
		"update before the end of the provisioning", sequence(provision("1", 202, "A"), update("2", 202, "B"), poll("A", "in progress"),
			poll("A", "succeeded"), poll("B", "succeeded")),
		only(history.Linearizable), "explains", 2,
	},
	{
		"update of a deleted instance", sequence(provisioned(), deleted(), update("2", 202, "B"), poll("B", "succeeded")),
		only(history.Linearizable), "explains", 5,
	},
	{"change without an operation", sequence(provisioned(), update("2", 200, "")), only(history.Linearizable), "explains", 3},
	{"operation without a change", sequence(provisioned(), update("1", 202, "B"), poll("B", "succeeded")), only(history.Linearizable), "explains", 3},
	{"concurrency error on an idle instance", sequence(provisioned(), update("2", 422, "")), only(history.Linearizable), "explains", 3},
	{"deletion of an existing instance answered 410", sequence(provisioned(), remove(410, "")), only(history.Linearizable), "explains", 3},
	{
		"second deletion of a deleted instance", sequence(provisioned(), deleted(), remove(202, "Y"), poll("Y", "succeeded")),
		only(history.Linearizable), "explains", 5,
	},
	{"refused deletion takes effect", sequence(provisioned(), remove(422, ""), get(404, "")), only(history.Linearizable), "explains", 3},
	{
		"unknown update takes effect twice", sequence(provisioned(), update("2", 0, ""), get(200, "2"), update("3", 202, "C"),
			poll("C", "succeeded"), get(200, "2")),
		only(history.Linearizable), "explains", 7,
	},
	{
		"binding of an instance that is ordered", sequence(provision("1", 202, "A"), binding(history.Bind, 201, "k"), poll("A", "in progress"),
			poll("A", "succeeded")),
		only(history.Linearizable), "explains", 2,
	},
	{
		"older operation in progress", sequence(provisioned(), update("2", 202, "B"), remove(202, "C"), poll("B", "in progress"),
			poll("B", "failed"), poll("C", "succeeded")),
		only(history.Linearizable), "explains", 5,
	},
	{
		"410 for a poll before the end", sequence(provisioned(), remove(202, "B"), refusedPoll("B", 410), get(200, "1")),
		only(history.Linearizable), "explains", 5,
	},
	{
		"ended operation is in progress again", sequence(provisioned(), poll("A", "in progress")),
		only(history.Monotonic, history.Linearizable), "had ended", 3,
	},
	{
		"operation has two ends", sequence(provision("1", 202, "A"), poll("A", "failed"), poll("A", "succeeded")),
		only(history.Monotonic, history.Linearizable), "two ends", 2,
	},
	{"accepted operation is unknown", sequence(provision("1", 202, "A"), refusedPoll("A", 404)), only(history.Final), "does not have", 1},
	{"ended operation is lost", sequence(provisioned(), refusedPoll("A", 404)), only(history.Final), "does not have", 3},
	{"accepted operation never ends", sequence(provision("1", 202, "A"), poll("A", "in progress")), only(history.Final), "no poll", 0},
	{"accepted operation is never polled", sequence(provisioned(), update("2", 202, "B")), only(history.Final), "no poll", 3},
	{
		"one operation for two instances", sequence(provisioned(), of("j", provision("1", 202, "A")), of("j", poll("A", "succeeded"))),
		only(history.OneRequest), "two requests", 3,
	},
	{
		"one operation for two values", sequence(provisioned(), update("2", 202, "B"), poll("B", "succeeded"), update("3", 202, "B")),
		only(history.OneRequest, history.Linearizable), "two requests", 5,
	},
	{
		"answered binding does not exist", sequence(provisioned(), binding(history.Bind, 201, "k"), binding(history.GetBinding, 404, "")),
		only(history.Exists), "does not exist", 4,
	},
	{
		"binding gone after a refused removal", sequence(provisioned(), binding(history.Bind, 201, "k"), binding(history.Unbind, 422, ""),
			binding(history.GetBinding, 404, "")),
		only(history.Exists), "does not exist", 5,
	},
	{
		"binding with other credentials", sequence(provisioned(), binding(history.Bind, 201, "k"), binding(history.GetBinding, 200, "l")),
		only(history.Exists), "other credentials", 4,
	},
	{
		"removed binding exists", sequence(provisioned(), binding(history.Bind, 201, "k"), binding(history.Unbind, 200, ""),
			binding(history.GetBinding, 200, "k")),
		only(history.Exists), "was removed", 5,
	},
	{"doubled object", sequence(provisioned(), get(200, "1"), counts(3, 2), allFacts()), only(history.NotDoubled), "3 of avs/evaluation, want 2", 8},
	{"missing object", sequence(provisioned(), get(200, "1"), counts(1, 2), allFacts()), only(history.NotMissing), "1 of avs/evaluation, want 2", 8},
	{
		"object of a deleted instance", sequence(provision("1", 202, "A"), remove(0, ""), poll("A", "failed"), get(404, ""), counts(1, 1),
			fact("A", 1, "started"), fact("A", 2, "step-finished"), fact("A", 3, "cancelled")),
		only(history.NotDoubled), "1 of avs/evaluation, want 0", 8,
	},
	{
		"object created twice and removed once", sequence(provisioned(), get(200, "1"), counts(2, 4), allFacts()),
		only(history.NotDoubled), "4 of avs/evaluation, want 2", 9,
	},
	{"object never created", sequence(provisioned(), get(200, "1"), counts(2, 1), allFacts()), only(history.NotMissing), "1 of avs/evaluation, want 2", 9},
	{"objects without a last read", sequence(get(404, ""), provisioned(), counts(2, 2), allFacts()), only(history.WellFormed), "no get", -1},
	{
		"gap in the facts", sequence(provisioned(), transitions("A"), fact("A", 1, "started"), fact("A", 3, "succeeded")),
		only(history.Gapless), "no fact for cursor 2", 4,
	},
	{"facts without a start", sequence(provisioned(), transitions("A")[1:], allFacts()[1:]), only(history.Gapless), "about its start", 5},
	{"facts without an end", sequence(provisioned(), transitions("A")[:2], allFacts()[:2]), only(history.Gapless), "about its end", 6},
	{"fact after the end", sequence(provisioned(), transitions("A"), allFacts(), fact("A", 4, "step-finished")), only(history.Gapless), "after its end", 9},
	{"two ends in the facts", sequence(provisioned(), transitions("A"), allFacts(), fact("A", 3, "failed")), only(history.Gapless), "after its end", 9},
	{"start after another fact", sequence(provisioned(), transitions("A"), allFacts(), fact("A", 2, "started")), only(history.Gapless), "started after", 9},
	{"other end in the facts", sequence(provisioned(), transitions("A"), allFacts()[:2], fact("A", 3, "failed")), only(history.Gapless), "another end", 8},
	{
		"accepted operation without transitions", sequence(provisioned(), update("2", 202, "B"), poll("B", "succeeded"), transitions("A"),
			allFacts()),
		only(history.Gapless), "no transition", 3,
	},
	{"return before the call", sequence(during(-3, provision("1", 409, ""))), only(history.WellFormed), "before the call", 0},
	{"accepted without an operation", sequence(provision("1", 202, "")), only(history.WellFormed, history.Final), "names no operation", 0},
}

func TestCheck_PlantedHistory_IsRejected(t *testing.T) {
	t.Parallel()
	for _, p := range planted {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			var rules []history.Rule
			for _, v := range history.Check(p.history, shortLimit).Violations {
				if !slices.Contains(rules, v.Rule) {
					rules = append(rules, v.Rule)
				}
				if v.Rule != p.rules[0] || !strings.Contains(v.Problem, p.problem) {
					continue
				}
				offender := -1
				if len(v.Records) > 0 {
					offender = slices.Index(p.history, v.Records[len(v.Records)-1])
				}
				if offender != p.offender {
					t.Errorf("invocation %d contradicts the promise, want %d: %s", offender, p.offender, v)
				}
				p.problem = ""
			}
			if diff := cmp.Diff(p.rules, rules); diff != "" || p.problem != "" {
				t.Errorf("the violations do not contain %q, or contradict other rules:\n%s", p.problem, diff)
			}
		})
	}
}

func TestCheck_LongSearch_IsUndecided(t *testing.T) {
	t.Parallel()
	var requests []*history.Record
	for i := range 20 {
		requests = append(requests, update(strings.Repeat("x", i+2), 0, ""))
	}
	h := sequence(provisioned(), requests, get(200, "never sent"))
	found := history.Check(h, time.Millisecond).Violations
	if len(found) != 1 || found[0].Rule != history.Decided {
		t.Errorf("the verdict is %v, want that it is unknown", found)
	}
}

func TestRead_WrittenHistory_IsEqual(t *testing.T) {
	t.Parallel()
	for _, p := range planted {
		var lines bytes.Buffer
		require.NoError(t, history.Write(&lines, p.history))
		got, err := history.Read(&lines)
		require.NoError(t, err)
		if diff := cmp.Diff(p.history, got); diff != "" {
			t.Errorf("%s: %s", p.name, diff)
		}
	}
	_, err := history.Read(strings.NewReader("{\"kind\":\"get\"}\nnothing\n"))
	if err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("error %v, want one that names line 2", err)
	}
}
