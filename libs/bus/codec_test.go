package bus_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
)

var at = time.Date(2026, 11, 21, 8, 0, 0, 123456789, time.UTC)

func fullEvent(t testing.TB) cloudevents.Event {
	t.Helper()
	e, err := bus.New(event.TypeStepExecute, "op/1", "/keb/worker/über uns", "op", at, map[string]string{"k": "v"})
	require.NoError(t, err)
	e.SetDataSchema("https://example.com/schema.json")
	e.SetExtension("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	e.SetExtension("note", `50% "done" €`)
	e.SetExtension("count", 7)
	return e
}

func header(pairs ...string) nats.Header {
	h := nats.Header{"ce-specversion": {"1.0"}, "ce-id": {"1"}, "ce-type": {"t"}, "ce-source": {"/s"}}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			delete(h, pairs[i])
			continue
		}
		h[pairs[i]] = []string{pairs[i+1]}
	}
	return h
}

func TestEncode_Event_WritesBinaryModeHeaders(t *testing.T) {
	t.Parallel()
	e := fullEvent(t)
	got, data, err := bus.Encode(&e)
	require.NoError(t, err)
	want := nats.Header{
		"ce-specversion":     {"1.0"},
		"ce-id":              {"op/1"},
		"ce-source":          {"/keb/worker/%25C3%25BCber%2520uns"}, // the URI is escaped first, and its % again
		"ce-type":            {"io.kyma-project.keb.step.execute.v1"},
		"ce-subject":         {"op"},
		"ce-time":            {"2026-11-21T08:00:00.123456789Z"},
		"ce-datacontenttype": {"application/json"},
		"ce-dataschema":      {"https://example.com/schema.json"},
		"ce-traceparent":     {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		"ce-note":            {"50%25%20%22done%22%20%E2%82%AC"},
		"ce-count":           {"7"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if string(data) != `{"k":"v"}` {
		t.Errorf("data is %s", data)
	}
}

func TestDecode_EncodedEvent_IsEqual(t *testing.T) {
	t.Parallel()
	e := fullEvent(t)
	h, data, err := bus.Encode(&e)
	require.NoError(t, err)
	got, err := bus.Decode(h, data)
	require.NoError(t, err)
	e.SetExtension("count", "7") // attributes in headers have no type
	if diff := cmp.Diff(e.String(), got.String()); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}
	if err := got.Validate(); err != nil {
		t.Errorf("the SDK finds the event invalid: %v", err)
	}
}

func TestDecode_OtherSenders_IsAccepted(t *testing.T) {
	t.Parallel()
	const body = `{"specversion":"1.0","id":"1","type":"t","source":"/s","datacontenttype":"application/json","data":{"k":"v"}}`
	for name, c := range map[string]struct {
		h    nats.Header
		data string
	}{
		"header names in another case": {nats.Header{
			"Ce-Specversion": {"1.0"}, "CE-Id": {"1"}, "Ce-Type": {"t"},
			"Ce-Source": {"/s"}, "Ce-Datacontenttype": {"application/json"},
		}, `{"k":"v"}`},
		"mixed case":                      {header("ce-id", "", "Ce-Id", "1", "ce-datacontenttype", "application/json"), `{"k":"v"}`},
		"content type as in HTTP":         {header("content-type", "application/json"), `{"k":"v"}`},
		"structured":                      {nats.Header{"content-type": {"application/cloudevents+json"}}, body},
		"structured, HTTP case, charset":  {nats.Header{"Content-Type": {"Application/CloudEvents+JSON; charset=utf-8"}}, body},
		"structured wins over ce headers": {header("content-type", "application/cloudevents", "ce-id", "2"), body},
		"headers of others":               {header("Nats-Msg-Id", "%", "foo", "ü", "ce-datacontenttype", "application/json"), `{"k":"v"}`},
	} {
		got, err := bus.Decode(c.h, []byte(c.data))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got.ID() != "1" || got.Source() != "/s" || got.Type() != "t" || got.DataContentType() != "application/json" ||
			string(got.Data()) != `{"k":"v"}` {
			t.Errorf("%s: event is %s", name, got)
		}
	}
}

func TestDecode_InvalidMessage_ReturnsErrUnreadable(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		h    nats.Header
		data string
		want string
	}{
		"no headers":             {nil, `{"specversion":"1.0"}`, "ce-specversion"},
		"old version":            {header("ce-specversion", "0.3"), "", `"0.3"`},
		"no id":                  {header("ce-id", ""), "", "ce-id is missing"},
		"no type":                {header("ce-type", ""), "", "ce-type is missing"},
		"no source":              {header("ce-source", ""), "", "ce-source is missing"},
		"source is no URI":       {header("ce-source", ":x"), "", "ce-source"},
		"time":                   {header("ce-time", "yesterday"), "", "ce-time"},
		"relative schema":        {header("ce-dataschema", "schema"), "", "ce-dataschema"},
		"half an escape":         {header("ce-subject", "50%2"), "", "ce-subject has a %"},
		"no escape":              {header("ce-subject", "50% off"), "", "ce-subject has a %"},
		"not UTF-8":              {header("ce-subject", "%FF"), "", "ce-subject is not valid UTF-8"},
		"raw bytes":              {header("ce-subject", "\xff"), "", "ce-subject is not valid UTF-8"},
		"two values":             {nats.Header{"ce-specversion": {"1.0"}, "ce-id": {"1", "2"}}, "", "ce-id has 2 values"},
		"bad extension name":     {header("ce-my_ext", "1"), "", "ce-my_ext"},
		"no extension name":      {header("ce-", "1"), "", `"ce-"`},
		"same name twice":        {header("Ce-Id", "2"), "", "duplicated"},
		"batch":                  {nats.Header{"content-type": {"application/cloudevents-batch+json"}}, "[]", "cloudevents-batch"},
		"structured, no JSON":    {nats.Header{"content-type": {"application/cloudevents+json"}}, "{", "structured event"},
		"structured, no id":      {nats.Header{"content-type": {"application/cloudevents+json"}}, `{"specversion":"1.0","type":"t","source":"/s"}`, "id"},
		"structured, no version": {nats.Header{"content-type": {"application/cloudevents+json"}}, `{"id":"1","type":"t","source":"/s"}`, "specversion"},
		"structured, null":       {nats.Header{"content-type": {"application/cloudevents+json"}}, `null`, "structured event"},
	} {
		_, err := bus.Decode(c.h, []byte(c.data))
		if !errors.Is(err, bus.ErrUnreadable) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error is %v, want ErrUnreadable with %q", name, err, c.want)
		}
	}
}

