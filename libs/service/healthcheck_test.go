package service

import (
	"context"
	"errors"
	"net"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHealthcheck_OwnAddress_IsRequested(t *testing.T) {
	t.Parallel()
	health := NewHealth()
	server := httptest.NewServer(health.Handler())
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	require.NoError(t, err)
	for _, addr := range []string{"127.0.0.1:" + port, ":" + port, "0.0.0.0:" + port, "[::]:" + port} {
		if err := askReady(t.Context(), addr, false); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
	health.Add("nats", func(context.Context) error { return errors.New("not connected") })
	if err := askReady(t.Context(), ":"+port, false); err == nil || !strings.Contains(err.Error(), "not connected") {
		t.Errorf("not ready: error is %v, want the reason", err)
	}
	server.Close()
	if err := askReady(t.Context(), ":"+port, false); err == nil {
		t.Error("no listener: no error")
	}
	if err := askReady(t.Context(), "", false); err == nil || !strings.Contains(err.Error(), "KEB_METRICS_ADDR") {
		t.Errorf("no address: error is %v, want one that names the variable", err)
	}
}
