package service

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/kyma-project/keb/libs/tlsfiles"
	"github.com/kyma-project/keb/libs/tracing"
)

// Process holds the log, metrics, health and traces that the parts of a process share, and runs the parts. Program creates one for a
// service; a process with several services creates its own.
type Process struct {
	Log *slog.Logger
	// Registry holds the metrics of the process, and Health its readiness checks.
	Registry *prometheus.Registry
	Health   *Health

	traces  *tracing.Exporter
	group   *Group
	closers []func() error
}

// NewProcess returns a process without parts. Close also closes traces.
func NewProcess(log *slog.Logger, traces *tracing.Exporter) *Process {
	return &Process{Log: log, Registry: Registry(), Health: NewHealth(), traces: traces, group: NewGroup(log)}
}

// TracerProvider returns the tracer provider of a service; nil if tracing is off.
func (p *Process) TracerProvider(name, version string) trace.TracerProvider {
	return p.traces.Provider(name, version)
}

// Add adds a part that Run runs; see Group.Add.
func (p *Process) Add(name string, run func(ctx context.Context) error) { p.group.Add(name, run) }

// Defer adds a function that Close calls after all parts have ended.
func (p *Process) Defer(f func() error) { p.closers = append(p.closers, f) }

// Listen is ListenTLS. The server closes the listener; Close closes it if the server was never started.
func (p *Process) Listen(variable, addr string, files tlsfiles.Server) (net.Listener, error) {
	ln, err := ListenTLS(variable, addr, files, p.Log)
	if err != nil {
		return nil, err
	}
	p.Defer(func() error { _ = ln.Close(); return nil }) // the server may have closed it
	return ln, nil
}

// Certificates registers metrics of the certificate files of servers and clients, by the prefixes of their variables.
func (p *Process) Certificates(servers map[string]tlsfiles.Server, clients map[string]tlsfiles.Client) error {
	return p.Registry.Register(tlsfiles.NewCollector(servers, clients))
}

// ServeMetrics adds a part that serves h at the address of metrics and health. Without an address it adds none.
func (p *Process) ServeMetrics(m Metrics, h http.Handler) error {
	if m.Addr == "" {
		return nil
	}
	serve, err := m.Serve(h, p.Log)
	if err != nil {
		return err
	}
	p.Add("metrics", serve)
	return nil
}

// Run runs all parts until ctx ends or the first of them does; see Group.Run.
func (p *Process) Run(ctx context.Context) error { return p.group.Run(ctx) }

// Close calls the deferred functions in reverse order, and sends pending spans.
func (p *Process) Close() error {
	var problems []error
	for _, f := range slices.Backward(p.closers) {
		problems = append(problems, f())
	}
	p.closers = nil
	p.traces.Close()
	return errors.Join(problems...)
}
