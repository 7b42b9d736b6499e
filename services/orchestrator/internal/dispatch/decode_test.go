package dispatch

import (
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

const someID = "0193a3c5-0000-7000-8000-000000000001"

// cloudEvent returns an event as the bus delivers it.
func cloudEvent(t testing.TB, kind event.Type, data string) cloudevents.Event {
	t.Helper()
	e := cloudevents.New()
	e.SetID("1")
	e.SetType(string(kind))
	e.SetSource("/keb/worker/alpha")
	require.NoError(t, e.SetData("application/json", []byte(data)))
	return e
}

func TestDecodeResult_EveryType_MapsToAnOutcome(t *testing.T) {
	problem := &event.Error{Component: "ext", Reason: "down", Message: "ext is down"}
	const base = `"operationId":"` + someID + `","cursor":7,"stage":"change","step":"One","worker":{"name":"alpha","version":"1"},"message":"hello","unknown":1`
	const failure = `"error":{"component":"ext","reason":"down","message":"ext is down"}`
	for _, c := range []struct {
		kind  event.Type
		extra string
		want  engine.Result
	}{
		{event.TypeStepSucceeded, `,"details":{"id":1},"stageMemory":true`, engine.Result{Outcome: event.OutcomeSucceeded, Details: []byte(`{"id":1}`), StageMemory: true}},
		{event.TypeStepRetry, `,"retryAfter":1.5,` + failure, engine.Result{Outcome: event.OutcomeRetry, RetryAfter: 1500 * time.Millisecond, Error: problem}},
		{event.TypeStepRetry, `,"retryAfter":1e300`, engine.Result{Outcome: event.OutcomeRetry, RetryAfter: maxRetryAfter}},
		{event.TypeStepFailed, `,` + failure, engine.Result{Outcome: event.OutcomeFailed, Error: problem}},
		{event.TypeStepSkipped, ``, engine.Result{Outcome: event.OutcomeSkipped}},
		{event.TypeStepSkipped, `,"notCompleted":true,` + failure, engine.Result{Outcome: event.OutcomeNotCompleted, Error: problem}},
		{event.TypeStageLost, ``, engine.Result{Outcome: event.OutcomeStageLost}},
	} {
		id, got, err := DecodeResult(cloudEvent(t, c.kind, "{"+base+c.extra+"}"))
		if err != nil || id != someID {
			t.Errorf("%s: id %q, error %v", c.kind, id, err)
		}
		c.want.Cursor, c.want.Worker, c.want.Message = 7, event.Worker{Name: "alpha", Version: "1"}, "hello"
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s%s (-want +got):\n%s", c.kind, c.extra, diff)
		}
	}
}

func TestDecodeResult_InvalidEvent_NamesTheField(t *testing.T) {
	const rest = `"cursor":1,"stage":"change","step":"One","worker":{"name":"alpha"}`
	for _, c := range []struct {
		name, data, want string
		kind             event.Type
	}{
		{"another type", `{}`, "is not a step result", event.TypeOperationStarted},
		{"no JSON", `{`, "", event.TypeStepSucceeded},
		{"no object", `[]`, "", event.TypeStepSucceeded},
		{"a cursor that is no number", `{"operationId":"` + someID + `","cursor":"x"}`, "cursor", event.TypeStepSucceeded},
		{"no operation", `{"cursor":1}`, "operationId: is empty", event.TypeStepSucceeded},
		{"an operation id that is no UUID", `{"operationId":"x",` + rest + `}`, `operationId "x": must be a UUID`, event.TypeStepSucceeded},
		{"a negative time", `{"operationId":"` + someID + `","retryAfter":-1,` + rest + `}`, "retryAfter", event.TypeStepRetry},
	} {
		_, _, err := DecodeResult(cloudEvent(t, c.kind, c.data))
		if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > maxText+200 {
			t.Errorf("%s: error is %v, want it to name %q", c.name, err, c.want)
		}
	}
}

func TestDecodeRequest_InvalidEvent_NamesTheField(t *testing.T) {
	for _, c := range []struct {
		data, want string
		kind       event.Type
	}{
		{`{}`, "is not a request", event.TypeStepSucceeded},
		{`{"operation":{"id":"x","type":"update","instanceId":"i"}}`, `operation.id "x": must be a UUID`, event.TypeOperationRequested},
		{`{"operation":{"id":"` + someID + `","type":"update"}}`, "operation.instanceId: is empty", event.TypeOperationRequested},
	} {
		if _, err := decodeRequest(cloudEvent(t, c.kind, c.data)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error is %v, want %q", c.data, err, c.want)
		}
	}
	r, err := decodeRequest(cloudEvent(t, event.TypeOperationRequested, `{"operation":{"id":"`+strings.ToUpper(someID)+`","type":"update","instanceId":"i"}}`))
	if err != nil || r.Operation.ID != someID {
		t.Errorf("an id in upper case is decoded as %q, error %v", r.Operation.ID, err)
	}
}

func TestBound_LongText_IsCutBetweenCharacters(t *testing.T) {
	if got := bound(strings.Repeat("x", maxText)); len(got) != maxText {
		t.Errorf("a text of the maximum length has %d bytes, want %d", len(got), maxText)
	}
	if got := bound("x" + strings.Repeat("日", maxText)); !utf8.ValidString(got) || len(got) > maxText || !strings.HasSuffix(got, "日...") {
		t.Errorf("a long text is cut to %d bytes, ending in %q", len(got), got[len(got)-10:])
	}
	if got := seconds(math.NaN()); got != 0 {
		t.Errorf("NaN seconds are %s, want 0", got)
	}
}

// FuzzDecode checks that every event is either rejected or decoded into a valid request or result.
func FuzzDecode(f *testing.F) {
	types := []event.Type{
		event.TypeStepSucceeded, event.TypeStepRetry, event.TypeStepFailed, event.TypeStepSkipped, event.TypeStageLost, event.TypeOperationRequested,
	}
	for i := range types {
		f.Add(i, `{"operationId":"`+someID+`","cursor":1,"stage":"change","step":"One","worker":{"name":"alpha"},"retryAfter":1e18,"error":{"component":"x","reason":"y","message":"z"},"notCompleted":true,"details":{"a":null}}`)
		f.Add(i, `{"operation":{"id":"`+someID+`","instanceId":"i","type":"update"}}`)
		f.Add(i, `{"operationId":"{`+someID+`}","cursor":1,"stage":"change","step":"One","worker":{"name":"alpha"},"retryAfter":0.1,"error":{"message":"z"}}`)
		f.Add(i, `null`)
	}
	f.Fuzz(func(t *testing.T, n int, data string) {
		e := cloudEvent(t, types[int(uint(n)%uint(len(types)))], data)
		if r, err := decodeRequest(e); err == nil {
			if _, err := uuid.Parse(r.Operation.ID); err != nil || r.Operation.InstanceID == "" {
				t.Errorf("request %+v", r)
			}
		}
		id, r, err := DecodeResult(e)
		if err != nil {
			return
		}
		if parsed, err := uuid.Parse(id); err != nil || parsed.String() != id {
			t.Errorf("operation id %q", id)
		}
		if r.Outcome == "" || r.RetryAfter < 0 || r.RetryAfter > maxRetryAfter || len(r.Message) > maxText+3 {
			t.Errorf("result %+v", r)
		}
	})
}
