package test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/internal/harness"
)

// The caller's part of a trace, as its tracing sends it along.
const (
	callersTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	callersSpan  = "00f067aa0ba902b7"
)

// traced makes keb up send its spans soon.
func traced(c *harness.Traces) harness.Options {
	return harness.Options{Env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL(), "OTEL_BSP_SCHEDULE_DELAY=200"}}
}

// putTraced places the order as a platform does that traces its own requests, and returns the id of the operation.
func putTraced(t *testing.T, sys *harness.System, o *harness.Order, header http.Header) string {
	t.Helper()
	body, err := json.Marshal(o.Body())
	require.NoError(t, err)
	url := sys.OSBURL() + "/v2/service_instances/" + o.InstanceID + "?accepts_incomplete=true"
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, bytes.NewReader(body))
	require.NoError(t, err)
	request.Header = header.Clone()
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set(osb.HeaderVersion, osb.SpecVersion)
	request.SetBasicAuth("keb", "keb")
	response, err := sys.HTTP.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	var accepted struct{ Operation string }
	if err := json.Unmarshal(answer, &accepted); err != nil || response.StatusCode != http.StatusAccepted {
		t.Fatalf("PUT: status %d: %s", response.StatusCode, answer)
	}
	return accepted.Operation
}

func TestTracing_Restart_KeepsOneTrace(t *testing.T) {
	t.Parallel()
	collector := harness.CollectTraces(t)
	sys := harness.Start(t, traced(collector))
	id, secret := harness.NewCanary(), harness.NewCanary()
	order := harness.Azure()
	order.ClientID, order.ClientSecret = id.String(), secret.String()

	sys.Fault("edp", outage)
	operation := putTraced(t, sys, order, http.Header{"Traceparent": {"00-" + callersTrace + "-" + callersSpan + "-01"}})
	sys.Await(operation, limit, "two retries of EDP_Registration", func(op *harness.Operation) bool {
		return op.At(t, "EDP_Registration").Attempts > 2
	})
	sys.Stop()
	sys.Start()
	sys.Fault("edp", healthy)
	sys.PollEnd(order, operation, osb.StateSucceeded, limit)
	sys.Stop()

	spans := collector.Trace(callersTrace)
	known := map[string]bool{callersSpan: true}
	for _, s := range spans {
		if known[s.ID] {
			t.Errorf("there are two spans %s, one is %q", s.ID, s.Name)
		}
		known[s.ID] = true
	}
	for _, s := range spans {
		if !known[s.ParentID] {
			t.Errorf("%q of %s has an unknown parent", s.Name, s.Service)
		}
	}
	for _, s := range collector.Spans() {
		if s.Attributes["keb.operation.id"] == operation && s.TraceID != callersTrace {
			t.Errorf("%q of %s is about the operation and in another trace", s.Name, s.Service)
		}
	}

	calls := slices.DeleteFunc(slices.Clone(spans), func(s harness.Span) bool { return s.Service != "keb-worker-edp" || s.Kind != "client" })
	if len(calls) < 3 || len(named(calls, "POST /namespaces/{namespace}/dataTenants")) != 1 {
		t.Fatalf("there are %d calls of EDP:\n%s", len(calls), harness.SpanTree(spans))
	}
	want := []string{
		"process keb.command.edp.EDP_Registration", "step EDP_Registration", "stage create_runtime", "operation provision",
		"PUT /v2/service_instances/{instance_id}",
	}
	for _, call := range calls {
		if diff := cmp.Diff(want, harness.Ancestors(spans, call)[1:]); diff != "" {
			t.Errorf("above %q: %s", call.Name, diff)
		}
	}
	executions := named(spans, "process keb.command.edp.EDP_Registration")
	if outcomes := valuesOf(executions, "keb.outcome"); len(executions) < 3 || !slices.Contains(outcomes, "retry") || !slices.Contains(outcomes, "succeeded") {
		t.Errorf("executions of EDP_Registration ended %v, want several retries and a success", outcomes)
	}
	// A step that only looks is one step with many executions.
	looks := named(spans, "step Check_Runtime")
	if len(looks) != 1 || len(children(spans, looks, "process keb.command.provisioner.Check_Runtime")) == 0 {
		t.Errorf("Check_Runtime is %d steps", len(looks))
	}
	for _, service := range []string{"keb-broker", "keb-orchestrator", "keb-worker-edp", "keb-worker-avs", "keb-worker-provisioner", "keb-landscape"} {
		if !slices.ContainsFunc(spans, func(s harness.Span) bool { return s.Service == service }) {
			t.Errorf("%s has no part in the trace", service)
		}
	}
	for _, name := range []string{"send keb.request.provision", "process keb.request.provision", "process keb.result.edp.EDP_Registration"} {
		if len(named(spans, name)) == 0 {
			t.Errorf("there is no span %q", name)
		}
	}
	if names := harness.NewCanaries(map[string]harness.Canary{"client id": id, "client secret": secret}).In(collector.Raw()); len(names) > 0 {
		t.Errorf("the spans hold the %v", names)
	}
	if file := os.Getenv("KEB_E2E_TRACE"); file != "" {
		if err := os.WriteFile(file, []byte(harness.SpanTree(spans)), 0o600); err != nil {
			t.Error(err)
		}
	}
}

