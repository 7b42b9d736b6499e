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

// maxRequest is how long a request may last before who sent it has to prove again that he may.
const maxRequest = 15 * time.Minute

// Guard lets requests through by the role of who sends them.
type Guard struct {
	auth     *Authenticator
	sessions *Sessions
	log      *slog.Logger
	now      func() time.Time
	// refused is told of requests that somebody who is known may not send; refusals bounds how often.
	refused  func(r *http.Request, i Identity, reason string)
	refusals *limiter
}

// NewGuard makes a guard. Without sessions cookies do not count.
func NewGuard(a *Authenticator, s *Sessions) *Guard {
	return &Guard{
		auth: a, sessions: s, log: a.deps.Log, now: a.deps.Now, refused: func(*http.Request, Identity, string) {},
		refusals: newLimiter(a.deps.Now),
	}
}

// OnRefusal sets who is told of a request that somebody who is known may not send. Of somebody who is refused often only some are
// told. It must be called before the guard is used.
func (g *Guard) OnRefusal(f func(r *http.Request, i Identity, reason string)) { g.refused = f }

// Identify says who sends a request: by its Authorization header if it has one, else by its cookie. Every error is an *Error.
func (g *Guard) Identify(r *http.Request) (Identity, error) {
	if g.sessions != nil && g.auth.Enabled() && r.Header.Get("Authorization") == "" {
		if i, ok, err := g.sessions.Identify(r); ok {
			return i, err
		}
	}
	return g.auth.Authenticate(r)
}

// Protect lets viewers read (GET, HEAD) and operators do everything.
func (g *Guard) Protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		needed := Operator
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			needed = Viewer
		}
		g.serve(w, r, needed, next)
	})
}

func (g *Guard) serve(w http.ResponseWriter, r *http.Request, needed Role, next http.Handler) {
	if g.auth.local() && !loopback(hostOf(r.Host)) {
		// A name of somebody else that leads to this machine: the page behind it would be of the same origin.
		Refuse(w, &Error{
			Status: http.StatusForbidden, Message: "nobody is asked who he is here, so only requests to localhost are answered; KEB_ACCESS=none answers all",
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
	// What is for somebody with a role is not for the next one behind the same cache.
	w.Header().Set("Cache-Control", "no-store")
	ctx := With(r.Context(), i)
	if i.Authentication != None {
		ctx = context.WithValue(ctx, recheckKey{}, func() error { return g.recheck(r, needed) })
		// Who streams for hours proves now and then that he still may.
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

// Recheck says whether who sent a request may still do what Guard let it through for. It is for answers that go on and on, which
// end when it returns an error.
func Recheck(ctx context.Context) error {
	if again, ok := ctx.Value(recheckKey{}).(func() error); ok {
		return again()
	}
	return nil
}

func (g *Guard) recheck(r *http.Request, needed Role) error {
	i, err := g.Identify(r)
	if e, ok := errors.AsType[*Error](err); ok && e.Status == http.StatusServiceUnavailable {
		return nil // not judged: what was good before holds until the request must end anyway
	}
	if err == nil && !i.Role.Includes(needed) {
		err = &Error{Status: http.StatusForbidden, Message: i.Lacks(needed)}
	}
	return err
}

// hostOf is the host of a "host:port", whose port may be missing.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return strings.Trim(address, "[]")
}

// Refuse answers with an error of this package, as JSON; another error is 500 and not shown.
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
	_ = json.NewEncoder(w).Encode(map[string]string{"error": refusal.Message}) // who hangs up misses the answer
}

// Challenge is the value of WWW-Authenticate that asks for a token; presented tells that there was one, which is wrong.
func Challenge(presented bool) string {
	if presented {
		return `Bearer realm="keb", error="invalid_token"`
	}
	return `Bearer realm="keb"`
}
