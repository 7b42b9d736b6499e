package service

import (
	"context"
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
	// healthcheckTimeout is longer than the readiness checks may take.
	healthcheckTimeout = checkLimit + time.Second
	// maxHealthAnswer bounds what is read, and shown, of an answer that is not the right one.
	maxHealthAnswer = 4 << 10
)

// askReady asks /readyz at the address that a process of this machine listens on.
func askReady(ctx context.Context, addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%s: %q is not an address such as :9090", metricsAddr, addr)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return Healthcheck(ctx, "http://"+net.JoinHostPort(host, port)+"/readyz")
}

// Healthcheck asks a URL, for at most three seconds. Anything but 200 is an error that holds the answer.
func Healthcheck(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, healthcheckTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil) //nolint:gosec // from the configuration or the command line of the process itself
	if err != nil {
		return fmt.Errorf("healthcheck: %w", err)
	}
	client := http.Client{Timeout: healthcheckTimeout}
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
