package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/kyma-project/keb/libs/tlsfiles"
)

// Prefixes of the TLS variables of addresses.
const (
	// TLSPrefix is for the address of a service's API.
	TLSPrefix = "KEB_TLS_"
	// MetricsTLSPrefix is for the address of metrics and health.
	MetricsTLSPrefix = "KEB_METRICS_TLS_"
)

// ListenTLS listens on the address in a variable, with TLS if files are configured. Without TLS, if other machines can reach the address,
// it logs a warning about unencrypted data, which can be ignored if a proxy or a mesh provides TLS.
func ListenTLS(variable, addr string, files tlsfiles.Server, log *slog.Logger) (net.Listener, error) {
	plain, err := Listen(addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", variable, err)
	}
	ln, err := files.Listen(plain, TLSPrefix, tlsfiles.Always, log)
	if err != nil {
		return nil, errors.Join(err, plain.Close())
	}
	if !files.Enabled() && !onLoopback(plain.Addr()) {
		log.Warn("an address that other machines can reach has no TLS: credentials are unencrypted, unless a proxy or a mesh encrypts them",
			"variable", variable, "addr", addr, "see", TLSPrefix+"CERT_FILE")
	}
	return ln, nil
}

func onLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// API configures limits and TLS of the address of a service's API.
type API struct {
	// HTTP holds the client limits.
	HTTP HTTP
	// TLS names the certificate files of the address.
	TLS tlsfiles.Server `envPrefix:"KEB_TLS_"`
}

// Validate reports every invalid setting.
func (a API) Validate() error { return errors.Join(a.HTTP.Validate(), a.TLS.Validate(TLSPrefix)) }

// Metrics configures the address of metrics and health.
type Metrics struct {
	// Addr serves /metrics, /healthz and /readyz; off if empty.
	Addr string `env:"KEB_METRICS_ADDR"`
	// TLS names the certificate files of the address.
	TLS tlsfiles.Server `envPrefix:"KEB_METRICS_TLS_"`
}

// Validate reports every invalid setting.
func (m Metrics) Validate() error { return m.TLS.Validate(MetricsTLSPrefix) }

// Serve listens on the address, and returns a function that serves h. With a ClientCAFile only /healthz and /readyz need no certificate,
// because a kubelet has none.
func (m Metrics) Serve(h http.Handler, log *slog.Logger) (func(context.Context) error, error) {
	plain, err := Listen(m.Addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", metricsAddr, err)
	}
	ln, err := m.TLS.Listen(plain, MetricsTLSPrefix, tlsfiles.WhereAsked, log)
	if err != nil {
		return nil, errors.Join(err, plain.Close())
	}
	if m.TLS.Mutual() {
		h = certified(h)
	}
	log.Info("serving metrics and health", "addr", ln.Addr().String(), "tls", m.TLS.Enabled())
	return func(ctx context.Context) error { return ServeHTTP(ctx, ln, h) }, nil
}

// certified requires a client certificate for all routes except /healthz and /readyz.
func certified(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" && r.URL.Path != "/readyz" && (r.TLS == nil || len(r.TLS.VerifiedChains) == 0) {
			http.Error(w, "a client certificate is required here; see "+MetricsTLSPrefix+"CLIENT_CA_FILE", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}
