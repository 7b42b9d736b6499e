// Package access authorizes clients of the operator APIs: a viewer may read, an
// operator may read and act, a sender may only send events to operations. A client authenticates with a static token, with a
// bearer token of an OpenID Connect issuer, or with the session cookie of a browser
// that logged in with one of them.
//
// No token is logged, stored or part of an error.
package access

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Role is the set of allowed actions. The zero value allows nothing.
type Role string

// The roles. An operator may do everything that a viewer or a sender may.
const (
	Viewer   Role = "viewer"
	Operator Role = "operator"
	// Sender may send events to operations, and nothing else. It is for external systems.
	Sender Role = "sender"
)

// Roles returns all roles.
func Roles() []Role { return []Role{Viewer, Operator, Sender} }

// Includes reports whether the role is sufficient where needed is required.
func (r Role) Includes(needed Role) bool {
	return needed != "" && (r == needed || r == Operator && slices.Contains(Roles(), needed))
}

// Authentication is the method by which an identity was proved.
type Authentication string

// The authentication methods. With None, access control is off: every client that reaches the address is an operator.
const (
	None  Authentication = "none"
	Token Authentication = "token"
	OIDC  Authentication = "oidc"
)

// Anonymous is the name of every client if access control is off.
const Anonymous = "an operator"

// Identity is an authenticated client.
type Identity struct {
	// Name is for people. Audit records contain it.
	Name string `json:"name"`
	// Role is empty for a known client without a role.
	Role           Role           `json:"role"`
	Authentication Authentication `json:"authentication"`
	// Subject is the issuer's permanent name for the owner of a token; empty for other methods.
	Subject string `json:"-"`
	// Expires is when the credentials expire; zero if unknown.
	Expires time.Time `json:"-"`

	// A session stores the hash of a static token, or the values of the roles claim, to check the role again.
	tokenHash string
	groups    []string
}

// Lacks returns the message for an identity without the required role.
func (i Identity) Lacks(needed Role) string {
	if i.Role == "" {
		return fmt.Sprintf("%s has no role, and this needs the role %s", i.Name, needed)
	}
	return fmt.Sprintf("%s has the role %s, and this needs the role %s", i.Name, i.Role, needed)
}

type identityKey struct{}

// With returns a context with the client's identity.
func With(ctx context.Context, i Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, i)
}

// From returns the client's identity, which Guard adds to the context of a request.
func From(ctx context.Context) (Identity, bool) {
	i, ok := ctx.Value(identityKey{}).(Identity)
	return i, ok
}
