package pglocal

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// BinEnv is the name of the environment variable with the preferred folder of PostgreSQL server binaries.
const BinEnv = "KEB_POSTGRES_BIN"

// usualPlaces are the folders outside of PATH in which packages install server binaries.
var usualPlaces = []string{
	"/usr/lib/postgresql/*/bin",         // Debian, Ubuntu
	"/usr/pgsql-*/bin",                  // Red Hat, from postgresql.org
	"/usr/libexec/postgresql*",          // Alpine
	"/usr/local/pgsql/bin",              // from source
	"/usr/local/opt/postgresql*/bin",    // Homebrew, Intel
	"/opt/homebrew/opt/postgresql*/bin", // Homebrew, Apple silicon
	"/Applications/Postgres.app/Contents/Versions/*/bin",
}

// Find lists the folders of this machine that contain PostgreSQL server binaries ("postgres" and "initdb"), the preferred one first. If
// KEB_POSTGRES_BIN is set, it is the only one; otherwise PATH precedes the usual places with the newest version first. The error is
// ErrNoBinaries, or describes an invalid KEB_POSTGRES_BIN.
func Find() ([]string, error) {
	return find(os.Getenv(BinEnv), filepath.SplitList(os.Getenv("PATH")), usualPlaces)
}

func find(override string, path, places []string) ([]string, error) {
	if override != "" {
		dir, ok := serverBinaries(override)
		if !ok {
			return nil, fmt.Errorf("%s=%s: this folder does not hold the programs postgres and initdb", BinEnv, override)
		}
		return []string{dir}, nil
	}
	var found []string
	add := func(dir string) {
		if dir, ok := serverBinaries(dir); ok && !slices.Contains(found, dir) {
			found = append(found, dir)
		}
	}
	for _, dir := range path {
		add(dir)
	}
	for _, pattern := range places {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			return nil, fmt.Errorf("find postgres binaries: %w", err)
		}
		slices.SortFunc(dirs, func(a, b string) int { return versionIn(b) - versionIn(a) })
		for _, dir := range dirs {
			add(dir)
		}
	}
	if len(found) == 0 {
		return nil, ErrNoBinaries
	}
	return found, nil
}

// serverBinaries returns the folder of the binaries without links: postgres finds its share folder relative to it.
func serverBinaries(dir string) (string, bool) {
	if dir == "" {
		return "", false
	}
	server, err := exec.LookPath(filepath.Join(dir, "postgres"))
	if err != nil {
		return "", false
	}
	if server, err = filepath.EvalSymlinks(server); err != nil {
		return "", false
	}
	if server, err = filepath.Abs(server); err != nil {
		return "", false
	}
	if _, err := exec.LookPath(filepath.Join(filepath.Dir(server), "initdb")); err != nil {
		return "", false
	}
	return filepath.Dir(server), true
}

// versionIn returns the major version in a folder's path: the first number of the last part that contains one, for example 9 in
// /usr/lib/postgresql/9.6/bin. Without a number it returns 0.
func versionIn(path string) int {
	parts := strings.Split(filepath.ToSlash(path), "/")
	for _, part := range slices.Backward(parts) {
		digits := strings.FieldsFunc(part, func(r rune) bool { return r < '0' || r > '9' })
		if len(digits) == 0 {
			continue
		}
		if n, err := strconv.Atoi(digits[0]); err == nil {
			return n
		}
	}
	return 0
}
