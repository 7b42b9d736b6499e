package test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/tracing"
	"github.com/kyma-project/keb/libs/tracing/otlp"
	"github.com/kyma-project/keb/test/internal/harness"
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

func TestExporter_Environment_IsUsed(t *testing.T) {
	silence(t)
	collector := harness.CollectTraces(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL())
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=keb%20one")
	t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
	e, err := tracing.New(t.Context(), tracing.Config{Exporter: otlp.New})
	require.NoError(t, err)
	_, span := tracing.TracerOf(e.Provider("keb-broker", "1"), "x").Start(t.Context(), "span")
	span.End()
	e.Close()
	if spans := collector.Spans(); len(spans) != 1 || spans[0].Name != "span" || spans[0].Service != "keb-broker" {
		t.Errorf("spans are %+v", spans)
	}
	for _, h := range collector.Headers() {
		if h.Get("X-Tenant") != "keb one" || h.Get("Content-Encoding") != "gzip" {
			t.Errorf("headers are %v", h)
		}
	}
	if !bytes.Contains(collector.Raw(), []byte("deployment.environment")) {
		t.Error("the attributes of OTEL_RESOURCE_ATTRIBUTES are missing")
	}
}

func TestExporter_CollectorRejects_DropsSpans(t *testing.T) {
	silence(t)
	collector := harness.CollectTraces(t)
	collector.Refuse(http.StatusBadRequest)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL())
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20s3cr3t-value")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "5")
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "10")
	var book testkit.Log
	e, err := tracing.New(t.Context(), tracing.Config{Exporter: otlp.New, Log: slog.New(slog.NewTextHandler(&book, nil))})
	require.NoError(t, err)
	tracer := tracing.TracerOf(e.Provider("keb-broker", ""), "x")
	end := func() {
		_, span := tracer.Start(t.Context(), "span")
		span.End()
	}
	testkit.Eventually(t, limit, "rejected requests", func() bool {
		end()
		return collector.Refused() > 5
	})
	collector.Refuse(0)
	testkit.Eventually(t, limit, "a span", func() bool {
		end()
		return len(collector.Spans()) > 0
	})
	testkit.Eventually(t, limit, "a message that it works again", func() bool { return strings.Contains(book.String(), "takes spans again") })
	e.Close()
	text := book.String()
	if n := strings.Count(text, "does not take spans"); n != 1 || !strings.Contains(text, "400 Bad Request") || strings.Contains(text, "s3cr3t") {
		t.Errorf("%d warnings:\n%s", n, text)
	}
}

func TestExporter_SilentCollector_DoesNotDelayClose(t *testing.T) {
	silence(t)
	release := make(chan struct{})
	arrived := make(chan struct{}, 10)
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer silent.Close()
	defer close(release)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", silent.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60000")
	t.Setenv("OTEL_BSP_EXPORT_TIMEOUT", "60000")
	e, err := tracing.New(t.Context(), tracing.Config{Exporter: otlp.New})
	require.NoError(t, err)
	_, span := tracing.TracerOf(e.Provider("keb-broker", ""), "x").Start(t.Context(), "span")
	span.End()
	start := time.Now()
	e.Close()
	if took := time.Since(start); took > limit {
		t.Errorf("it took %s", took)
	}
	<-arrived
}
