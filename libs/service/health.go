package service

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

// checkLimit is the timeout of a readiness check, shorter than the usual timeout of a probe.
const checkLimit = 2 * time.Second

// Health answers whether a service is alive and ready. It is safe for concurrent use.
type Health struct {
	mu     sync.Mutex
	names  []string
	checks map[string]func(ctx context.Context) error
}

// NewHealth returns a Health without checks, which is ready.
func NewHealth() *Health { return &Health{checks: map[string]func(context.Context) error{}} }

// Add adds a readiness check and replaces one with the same name. The check has a timeout of two seconds. Its error is part of the
// answer, so it must not contain secrets.
func (h *Health) Add(name string, check func(ctx context.Context) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.checks[name] == nil {
		h.names = append(h.names, name)
	}
	h.checks[name] = check
}

type healthAnswer struct {
	Status string            `json:"status"`
	Checks map[string]string `json:"checks,omitempty"`
}

// Handler serves GET /healthz, which is 200 as long as the process answers, and GET /readyz, which is 200 when every check
// passes and 503 otherwise: {"status":"ok|unavailable","checks":{"<name>":"ok|<error>"}}.
func (h *Health) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeHealth(w, http.StatusOK, healthAnswer{Status: "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		answer := h.check(r.Context())
		code := http.StatusOK
		if answer.Status != "ok" {
			code = http.StatusServiceUnavailable
		}
		writeHealth(w, code, answer)
	})
	return mux
}

func (h *Health) check(ctx context.Context) healthAnswer {
	h.mu.Lock()
	names := append([]string(nil), h.names...)
	checks := make([]func(context.Context) error, len(names))
	for i, name := range names {
		checks[i] = h.checks[name]
	}
	h.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	for i, check := range checks {
		wg.Go(func() { errs[i] = check(ctx) })
	}
	wg.Wait()
	answer := healthAnswer{Status: "ok", Checks: make(map[string]string, len(names))}
	for i, name := range names {
		answer.Checks[name] = "ok"
		if errs[i] != nil {
			answer.Checks[name] = errs[i].Error()
			answer.Status = "unavailable"
		}
	}
	return answer
}

func writeHealth(w http.ResponseWriter, code int, answer healthAnswer) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer) // a disconnected client is not an error
}
