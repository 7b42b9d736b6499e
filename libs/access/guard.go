package access

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxRequest is the maximum duration of a request before its client must authenticate again.
const maxRequest = 15 * time.Minute

// Guard authorizes requests by the role of their client.
type Guard struct {
	auth     *Authenticator
	sessions *Sessions
	log      *slog.Logger
	now      func() time.Time
	// refused is called for rejected requests of known clients; refusals limits how often.
	refused  func(r *http.Request, i Identity, reason string)
	refusals *limiter
	// sends reports whether a request needs only the role Sender.
	sends func(r *http.Request) bool
}

// NewGuard creates a guard. If s is nil, cookies are ignored.
func NewGuard(a *Authenticator, s *Sessions) *Guard {
	return &Guard{
		auth: a, sessions: s, log: a.deps.Log, now: a.deps.Now, refused: func(*http.Request, Identity, string) {},
		refusals: newLimiter(a.deps.Now), sends: func(*http.Request) bool { return false },
	}
}

// OnRefusal sets a function that is called for rejected requests of known clients, but only for some if a client is rejected often. It
// must be called before the guard is used.
func (g *Guard) OnRefusal(f func(r *http.Request, i Identity, reason string)) { g.refused = f }

// AllowSender sets a function that reports whether a request needs only the role Sender. It must be called before the guard is used.
func (g *Guard) AllowSender(sends func(r *http.Request) bool) { g.sends = sends }

// Identify returns the client of a request, by its Authorization header if it has one, otherwise by its cookie. Every error is an *Error.
func (g *Guard) Identify(r *http.Request) (Identity, error) {
	if g.sessions != nil && g.auth.Enabled() && r.Header.Get("Authorization") == "" {
		if i, ok, err := g.sessions.Identify(r); ok {
			return i, err
		}
	}
	return g.auth.Authenticate(r)
}

// Protect allows viewers to read (GET, HEAD), senders what AllowSender says, and operators everything.
func (g *Guard) Protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		needed := Operator
		switch {
		case r.Method == http.MethodGet || r.Method == http.MethodHead:
			needed = Viewer
		case g.sends(r):
			needed = Sender
		}
		g.serve(w, r, needed, next)
	})
}

func (g *Guard) serve(w http.ResponseWriter, r *http.Request, needed Role, next http.Handler) {
	if g.auth.local() && !loopback(hostOf(r.Host)) {
		// A foreign host name that resolves to this machine: its pages would have the same origin.
		Refuse(w, &Error{
			Status: http.StatusForbidden, Message: "access control is off, so only requests to localhost are answered; set KEB_ACCESS=none to answer all",
		})
		return
	}
	i, err := g.Identify(r)
	if err != nil {
		Refuse(w, err)
		return
	}
	if !i.Role.Includes(needed) {
		reason := i.Lacks(needed)
		if g.refusals.fail(strings.Join([]string{string(i.Authentication), i.Name, i.Subject}, "\n")) == 0 {
			g.log.Warn("request refused", "name", i.Name, "role", string(i.Role), "method", r.Method, "path", r.URL.Path)
			g.refused(r, i, reason)
		}
		Refuse(w, &Error{Status: http.StatusForbidden, Message: reason})
		return
	}
	// A shared cache must not serve the response to a client without the role.
	w.Header().Set("Cache-Control", "no-store")
	ctx := With(r.Context(), i)
	if i.Authentication != None {
		ctx = context.WithValue(ctx, recheckKey{}, func() error { return g.recheck(r, needed) })
		// A long stream authenticates again at intervals.
		limit := maxRequest
		if !i.Expires.IsZero() {
			limit = min(limit, i.Expires.Sub(g.now()))
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	next.ServeHTTP(w, r.WithContext(ctx))
}

type recheckKey struct{}

// Recheck returns an error if the client may no longer do what Guard authorized. Long-running responses call it, and end with its
// error.
func Recheck(ctx context.Context) error {
	if again, ok := ctx.Value(recheckKey{}).(func() error); ok {
		return again()
	}
	return nil
}

func (g *Guard) recheck(r *http.Request, needed Role) error {
	i, err := g.Identify(r)
	if e, ok := errors.AsType[*Error](err); ok && e.Status == http.StatusServiceUnavailable {
		return nil // not verified: the previous result applies until the maximum duration
	}
	if err == nil && !i.Role.Includes(needed) {
		err = &Error{Status: http.StatusForbidden, Message: i.Lacks(needed)}
	}
	return err
}

// hostOf returns the host of a "host:port". The port may be missing.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return strings.Trim(address, "[]")
}

// Refuse answers with an error of this package, as JSON. For any other error it answers 500 without details.
func Refuse(w http.ResponseWriter, err error) {
	refusal, ok := errors.AsType[*Error](err)
	if !ok {
		refusal = &Error{Status: http.StatusInternalServerError, Message: "internal error"}
	}
	if refusal.Status == http.StatusUnauthorized {
		w.Header().Add("WWW-Authenticate", Challenge(refusal.Presented))
	}
	if refusal.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(refusal.RetryAfter.Seconds()))))
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(refusal.Status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": refusal.Message}) // a disconnected client is not an error
}

// Challenge returns the WWW-Authenticate header that asks for a token. presented reports whether the request contained a wrong one.
func Challenge(presented bool) string {
	if presented {
		return `Bearer realm="keb", error="invalid_token"`
	}
	return `Bearer realm="keb"`
}
