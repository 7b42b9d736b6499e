// Package fault injects delays, errors and timeouts into a simulated system, and counts its requests. It records requests for unknown
// routes as violations of the contract.
package fault

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/kyma-project/keb/landscape/internal/contract"
)

// Settings are the faults of one system. The zero value means no faults.
type Settings struct {
	// LatencyMs delays each answer, in milliseconds, 0 to 600000.
	LatencyMs int `json:"latencyMs"`
	// ErrorRate is the share of requests that are answered with ErrorStatus, 0 to 1. It is exact: 0.25 is every fourth request.
	ErrorRate float64 `json:"errorRate"`
	// ErrorStatus is 400 to 599; 0 means 500. The answer has an empty body.
	ErrorStatus int `json:"errorStatus"`
	// ErrorAfter makes the system process the request before it answers with the error, as if only the answer was lost.
	ErrorAfter bool `json:"errorAfter"`
	// Outage answers every request with 503.
	Outage bool `json:"outage"`
	// Timeout answers no request: the connection stays open until the client disconnects or the settings change.
	Timeout bool `json:"timeout"`
}

// Validate reports every invalid field and the valid values.
func (s Settings) Validate() error {
	var errs []error
	if s.LatencyMs < 0 || s.LatencyMs > 600_000 {
		errs = append(errs, fmt.Errorf("latencyMs: %d is not allowed, use 0 to 600000", s.LatencyMs))
	}
	if math.IsNaN(s.ErrorRate) || s.ErrorRate < 0 || s.ErrorRate > 1 {
		errs = append(errs, fmt.Errorf("errorRate: %v is not allowed, use 0 to 1", s.ErrorRate))
	}
	if s.ErrorStatus != 0 && (s.ErrorStatus < 400 || s.ErrorStatus > 599) {
		errs = append(errs, fmt.Errorf("errorStatus: %d is not allowed, use 400 to 599, or 0 for 500", s.ErrorStatus))
	}
	return errors.Join(errs...)
}

// Call is the number of requests of a route with a status; status 0 means no answer.
type Call struct {
	Method string `json:"method"`
	Route  string `json:"route"`
	Code   int    `json:"code"`
	Count  int64  `json:"count"`
}

// Gate processes all requests of one system.
type Gate struct {
	book *contract.Book

	mu       sync.Mutex
	settings Settings
	changed  chan struct{} // closed and replaced when the settings change
	asked    int64
	calls    map[Call]int64
}

// NewGate returns a gate without faults. It records violations in the book.
func NewGate(book *contract.Book) *Gate {
	return &Gate{book: book, changed: make(chan struct{}), calls: map[Call]int64{}}
}

// Settings returns the current settings.
func (g *Gate) Settings() Settings {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.settings
}

// Set changes the settings, releases requests that Timeout blocks, and restarts the count for ErrorRate.
func (g *Gate) Set(s Settings) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.settings = s
	g.asked = 0
	close(g.changed)
	g.changed = make(chan struct{})
}

// Calls returns the number of calls since the start of the process, ordered by route, method and code.
func (g *Gate) Calls() []Call {
	g.mu.Lock()
	defer g.mu.Unlock()
	calls := make([]Call, 0, len(g.calls))
	for call, n := range maps.All(g.calls) {
		call.Count = n
		calls = append(calls, call)
	}
	slices.SortFunc(calls, func(a, b Call) int {
		return cmp.Or(cmp.Compare(a.Route, b.Route), cmp.Compare(a.Method, b.Method), cmp.Compare(a.Code, b.Code))
	})
	return calls
}

// Wrap returns h behind the gate. The counted route is the pattern that h's mux (or h itself) set in the request, or "(not reached)" if a
// fault prevented the call of h.
func (g *Gate) Wrap(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, fails, changed := g.next()
		rec := &recorder{ResponseWriter: w}
		r = g.book.Attach(r)
		r.Pattern = notReached
		answered := false
		defer func() {
			code := 0
			if answered {
				code = cmp.Or(rec.code, http.StatusOK)
			}
			g.count(r, code)
		}()
		if s.LatencyMs > 0 || s.Timeout {
			drain(r)
		}
		if s.Timeout {
			select {
			case <-r.Context().Done():
			case <-changed:
			}
			panic(http.ErrAbortHandler)
		}
		if s.LatencyMs > 0 {
			timer := time.NewTimer(time.Duration(s.LatencyMs) * time.Millisecond)
			defer timer.Stop()
			select {
			case <-r.Context().Done():
				panic(http.ErrAbortHandler)
			case <-timer.C:
			}
		}
		switch {
		case s.Outage:
			contract.Error(rec, http.StatusServiceUnavailable, "service unavailable")
		case fails && s.ErrorAfter:
			serve(h, &discard{header: http.Header{}}, r)
			rec.WriteHeader(cmp.Or(s.ErrorStatus, http.StatusInternalServerError))
		case fails:
			rec.WriteHeader(cmp.Or(s.ErrorStatus, http.StatusInternalServerError))
		default:
			serve(h, rec, r)
		}
		answered = true
	})
}

const notReached = "(not reached)"

// serve records a request without a route in h.
func serve(h http.Handler, w http.ResponseWriter, r *http.Request) {
	h.ServeHTTP(w, r)
	if r.Pattern == "" {
		contract.Violation(r, "no such route")
	}
}

func (g *Gate) next() (s Settings, fails bool, changed <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked++
	n, rate := float64(g.asked), g.settings.ErrorRate
	// The n-th request fails if it increases the integer part of n*rate. The small term corrects rounding errors, such as 0.99 for 0.1*10.
	const eps = 1e-9
	return g.settings, math.Floor(n*rate+eps) > math.Floor((n-1)*rate+eps), g.changed
}

func (g *Gate) count(r *http.Request, code int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls[Call{Method: r.Method, Route: route(r.Pattern), Code: code}]++
}

// route returns a mux pattern without its method. Unknown paths share one route, because clients can choose any path.
func route(pattern string) string {
	if pattern == "" {
		return "(not served)"
	}
	for i, c := range pattern {
		if c == '/' || c == '(' {
			return pattern[i:]
		}
	}
	return pattern
}

// drain reads and keeps the body: net/http detects a disconnected client only after the body is read.
func drain(r *http.Request) {
	body, err := contract.Body(r, contract.MaxBody)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
}
