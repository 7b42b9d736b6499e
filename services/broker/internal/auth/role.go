package auth

import (
	"errors"
	"net/http"

	"github.com/kyma-project/keb/libs/access"
	"github.com/kyma-project/keb/libs/osb"
)

// ForRole accepts the credentials of a platform, which may do everything, and access tokens that have the role.
func ForRole(platform osb.Authenticator, tokens *access.Authenticator, role access.Role) osb.Authenticator {
	if !tokens.Enabled() {
		return platform
	}
	return forRole{platform: platform, tokens: tokens, role: role}
}

type forRole struct {
	platform osb.Authenticator
	tokens   *access.Authenticator
	role     access.Role
}

// Challenge asks for the credentials of a platform, or for an access token.
func (f forRole) Challenge() string { return f.platform.Challenge() + ", " + access.Challenge(false) }

// Authenticate returns 403 for an access token without the role: its owner is known.
func (f forRole) Authenticate(r *http.Request) (osb.Principal, error) {
	principal, err := f.platform.Authenticate(r)
	if err == nil {
		return principal, nil
	}
	if _, ok := access.BearerToken(r); !ok {
		return osb.Principal{}, err
	}
	i, refusal := f.tokens.Authenticate(r)
	if refusal != nil {
		e, ok := errors.AsType[*access.Error](refusal)
		if !ok || e.Status == http.StatusUnauthorized {
			return osb.Principal{}, err
		}
		return osb.Principal{}, &osb.Error{Status: e.Status, Description: e.Message, RetryAfter: e.RetryAfter}
	}
	if !i.Role.Includes(f.role) {
		return osb.Principal{}, &osb.Error{Status: http.StatusForbidden, Description: i.Lacks(f.role)}
	}
	return osb.Principal{Name: i.Name, Scheme: "bearer"}, nil
}
