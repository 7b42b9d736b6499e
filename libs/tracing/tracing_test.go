package tracing_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/tracing"
)

// silence removes variables of the machine from the environment.
func silence(t *testing.T) {
	t.Helper()
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, "")
		}
	}
}

func TestNew_NoCollector_ReturnsNil(t *testing.T) {
	for name, environment := range map[string]map[string]string{
		"nothing is set":    {},
		"empty":             {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
		"disabled":          {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318", "OTEL_SDK_DISABLED": "true"},
		"no exporter":       {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318", "OTEL_TRACES_EXPORTER": "none"},
		"settings for none": {"OTEL_TRACES_SAMPLER": "always_on", "OTEL_SERVICE_NAME": "keb"},
	} {
		t.Run(name, func(t *testing.T) {
			silence(t)
			for variable, value := range environment {
				t.Setenv(variable, value)
			}
			before := runtime.NumGoroutine()
			e, err := tracing.New(t.Context(), tracing.Config{})
			require.NoError(t, err)
			defer e.Close()
			p := e.Provider("keb-broker", "1")
			if p != nil || tracing.TracerOf(p, "x") != nil {
				t.Error("there is a provider")
			}
			if after := runtime.NumGoroutine(); after > before {
				t.Errorf("there are %d goroutines, before there were %d", after, before)
			}
		})
	}
}

// fakeExporter stores spans.
type fakeExporter struct{ spans []sdk.ReadOnlySpan }

func (e *fakeExporter) ExportSpans(_ context.Context, spans []sdk.ReadOnlySpan) error {
	e.spans = append(e.spans, spans...)
	return nil
}

func (e *fakeExporter) Shutdown(context.Context) error { return nil }

// exported returns the service of each span that create makes, by the name of the span.
func exported(t *testing.T, cfg tracing.Config, create func(e *tracing.Exporter)) map[string]string {
	t.Helper()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318")
	var fake fakeExporter
	cfg.Exporter = func(context.Context) (sdk.SpanExporter, error) { return &fake, nil }
	e, err := tracing.New(t.Context(), cfg)
	require.NoError(t, err)
	create(e)
	e.Close()
	services := map[string]string{}
	for _, s := range fake.spans {
		service, _ := s.Resource().Set().Value("service.name")
		services[s.Name()] = service.AsString()
	}
	return services
}

func TestProvider_Spans_HaveServiceName(t *testing.T) {
	silence(t)
	t.Setenv("OTEL_SERVICE_NAME", "ignored")
	got := exported(t, tracing.Config{Together: true}, func(e *tracing.Exporter) {
		for _, service := range []string{"keb-broker", "keb-worker-avs"} {
			_, span := tracing.TracerOf(e.Provider(service, "1"), "x").Start(t.Context(), "of "+service)
			span.End()
		}
	})
	want := map[string]string{"of keb-broker": "keb-broker", "of keb-worker-avs": "keb-worker-avs"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestProvider_ServiceNameVariable_IsUsed(t *testing.T) {
	silence(t)
	t.Setenv("OTEL_SERVICE_NAME", "our-broker")
	t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
	t.Setenv("OTEL_TRACES_SAMPLER_ARG", "0")
	got := exported(t, tracing.Config{}, func(e *tracing.Exporter) {
		tracer := tracing.TracerOf(e.Provider("keb-broker", ""), "x")
		_, root := tracer.Start(t.Context(), "dropped by the sampler")
		root.End()
		caller := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, Remote: true})
		_, child := tracer.Start(trace.ContextWithRemoteSpanContext(t.Context(), caller), "requested by the caller")
		child.End()
	})
	if diff := cmp.Diff(map[string]string{"requested by the caller": "our-broker"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestNew_NoExporter_LogsWarning(t *testing.T) {
	silence(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318")
	var book testkit.Log
	e, err := tracing.New(t.Context(), tracing.Config{Log: slog.New(slog.NewTextHandler(&book, nil))})
	require.NoError(t, err)
	if text := book.String(); e != nil || strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "libs/tracing/otlp") {
		t.Errorf("the exporter is %v, the log:\n%s", e, text)
	}
}

func TestNew_InvalidVariables_AreNamed(t *testing.T) {
	const secret = "s3cr3t-value"
	folder := t.TempDir()
	empty := filepath.Join(folder, "empty.pem")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for _, tc := range []struct{ name, value, want string }{
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4318", "absolute http or https URL"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://user:" + secret + "@localhost:4318", "OTEL_EXPORTER_OTLP_HEADERS"},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://localhost:4318/?token=" + secret, "query"},
		{"OTEL_EXPORTER_OTLP_HEADERS", secret, "name=value"},
		{"OTEL_EXPORTER_OTLP_HEADERS", "a=b,c=%zz" + secret, "entry 2"},
		{"OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "milliseconds"},
		{"OTEL_EXPORTER_OTLP_COMPRESSION", "zip", "gzip or none"},
		{"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf or http/json"},
		{"OTEL_EXPORTER_OTLP_CERTIFICATE", filepath.Join(folder, "missing"), "cannot be read"},
		{"OTEL_EXPORTER_OTLP_CERTIFICATE", empty, "no certificate"},
		{"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", empty, "OTEL_EXPORTER_OTLP_CLIENT_KEY"},
		{"OTEL_TRACES_SAMPLER", "sometimes", "parentbased_traceidratio"},
		{"OTEL_TRACES_SAMPLER_ARG", "NaN", "0 to 1"},
		{"OTEL_TRACES_SAMPLER_ARG", "1.5", "0 to 1"},
		{"OTEL_TRACES_EXPORTER", "jaeger", "otlp or none"},
		{"OTEL_SDK_DISABLED", "yes", "true or false"},
		{"OTEL_RESOURCE_ATTRIBUTES", "a", "name=value"},
		{"OTEL_BSP_MAX_QUEUE_SIZE", "0", "1 to 65536"},
		{"OTEL_BSP_SCHEDULE_DELAY", "-1", "milliseconds"},
	} {
		t.Run(tc.name+"="+tc.value, func(t *testing.T) {
			silence(t)
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318")
			if tc.name == "OTEL_TRACES_SAMPLER_ARG" {
				t.Setenv("OTEL_TRACES_SAMPLER", "traceidratio")
			}
			t.Setenv(tc.name, tc.value)
			e, err := tracing.New(t.Context(), tracing.Config{})
			if err == nil {
				e.Close()
				t.Fatal("there is no error")
			}
			if text := err.Error(); !strings.Contains(text, tc.name) || !strings.Contains(text, tc.want) || strings.Contains(text, secret) {
				t.Errorf("error is %q", text)
			}
			if tracing.Check() == nil {
				t.Error("Check sees nothing wrong")
			}
		})
	}
}

// recorder returns a tracer and the recorder of its spans.
func recorder() (trace.Tracer, *tracetest.SpanRecorder) {
	r := tracetest.NewSpanRecorder()
	return tracing.TracerOf(tracing.NewProvider(r), "x"), r
}

func TestRecord_ChosenID_IsUsed(t *testing.T) {
	t.Parallel()
	tracer, spans := recorder()
	parent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	id := tracing.SpanID("step", "op", 1, 2)
	start := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	tracing.Record(t.Context(), tracer, tracing.Span{
		Parent: parent, ID: id, Name: "step X", Start: start, End: start.Add(time.Hour), Failure: "why",
		Attributes: []attribute.KeyValue{attribute.Bool("x", true)},
	})
	tracing.Record(t.Context(), tracer, tracing.Span{Parent: parent.WithTraceFlags(0), Name: "of a trace that is not sampled"})
	tracing.Record(t.Context(), nil, tracing.Span{})
	ended := spans.Ended()
	if len(ended) != 1 {
		t.Fatalf("there are %d spans", len(ended))
	}
	s := ended[0]
	if s.SpanContext().SpanID() != id || s.SpanContext().TraceID() != parent.TraceID() || s.Parent().SpanID() != parent.SpanID() {
		t.Errorf("span is %v below %v", s.SpanContext(), s.Parent())
	}
	if !s.StartTime().Equal(start) || !s.EndTime().Equal(start.Add(time.Hour)) || s.Status().Description != "why" {
		t.Errorf("span is %+v", s)
	}
}

func TestSpanID_SameSubject_IsEqual(t *testing.T) {
	t.Parallel()
	seen := map[trace.SpanID]string{}
	for _, kind := range []string{"step", "stage"} {
		for _, operation := range []string{"a", "b"} {
			for n := range int64(20) {
				id := tracing.SpanID(kind, operation, n, -n)
				name := fmt.Sprint(kind, operation, n)
				if id != tracing.SpanID(kind, operation, n, -n) || !id.IsValid() || seen[id] != "" {
					t.Errorf("%s has %s, as %s", name, id, seen[id])
				}
				seen[id] = name
			}
		}
	}
	tracer, spans := recorder()
	chosen := trace.TraceID{7}
	_, root := tracer.Start(tracing.WithTraceID(t.Context(), chosen), "root")
	root.End()
	_, other := tracer.Start(t.Context(), "other")
	other.End()
	if ended := spans.Ended(); ended[0].SpanContext().TraceID() != chosen || ended[1].SpanContext().TraceID() == chosen {
		t.Errorf("traces are %v and %v", ended[0].SpanContext(), ended[1].SpanContext())
	}
}

func TestHandler_TraceParent_IsContinued(t *testing.T) {
	t.Parallel()
	const incoming = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0"
	r := tracetest.NewSpanRecorder()
	for _, tc := range []struct {
		name, header, trace string
		provider            trace.TracerProvider
		spans               int
	}{
		{"sampled", incoming + "1", incoming[3:35], tracing.NewProvider(r), 1},
		{"not sampled", incoming + "0", incoming[3:35], tracing.NewProvider(r), 0},
		{"none", "", "", tracing.NewProvider(r), 1},
		{"broken", "00-xyz", "", tracing.NewProvider(r), 1},
		{"zeros", "00-00000000000000000000000000000000-b7ad6b7169203331-01", "", tracing.NewProvider(r), 1},
		{"sampled, off", incoming + "1", incoming[3:35], nil, 0},
		{"none, off", "", "", nil, 0},
	} {
		var seen context.Context
		mux := http.NewServeMux()
		mux.HandleFunc("GET /v2/{id}", func(w http.ResponseWriter, r *http.Request) {
			seen = r.Context()
			w.WriteHeader(http.StatusTeapot)
		})
		request := httptest.NewRequest(http.MethodGet, "/v2/1?token=s3cr3t", nil)
		if tc.header != "" {
			request.Header.Set("Traceparent", tc.header)
		}
		before := len(r.Ended())
		tracing.Handler(tc.provider, mux).ServeHTTP(httptest.NewRecorder(), request)
		ended := r.Ended()[before:]
		if len(ended) != tc.spans {
			t.Errorf("%s: %d spans", tc.name, len(ended))
		}
		parent := tracing.Extension(seen)["traceparent"]
		if tc.trace != "" && !strings.HasPrefix(parent, "00-"+tc.trace) || tc.provider == nil && parent != tc.header {
			t.Errorf("%s: the trace continues as %q", tc.name, parent)
		}
		if tc.name == "not sampled" && !strings.HasSuffix(parent, "-00") {
			t.Errorf("%s: the trace continues as %q", tc.name, parent)
		}
		for _, s := range ended {
			if s.Name() != "GET /v2/{id}" {
				t.Errorf("%s: the span is %q", tc.name, s.Name())
			}
			for _, a := range s.Attributes() {
				if strings.Contains(a.Value.String(), "s3cr3t") {
					t.Errorf("%s: %s is %q", tc.name, a.Key, a.Value.String())
				}
			}
		}
	}
}

func TestHandler_Panic_RecordsSpanAndPanics(t *testing.T) {
	t.Parallel()
	r := tracetest.NewSpanRecorder()
	h := tracing.Handler(tracing.NewProvider(r), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer func() {
		if err, ok := recover().(error); !ok || !errors.Is(err, http.ErrAbortHandler) || len(r.Ended()) != 1 {
			t.Errorf("there are %d spans", len(r.Ended()))
		}
	}()
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
}

func TestHandler_Stream_IsFlushed(t *testing.T) {
	t.Parallel()
	h := tracing.Handler(tracing.NewProvider(sdk.NewSimpleSpanProcessor(tracetest.NewNoopExporter())), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if _, err := w.Write([]byte("x")); err != nil {
			t.Error(err)
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
	}))
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/", nil))
	if !answer.Flushed {
		t.Error("nothing was flushed")
	}
}

func FuzzParseParent(f *testing.F) {
	f.Add("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	f.Add("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more")
	f.Add("00-00000000000000000000000000000000-b7ad6b7169203331-01")
	f.Fuzz(func(t *testing.T, s string) {
		sc := tracing.ParseParent(s)
		if !sc.IsValid() {
			return
		}
		again := tracing.ParseParent(tracing.Parent(sc))
		if again.TraceID() != sc.TraceID() || again.SpanID() != sc.SpanID() || again.IsSampled() != sc.IsSampled() {
			t.Errorf("%q becomes %q", s, tracing.Parent(sc))
		}
	})
}