func TestTracing_Killed_KeepsOneTrace(t *testing.T) {
	t.Parallel()
	collector := harness.CollectTraces(t)
	sys := harness.Start(t, traced(collector))
	sys.Fault("edp", outage)
	order := harness.Azure()
	operation := putTraced(t, sys, order, http.Header{})
	sys.Await(operation, limit, "a retry of EDP_Registration", func(op *harness.Operation) bool {
		return op.At(t, "EDP_Registration").Attempts > 1
	})
	sys.Kill()
	sys.Start()
	sys.Fault("edp", healthy)
	sys.PollEnd(order, operation, osb.StateSucceeded, limit)
	sys.Stop()
	traces := map[string]bool{}
	about := slices.DeleteFunc(collector.Spans(), func(s harness.Span) bool { return s.Attributes["keb.operation.id"] != operation })
	for _, s := range about {
		traces[s.TraceID] = true
	}
	if len(traces) != 1 || len(named(about, "operation provision")) != 1 || len(named(about, "stage create_runtime")) != 1 {
		t.Errorf("the operation is in %d traces:\n%s", len(traces), harness.SpanTree(about))
	}
}

func TestTracing_NoCollector_OperationsSucceed(t *testing.T) {
	t.Parallel()
	collector := harness.CollectTraces(t)
	collector.Refuse(http.StatusServiceUnavailable)
	sys := harness.Start(t, traced(collector))
	order := harness.Azure()
	sys.PollEnd(order, sys.Provision(order), osb.StateSucceeded, limit)
	testkit.Eventually(t, limit, "an attempt to send spans", func() bool { return collector.Refused() > 0 })
	sys.Stop()
	log, err := os.ReadFile(sys.DataDir + "/keb.log")
	require.NoError(t, err)
	if n := strings.Count(string(log), "the collector does not take spans"); n != 1 {
		t.Errorf("the log complains %d times", n)
	}
	if out := sys.Process().Output(); strings.Contains(out, "traces") || strings.Contains(out, "retry-able") {
		t.Errorf("the library prints by itself:\n%s", out)
	}
}

func named(spans []harness.Span, name string) []harness.Span {
	return slices.DeleteFunc(slices.Clone(spans), func(s harness.Span) bool { return s.Name != name })
}

func children(spans, parents []harness.Span, name string) []harness.Span {
	return slices.DeleteFunc(named(spans, name), func(s harness.Span) bool {
		return !slices.ContainsFunc(parents, func(p harness.Span) bool { return p.ID == s.ParentID })
	})
}

func valuesOf(spans []harness.Span, attribute string) []string {
	values := make([]string, len(spans))
	for i, s := range spans {
		values[i] = s.Attributes[attribute]
	}
	return values
}
