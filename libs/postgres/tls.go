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

// tlsPrefix is the prefix of the variables for the files of Config.TLS.
const tlsPrefix = "KEB_DATABASE_"

const verifyFull = "verify-full"

// checkFiles rejects settings of the URL that contradict the files.
func (c Config) checkFiles(query url.Values) error {
	if !c.TLS.Enabled() {
		return nil
	}
	if mode := query.Get("sslmode"); mode != "" && mode != verifyFull {
		return fmt.Errorf("sslmode=%s in the database URL contradicts KEB_DATABASE_CA_FILE, KEB_DATABASE_CERT_FILE and KEB_DATABASE_KEY_FILE: leave it out, or write verify-full", mode)
	}
	for _, file := range []struct{ parameter, variable string }{{"sslrootcert", "CA_FILE"}, {"sslcert", "CERT_FILE"}, {"sslkey", "KEY_FILE"}} {
		if query.Has(file.parameter) {
			return fmt.Errorf("%s in the database URL and %s exclude each other", file.parameter, tlsPrefix+file.variable)
		}
	}
	return nil
}

// driverMode returns the name under which the driver finds a TLS configuration, because it accepts one only from its registry. Equal files
// have the same name, so the registry does not grow with the pools.
func driverMode(files tlsfiles.Client) string {
	sum := sha256.Sum256(fmt.Append(nil, files))
	return "pqgo-keb-" + hex.EncodeToString(sum[:])
}

// register passes the current content of the files to the driver.
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

// explain adds the names of the relevant variables to a TLS error.
func explain(files tlsfiles.Client, err error) error {
	if errors.Is(err, pq.ErrSSLNotSupported) {
		return fmt.Errorf("%w: give the server a certificate (ssl = on), or set sslmode=disable in the URL if the network is trusted", err)
	}
	return files.Explain(tlsPrefix, err)
}
