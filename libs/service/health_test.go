package service

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

func TestHealth_Checks_DecideReadiness(t *testing.T) {
	t.Parallel()
	fine := func(context.Context) error { return nil }
	h := NewHealth()
	h.Add("postgres", fine)
	h.Add("nats", func(context.Context) error { return errors.New("not connected") })

	tests := []struct {
		path string
		fix  bool
		code int
		want healthAnswer
	}{
		{"/healthz", false, http.StatusOK, healthAnswer{Status: "ok"}},
		{
			"/readyz", false, http.StatusServiceUnavailable,
			healthAnswer{Status: "unavailable", Checks: map[string]string{"postgres": "ok", "nats": "not connected"}},
		},
		{
			"/readyz", true, http.StatusOK,
			healthAnswer{Status: "ok", Checks: map[string]string{"postgres": "ok", "nats": "ok"}},
		},
	}
	for _, tt := range tests {
		if tt.fix {
			h.Add("nats", fine)
		}
		rec := httptest.NewRecorder()
		h.Handler().ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, tt.path, nil))
		var got healthAnswer
		require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &got))
		if rec.Code != tt.code || !cmp.Equal(got, tt.want) {
			t.Errorf("GET %s: %d, diff (-want +got)\n%s", tt.path, rec.Code, cmp.Diff(tt.want, got))
		}
	}
}

func TestHealth_CheckHangs_TimesOut(t *testing.T) {
	t.Parallel()
	h := NewHealth()
	h.Add("stuck", func(ctx context.Context) error {
		if _, ok := ctx.Deadline(); !ok {
			return nil // would mean ready
		}
		return context.DeadlineExceeded
	})
	if got := h.check(t.Context()); got.Status != "unavailable" {
		t.Errorf("got %+v, want unavailable", got)
	}
}
