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

// Prefixes of the variables of the two kinds of addresses.
const (
	// TLSPrefix is that of the address that a service is there for.
	TLSPrefix = "KEB_TLS_"
	// MetricsTLSPrefix is that of the addresses of metrics and health.
	MetricsTLSPrefix = "KEB_METRICS_TLS_"
)

// ListenTLS listens on the address that a variable holds, with TLS if there are files. Without them, where others than this machine reach
// it, log says once that what is sent can be read on the way: that is in order where a proxy or a mesh in front has TLS.
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
		log.Warn("an address that others reach has no tls: credentials can be read on the way, unless a proxy or mesh in front encrypts",
			"variable", variable, "addr", addr, "see", TLSPrefix+"CERT_FILE")
	}
	return ln, nil
}

func onLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// API bounds and encrypts the address that a service is there for.
type API struct {
	// HTTP bounds what clients may take of the address.
	HTTP HTTP
	// TLS are the files of the address.
	TLS tlsfiles.Server `envPrefix:"KEB_TLS_"`
}

// Validate reports every invalid setting.
func (a API) Validate() error { return errors.Join(a.HTTP.Validate(), a.TLS.Validate(TLSPrefix)) }

// Metrics is the address of metrics and health.
type Metrics struct {
	// Addr serves /metrics, /healthz and /readyz; off if empty.
	Addr string `env:"KEB_METRICS_ADDR"`
	// TLS are the files of the address.
	TLS tlsfiles.Server `envPrefix:"KEB_METRICS_TLS_"`
}

// Validate reports every invalid setting.
func (m Metrics) Validate() error { return m.TLS.Validate(MetricsTLSPrefix) }

// Serve listens on the address, and returns what serves h there. With a ClientCAFile only /healthz and /readyz need no certificate: a
// kubelet has none to show.
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

// certified asks for a certificate wherever more is told than whether the service is well.
func certified(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" && r.URL.Path != "/readyz" && (r.TLS == nil || len(r.TLS.VerifiedChains) == 0) {
			http.Error(w, "a client certificate is required here; see "+MetricsTLSPrefix+"CLIENT_CA_FILE", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}
