package osb

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"strconv"
	"strings"
)

// ErrUnauthenticated is returned by an Authenticator for missing or wrong credentials. It does not distinguish them, and both
// result in 401 with the same body.
var ErrUnauthenticated = errors.New("osb: not authenticated")

// Principal is the authenticated client.
type Principal struct {
	// Name is the user or client id.
	Name string
	// Scheme is the authentication scheme: "basic" or "bearer".
	Scheme string
}

// Authenticator authenticates clients. An *Error is answered as it specifies (for example 503 if credentials cannot be checked now), and
// any other error as 401. Errors must not contain credentials.
type Authenticator interface {
	Authenticate(r *http.Request) (Principal, error)
	// Challenge returns the WWW-Authenticate value for this kind of credentials.
	Challenge() string
}

// BasicAuth accepts the users with their passwords. A user with an empty name or password is never accepted.
func BasicAuth(realm string, users map[string]string) Authenticator {
	b := &basicAuth{challenge: "Basic realm=" + strconv.Quote(realm) + `, charset="UTF-8"`}
	for user, password := range users {
		if user != "" && password != "" {
			b.users = append(b.users, basicUser{name: user, hash: credentialsHash(user, password)})
		}
	}
	return b
}

type basicUser struct {
	name string
	hash [sha256.Size]byte
}

type basicAuth struct {
	challenge string
	users     []basicUser
}

func (b *basicAuth) Challenge() string { return b.challenge }

func (b *basicAuth) Authenticate(r *http.Request) (Principal, error) {
	user, password, ok := r.BasicAuth()
	if !ok {
		return Principal{}, ErrUnauthenticated
	}
	// Compare hashes of equal length with every user, so that the duration reveals neither a name nor a length.
	hash, found := credentialsHash(user, password), -1
	for i := range b.users {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hash[:], b.users[i].hash[:]), i, found)
	}
	if found < 0 {
		return Principal{}, ErrUnauthenticated
	}
	return Principal{Name: b.users[found].name, Scheme: "basic"}, nil
}

// credentialsHash is unambiguous: a user name in basic credentials contains no colon.
func credentialsHash(user, password string) [sha256.Size]byte {
	return sha256.Sum256([]byte(user + ":" + password))
}

// AnyOf accepts credentials that one of the authenticators accepts, tried in order. Without authenticators it accepts none.
func AnyOf(authenticators ...Authenticator) Authenticator { return anyOf(authenticators) }

type anyOf []Authenticator

func (a anyOf) Challenge() string {
	challenges := make([]string, 0, len(a))
	for _, one := range a {
		challenges = append(challenges, one.Challenge())
	}
	return strings.Join(challenges, ", ")
}

func (a anyOf) Authenticate(r *http.Request) (Principal, error) {
	var other error
	for _, one := range a {
		p, err := one.Authenticate(r)
		if err == nil {
			return p, nil
		}
		if _, ok := errors.AsType[*Error](err); ok {
			other = err
		}
	}
	if other != nil {
		return Principal{}, other
	}
	return Principal{}, ErrUnauthenticated
}