func TestEncode_IncompleteEvent_IsRejected(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*cloudevents.Event){
		"id":          func(e *cloudevents.Event) { e.Context.(*cloudevents.EventContextV1).ID = "" },
		"type":        func(e *cloudevents.Event) { e.Context.(*cloudevents.EventContextV1).Type = "" },
		"source":      func(e *cloudevents.Event) { e.SetSource("") },
		"specversion": func(e *cloudevents.Event) { e.Context = nil },
	} {
		e := fullEvent(t)
		change(&e)
		if _, _, err := bus.Encode(&e); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: error is %v, want one that names it", name, err)
		}
	}
}

type checked struct {
	Cursor int64 `json:"cursor"`
}

func (c checked) Validate() error {
	if c.Cursor < 1 {
		return errors.New("cursor must be > 0")
	}
	return nil
}

func TestData_WrongType_ReturnsErrBadData(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ data, contentType, want string }{
		{`{"cursor":5,"new":{"x":1}}`, "application/json", ""},
		{`{"cursor":5}`, "application/json; charset=utf-8", ""},
		{`{"cursor":5}`, "", ""},
		{`{"cursor":5}`, "application/xml", "content type"},
		{`{"cursor":"5"}`, "application/json", "cursor"},
		{`[]`, "application/json", "array"},
		{`{"cursor":5}{}`, "application/json", "after top-level value"},
		{``, "application/json", "no data"},
		{`null`, "application/json", "cursor must be > 0"},
		{`{"cursor":0}`, "application/json", "cursor must be > 0"},
	} {
		e, err := bus.Decode(header("ce-datacontenttype", c.contentType), []byte(c.data))
		require.NoError(t, err)
		v, err := bus.Data[checked](e)
		switch {
		case c.want == "" && (err != nil || v.Cursor != 5):
			t.Errorf("%s as %q: %+v, %v", c.data, c.contentType, v, err)
		case c.want != "" && (!errors.Is(err, bus.ErrBadData) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s as %q: error is %v, want ErrBadData with %q", c.data, c.contentType, err, c.want)
		}
	}
	if _, err := bus.Data[checked](cloudevents.Event{}); !errors.Is(err, bus.ErrBadData) {
		t.Errorf("empty event: error is %v, want ErrBadData", err)
	}
}

func TestNew_InvalidData_IsRejected(t *testing.T) {
	t.Parallel()
	if _, err := bus.New(event.TypeStepExecute, "1", "/s", "", at, checked{}); err == nil {
		t.Error("an event with invalid data is made")
	}
	if _, err := bus.New(event.TypeStepExecute, "", "/s", "", at, checked{1}); err == nil {
		t.Error("an event without id is made")
	}
	if _, err := bus.New(event.TypeStepExecute, "1", "", "", at, checked{1}); err == nil {
		t.Error("an event without source is made")
	}
	if _, err := bus.New(event.TypeStepExecute, "1", "/s", "", at, func() {}); err == nil {
		t.Error("an event of a function is made")
	}
}
