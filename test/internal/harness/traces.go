package harness

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Traces is a collector of traces: a server that stores spans received by OTLP over HTTP.
type Traces struct {
	t      testing.TB
	server *httptest.Server

	mu      sync.Mutex
	refuse  int
	refused int
	spans   []Span
	raw     []byte
	headers []http.Header
}

// Span is a received span. Ids are hexadecimal, or empty if missing.
type Span struct {
	TraceID, ID, ParentID string
	Name, Kind            string
	// Service is the service.name of its resource.
	Service    string
	Start, End time.Time
	Attributes map[string]string
	Links      []string // ids of spans
	Events     []string
	// Failure is set if its status is error.
	Failure string
	Failed  bool
}

// CollectTraces starts a collector, which stops when the test ends.
func CollectTraces(t testing.TB) *Traces {
	t.Helper()
	c := &Traces{t: t}
	c.server = httptest.NewServer(http.HandlerFunc(c.take))
	t.Cleanup(func() {
		c.server.CloseClientConnections()
		c.server.Close()
	})
	return c
}

// URL returns the value for OTEL_EXPORTER_OTLP_ENDPOINT.
func (c *Traces) URL() string { return c.server.URL }

// Refuse makes the collector answer with a status; 0 makes it accept spans again.
func (c *Traces) Refuse(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = status
}

// Refused counts the requests that were answered with the status of Refuse.
func (c *Traces) Refused() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused
}

// Spans returns the received spans.
func (c *Traces) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// Trace returns the spans of one trace.
func (c *Traces) Trace(id string) []Span {
	return slices.DeleteFunc(c.Spans(), func(s Span) bool { return s.TraceID != id })
}

// Raw returns all received data, to search for secrets.
func (c *Traces) Raw() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.raw)
}

// Headers returns the headers of the requests.
func (c *Traces) Headers() []http.Header {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.headers)
}

func (c *Traces) take(w http.ResponseWriter, r *http.Request) {
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = unzipped
	}
	data, err := io.ReadAll(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var request collector.ExportTraceServiceRequest
	if r.Method != http.MethodPost || r.URL.Path != "/v1/traces" || proto.Unmarshal(data, &request) != nil {
		c.t.Errorf("the collector received %s %s, which is not OTLP", r.Method, r.URL.Path)
		http.Error(w, "not OTLP", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.headers = append(c.headers, r.Header.Clone())
	if c.refuse != 0 {
		c.refused++
		http.Error(w, "refused", c.refuse)
		return
	}
	c.raw = append(c.raw, data...)
	for _, r := range request.GetResourceSpans() {
		service := attributes(r.GetResource().GetAttributes())["service.name"]
		for _, scope := range r.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, span(service, s))
			}
		}
	}
}

func span(service string, s *otlp.Span) Span {
	var links, events []string
	for _, l := range s.GetLinks() {
		links = append(links, fmt.Sprintf("%x", l.GetSpanId()))
	}
	for _, e := range s.GetEvents() {
		events = append(events, e.GetName())
	}
	return Span{
		TraceID: fmt.Sprintf("%x", s.GetTraceId()), ID: fmt.Sprintf("%x", s.GetSpanId()), ParentID: fmt.Sprintf("%x", s.GetParentSpanId()),
		Name: s.GetName(), Kind: trace.SpanKind(s.GetKind()).String(), Service: service,
		Start: time.Unix(0, int64(s.GetStartTimeUnixNano())), End: time.Unix(0, int64(s.GetEndTimeUnixNano())),
		Attributes: attributes(s.GetAttributes()), Links: links, Events: events,
		Failed: s.GetStatus().GetCode() == otlp.Status_STATUS_CODE_ERROR, Failure: s.GetStatus().GetMessage(),
	}
}

func attributes(list []*common.KeyValue) map[string]string {
	m := make(map[string]string, len(list))
	for _, a := range list {
		m[a.GetKey()] = text(a.GetValue())
	}
	return m
}

func text(v *common.AnyValue) string {
	switch v := v.GetValue().(type) {
	case *common.AnyValue_StringValue:
		return v.StringValue
	case *common.AnyValue_IntValue:
		return strconv.FormatInt(v.IntValue, 10)
	case *common.AnyValue_DoubleValue:
		return strconv.FormatFloat(v.DoubleValue, 'g', -1, 64)
	case *common.AnyValue_BoolValue:
		return strconv.FormatBool(v.BoolValue)
	case *common.AnyValue_ArrayValue:
		var all []string
		for _, e := range v.ArrayValue.GetValues() {
			all = append(all, text(e))
		}
		return strings.Join(all, ",")
	}
	return ""
}

// SpanTree formats spans as a tree in the order of their start, with their start relative to the first span and their duration.
func SpanTree(spans []Span) string {
	sorted := slices.Clone(spans)
	slices.SortStableFunc(sorted, func(a, b Span) int { return a.Start.Compare(b.Start) })
	known, below := map[string]bool{}, map[string][]Span{}
	for _, s := range sorted {
		known[s.ID] = true
	}
	for _, s := range sorted {
		parent := s.ParentID
		if !known[parent] {
			parent = ""
		}
		below[parent] = append(below[parent], s)
	}
	var out strings.Builder
	var draw func(parent, indent string)
	draw = func(parent, indent string) {
		for _, s := range below[parent] {
			failed := ""
			if s.Failed {
				failed = "  ! " + s.Failure
			}
			fmt.Fprintf(&out, "%s%s  (%s)  +%s %s%s\n", indent, s.Name, s.Service,
				s.Start.Sub(sorted[0].Start).Round(time.Millisecond), s.End.Sub(s.Start).Round(100*time.Microsecond), failed)
			draw(s.ID, indent+"  ")
		}
	}
	draw("", "")
	return out.String()
}

// Ancestors returns the names of a span and of its known ancestors.
func Ancestors(spans []Span, s Span) []string {
	byID := make(map[string]Span, len(spans))
	for _, s := range spans {
		byID[s.ID] = s
	}
	names := []string{s.Name}
	for range spans {
		parent, ok := byID[s.ParentID]
		if !ok {
			break
		}
		s = parent
		names = append(names, s.Name)
	}
	return names
}
