package service

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

const (
	healthcheckArg = "healthcheck"
	metricsAddr    = "KEB_METRICS_ADDR"
	metricsCert    = MetricsTLSPrefix + "CERT_FILE"
	// healthcheckTimeout is longer than checkLimit.
	healthcheckTimeout = checkLimit + time.Second
	// maxHealthAnswer is the maximum number of bytes of a wrong answer that are read and printed.
	maxHealthAnswer = 4 << 10
)

// askReady requests /readyz from a process of this machine by its listening address, with or without TLS.
func askReady(ctx context.Context, addr string, encrypted bool) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%s: %q is not an address such as :9090", metricsAddr, addr)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	own := "http://" + net.JoinHostPort(host, port) + "/readyz"
	if !encrypted {
		return Healthcheck(ctx, own, nil)
	}
	// The process checks itself: the request contains no secrets, and the certificate is for the
	// names that other clients use.
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}} //nolint:gosec // as said
	return Healthcheck(ctx, "https"+strings.TrimPrefix(own, "http"), transport)
}

// Healthcheck requests a URL with a timeout of three seconds. A status other than 200 is an error with the answer. A nil transport
// means http.DefaultTransport.
func Healthcheck(ctx context.Context, url string, transport http.RoundTripper) error {
	ctx, cancel := context.WithTimeout(ctx, healthcheckTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil) //nolint:gosec // from the configuration or the command line of the process itself
	if err != nil {
		return fmt.Errorf("healthcheck: %w", err)
	}
	client := http.Client{Timeout: healthcheckTimeout, Transport: transport}
	defer client.CloseIdleConnections()
	answer, err := client.Do(request) //nolint:gosec // as above
	if err != nil {
		return fmt.Errorf("healthcheck: %w", err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxHealthAnswer))
	if err != nil {
		return fmt.Errorf("healthcheck: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("healthcheck: %s: %s", answer.Status, strings.TrimSpace(string(body)))
	}
	return nil
}
