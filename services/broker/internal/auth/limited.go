package auth

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/access"
	"github.com/kyma-project/keb/libs/osb"
)

// Limited wraps an authenticator and limits the failed attempts of a client.
func Limited(next osb.Authenticator, attempts *access.Attempts) osb.Authenticator {
	return limited{Authenticator: next, attempts: attempts}
}

type limited struct {
	osb.Authenticator
	attempts *access.Attempts
}

// Authenticate rejects a client with too many failed attempts without checking its credentials.
func (l limited) Authenticate(r *http.Request) (osb.Principal, error) {
	presented := r.Header.Values("Authorization")
	if strings.Join(presented, "") == "" {
		return osb.Principal{}, osb.ErrUnauthenticated
	}
	if wait := l.attempts.Blocked(r); wait > 0 {
		return osb.Principal{}, tooMany(wait)
	}
	principal, err := osb.Principal{}, osb.ErrUnauthenticated
	if len(presented) == 1 { // with several, a proxy may have checked another one
		principal, err = l.Authenticator.Authenticate(r)
	}
	switch {
	case err == nil:
		l.attempts.Succeeded(r)
	case errors.Is(err, osb.ErrUnauthenticated):
		if wait := l.attempts.Failed(r); wait > 0 {
			return osb.Principal{}, tooMany(wait)
		}
	}
	return principal, err
}

func tooMany(wait time.Duration) error {
	return &osb.Error{
		Status: http.StatusTooManyRequests, RetryAfter: wait, Description: "too many failed attempts from your address: try again later",
	}
}
