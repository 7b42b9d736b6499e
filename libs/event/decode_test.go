package event_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
)

// fastDecoder is a payload with a decoder that does not use reflection.
type fastDecoder interface{ DecodeJSON(data []byte) bool }

// fastDecoders returns a new payload of each type with such a decoder.
func fastDecoders() []fastDecoder {
	return []fastDecoder{&event.StepExecute{}, &event.StepSucceeded{}, &event.OperationRequested{}}
}

func usualOperation() event.Operation {
	return event.Operation{
		ID: "6f7d1f7e-0000-4000-8000-000000000001", Type: event.Provision, InstanceID: "i-1", Plan: event.Plan{ID: "p", Name: "azure"},
		Context:    event.Context{GlobalAccountID: "g", SubaccountID: "s", UserID: "user@example.com", PlatformRegion: "cf-eu10", Platform: "cloudfoundry"},
		Runtime:    event.Runtime{Name: "demo", ShootName: "c-1", ShootDomain: "c-1.example.com", Provider: "azure", Region: "westeurope"},
		Parameters: json.RawMessage(`{"name":"d\"e}m{o","zones":["1",{"a":[]}],"max":20}`), Credentials: []string{"sm", "kubeconfig"},
	}
}

// usualPayloads returns payloads in the form that Go writes, in the order of fastDecoders.
func usualPayloads() []any {
	at := time.Date(2026, 11, 22, 6, 30, 0, 123456789, time.UTC)
	op := usualOperation()
	return []any{
		event.StepExecute{
			Operation: op, Details: json.RawMessage(`{"avs":{"id":"ü"}}`), Stage: "create_runtime", Step: "Create_Runtime", Cursor: 17,
			Dispatch: 1, StageAttempt: 2, StepAttempt: 3, FirstTriedAt: at, ExecuteBefore: at.Add(time.Minute), StageMemory: true,
		},
		event.StepSucceeded{Result: event.Result{
			OperationID: op.ID, Cursor: -17, Stage: "create_runtime", Step: "Create_Runtime", Worker: event.Worker{Name: "avs", Version: "1.0.0"},
			Message: "done", Details: json.RawMessage(`{"id":"1"}`), StageMemory: true, StartedAt: at, FinishedAt: at,
		}},
		event.OperationRequested{Operation: op, RequestedAt: at},
	}
}

func TestDecodeJSON_UsualPayload_AvoidsReflection(t *testing.T) {
	t.Parallel()
	for i, want := range usualPayloads() {
		data, err := json.Marshal(want)
		require.NoError(t, err)
		got := fastDecoders()[i]
		if !got.DecodeJSON(data) {
			t.Fatalf("%T is left to encoding/json: %s", want, data)
		}
		if diff := cmp.Diff(want, reflect.ValueOf(got).Elem().Interface()); diff != "" {
			t.Errorf("%T (-want +got):\n%s", want, diff)
		}
	}
}

func TestDecodeJSON_RareMembers_AreDecoded(t *testing.T) {
	t.Parallel()
	op := usualOperation()
	op.Runtime.Name, op.Temporary, op.Update = "größe <1>", true, &event.Changes{Plan: true}
	want := event.OperationRequested{Operation: op, RequestedAt: time.Date(2026, 11, 22, 6, 30, 0, 0, time.UTC)}
	data, err := json.Marshal(want)
	require.NoError(t, err)
	var got event.OperationRequested
	if !got.DecodeJSON(data) {
		t.Fatalf("left to encoding/json: %s", data)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// FuzzDecodedPayloads compares the decoders without reflection with encoding/json. Where they succeed, encoding/json returns the same
// value; where they fail, the payload is unchanged.
func FuzzDecodedPayloads(f *testing.F) {
	for _, payload := range usualPayloads() {
		data, err := json.Marshal(payload)
		require.NoError(f, err)
		f.Add(data)
		usual := string(data)
		for _, change := range [][2]string{
			{`"cursor":17`, `"cursor":017`},
			{`"cursor":17`, `"cursor":-0`},
			{`"cursor":17`, `"cursor":1e3`},
			{`"cursor":17`, `"cursor":9223372036854775808`},
			{`"dispatch":1`, `"dispatch":3000000000`},
			{`"stage"`, `"Stage"`},
			{`"stage":"create_runtime"`, `"stage":null`},
			{`"stage":`, `"stage": `},
			{`"create_runtime"`, `"create\u005fruntime"`},
			{`"create_runtime"`, "\"\xff\""},
			{`"create_runtime"`, "\"a\nb\""},
			{`,"credentials":["sm","kubeconfig"]`, `,"credentials":[]`},
			{`"sm",`, `"sm",,`},
			{`{"avs":{"id":"ü"}}`, `{"avs":]}`},
			{`{"avs":{"id":"ü"}}`, `{"avs" : "\\\"}"}`},
			{`{"avs":{"id":"ü"}}`, `{}}`},
			{`{"avs":{"id":"ü"}}`, `null`},
			{`"platform":`, `"platform":1,"x":`},
			{`30:00.123456789Z`, `30:00.123456789+01:00`},
			{`30:00.123456789Z`, `30:61Z`},
			{`2026-11`, `2026-13`},
			{`"stageMemory":true`, `"stageMemory":false`},
			{`}`, `} `},
			{`"id"`, `"id":"twice","id"`},
			{`{"id":"6f7d1f7e`, `{"id":"6f7d1f7e","temporary":true,"userAgent":"6f7d1f7e`},
		} {
			f.Add([]byte(strings.Replace(usual, change[0], change[1], 1)))
		}
		f.Add(append(data, ' '))
		f.Add(data[:len(data)-1])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for i, got := range fastDecoders() {
			want := fastDecoders()[i]
			if !got.DecodeJSON(data) {
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%T: decoding failed, but changed the payload (-before +after):\n%s", got, diff)
				}
				continue
			}
			if err := json.Unmarshal(data, want); err != nil {
				t.Fatalf("%T: decoded, but encoding/json returned %v", got, err)
			}
			if !reflect.DeepEqual(want, got) {
				t.Errorf("%T (-encoding/json +decoded):\n%s", got, cmp.Diff(want, got))
			}
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	for i, payload := range usualPayloads() {
		data, err := json.Marshal(payload)
		require.NoError(b, err)
		name := reflect.TypeOf(payload).Name()
		b.Run(name+"/decoder", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !fastDecoders()[i].DecodeJSON(data) {
					b.Fatal("left to encoding/json")
				}
			}
		})
		b.Run(name+"/reflection", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, json.Unmarshal(data, fastDecoders()[i]))
			}
		})
	}
}
