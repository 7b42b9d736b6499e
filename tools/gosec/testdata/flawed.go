// Package flawed has a flaw in each line that says so, and none that counts in any other.
package flawed

import (
	"crypto/md5" // want G501
	"crypto/tls"
	"database/sql"
	"net/http"
	"os"
)

// Digest is weak.
func Digest(b []byte) [16]byte {
	return md5.Sum(b) // want G401
}

// Transport believes everybody.
func Transport() *http.Transport {
	return &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}} // want G402
}

// Accepted believes everybody too, and says why.
func Accepted() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12} //nolint:gosec // an example of a reason
}

// Other names a linter that does not look for this.
func Other() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12} //nolint:errcheck // want G402
}

// Find is found by following what a client sent.
func Find(db *sql.DB, r *http.Request) (*sql.Rows, error) {
	return db.QueryContext(r.Context(), "SELECT * FROM t WHERE a = '"+r.FormValue("a")+"'") // want G701
}

// Open is off: files are named by the operator.
func Open(name string) (*os.File, error) { return os.Open(name) }
