package postgres

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"

	"github.com/lib/pq"

	"github.com/kyma-project/keb/libs/tlsfiles"
)

// tlsPrefix is that of the variables whose files Config.TLS names.
const tlsPrefix = "KEB_DATABASE_"

const verifyFull = "verify-full"

// checkFiles finds settings of the URL that contradict the files.
func (c Config) checkFiles(query url.Values) error {
	if !c.TLS.Enabled() {
		return nil
	}
	if mode := query.Get("sslmode"); mode != "" && mode != verifyFull {
		return fmt.Errorf("open postgres: sslmode=%s in the database URL contradicts KEB_DATABASE_CA_FILE, KEB_DATABASE_CERT_FILE and KEB_DATABASE_KEY_FILE: leave it out, or write verify-full", mode)
	}
	for parameter, variable := range map[string]string{"sslrootcert": "CA_FILE", "sslcert": "CERT_FILE", "sslkey": "KEY_FILE"} {
		if query.Has(parameter) {
			return fmt.Errorf("open postgres: %s in the database URL and %s exclude each other", parameter, tlsPrefix+variable)
		}
	}
	return nil
}

// driverMode is the name under which the driver finds the configuration of files: it takes one only from a registry of its own.
// Equal files have one name, so the registry does not grow with the pools.
func driverMode(files tlsfiles.Client) string {
	sum := sha256.Sum256(fmt.Append(nil, files))
	return "pqgo-keb-" + hex.EncodeToString(sum[:])
}

// register gives the driver what the files hold now.
func register(files tlsfiles.Client) error {
	if !files.Enabled() {
		return nil
	}
	cfg, err := files.Config(tlsPrefix)
	if err != nil {
		return err
	}
	return pq.RegisterTLSConfig(driverMode(files), cfg)
}

// explain says which variable to look at.
func explain(files tlsfiles.Client, err error) error {
	if errors.Is(err, pq.ErrSSLNotSupported) {
		return fmt.Errorf("%w: give the server a certificate (ssl = on), or write sslmode=disable into the URL where nobody can listen", err)
	}
	return files.Explain(tlsPrefix, err)
}
