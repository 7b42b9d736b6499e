// Package console holds the tests of the console: an orchestrator with its workers, on a real database and a real bus, and a real
// browser in front of it.
package console

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/kyma-project/keb/libs/postgres/pgtest"
	"github.com/kyma-project/keb/libs/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Tests{M: m}) }

// thorough skips a test that has no place in make test: together they keep two processors busy for a minute.
func thorough(t *testing.T) {
	t.Helper()
	testkit.Suite(t, "console")
}

// browser finds Chromium, or skips the test: it is the one thing that neither Go nor its module proxy can bring.
func browser(t *testing.T) string {
	t.Helper()
	path := findBrowser()
	if path == "" {
		t.Skip("no Chromium is found: install it (Debian: chromium), or name it in KEB_CHROMIUM; then make test runs these tests")
	}
	return path
}

func findBrowser() string {
	for _, path := range []string{
		os.Getenv("KEB_CHROMIUM"), "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome", "/usr/bin/google-chrome-stable",
		"/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
	} {
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			return path
		}
	}
	return ""
}
