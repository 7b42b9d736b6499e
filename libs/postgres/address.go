package postgres

import (
	"errors"
	"fmt"

	"github.com/kyma-project/keb/libs/tlsfiles"
)

// Address is where the database of a service is. Services read it from their environment, and open their own pools there.
type Address struct {
	// URL is the address of Postgres, "postgres://user:password@host:port/database". It may list a primary and its standbys, "host1:port1,host2:port2".
	URL string `env:"KEB_DATABASE_URL,required,notEmpty"`
	// TLS are files in place of sslrootcert, sslcert and sslkey in the address.
	TLS tlsfiles.Client `envPrefix:"KEB_DATABASE_"`
}

// Validate reports every invalid setting. No error holds the password.
func (a Address) Validate() error {
	problems := []error{a.TLS.Validate(tlsPrefix)}
	_, _, err := a.Pool("").dsn()
	if u, bad := parseURL(a.URL); err == nil && bad == nil && u.Host == "" && !u.Query().Has("host") {
		err = errors.New("the database URL names no host; " + wantURL)
	}
	if err != nil {
		problems = append(problems, fmt.Errorf("KEB_DATABASE_URL: %w", err))
	}
	return errors.Join(problems...)
}

// Pool is the configuration of a pool at the address.
func (a Address) Pool(applicationName string) Config {
	return Config{URL: a.URL, TLS: a.TLS, ApplicationName: applicationName}
}
