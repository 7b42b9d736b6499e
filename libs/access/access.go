// Package access says who may use the APIs for operators: a viewer may look, an
// operator may look and act. Who calls proves it with a static token, with a
// bearer token of an OpenID Connect issuer, or with the session cookie that a
// browser got for one of them.
//
// No token is logged, stored or part of an error.
package access

import (
	"context"
	"fmt"
	"time"
)

// Role says what somebody may do. The zero value may do nothing.
type Role string

// The roles. An operator may do all that a viewer may.
const (
	Viewer   Role = "viewer"
	Operator Role = "operator"
)

// Includes reports whether whoever has the role may do what needed is for.
func (r Role) Includes(needed Role) bool {
	switch r {
	case Operator:
		return needed == Operator || needed == Viewer
	case Viewer:
		return needed == Viewer
	}
	return false
}

// Authentication is how an identity was proved.
type Authentication string

// The ways to prove an identity. With None nobody is asked: whoever reaches the address is an operator.
const (
	None  Authentication = "none"
	Token Authentication = "token"
	OIDC  Authentication = "oidc"
)

// Anonymous is the name of everybody where nobody is asked.
const Anonymous = "an operator"

// Identity is who calls.
type Identity struct {
	// Name is for people, and stands with everything that its owner does.
	Name string `json:"name"`
	// Role is empty for somebody who is known and may do nothing.
	Role           Role           `json:"role"`
	Authentication Authentication `json:"authentication"`
	// Subject is what the issuer calls the owner of a token, which never changes; empty for others.
	Subject string `json:"-"`
	// Expires is when the proof ends; zero when that is not known.
	Expires time.Time `json:"-"`

	// proof is what a session keeps to check the role again: the hash of a static token, or the values of the roles claim.
	tokenHash string
	groups    []string
}

// Lacks says that somebody has not the role that something needs.
func (i Identity) Lacks(needed Role) string {
	if i.Role == "" {
		return fmt.Sprintf("%s has no role, and this needs the role %s", i.Name, needed)
	}
	return fmt.Sprintf("%s has the role %s, and this needs the role %s", i.Name, i.Role, needed)
}

type identityKey struct{}

// With returns a context that carries who calls.
func With(ctx context.Context, i Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, i)
}

// From returns who calls, as Guard has put it into the context of a request.
func From(ctx context.Context) (Identity, bool) {
	i, ok := ctx.Value(identityKey{}).(Identity)
	return i, ok
}
