package osb

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"strconv"
	"strings"
)

// ErrUnauthenticated is the answer of an Authenticator to missing or wrong credentials. It does not say which, and is
// answered as 401 with the same body for both.
var ErrUnauthenticated = errors.New("osb: not authenticated")

// Principal is who calls.
type Principal struct {
	// Name is the user or client id.
	Name string
	// Scheme is how it was authenticated: "basic" or "bearer".
	Scheme string
}

// Authenticator finds out who calls. Any error is answered as 401, except an *Error, which is answered as it says (for
// example 503 when credentials cannot be checked now). Authenticate must not write credentials into an error.
type Authenticator interface {
	Authenticate(r *http.Request) (Principal, error)
	// Challenge is the value of WWW-Authenticate that asks for this kind of credentials.
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
	// Every user is compared, by hashes of equal length, so that the time tells neither a name nor a length.
	hash, found := credentialsHash(user, password), -1
	for i := range b.users {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hash[:], b.users[i].hash[:]), i, found)
	}
	if found < 0 {
		return Principal{}, ErrUnauthenticated
	}
	return Principal{Name: b.users[found].name, Scheme: "basic"}, nil
}

// credentialsHash is one-to-one: a user name in basic credentials has no colon.
func credentialsHash(user, password string) [sha256.Size]byte {
	return sha256.Sum256([]byte(user + ":" + password))
}

// AnyOf accepts what one of the authenticators accepts, asked in order. Without any it accepts nothing.
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
