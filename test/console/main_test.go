// Package console tests the console in a real browser, with an orchestrator, workers, Postgres and NATS.
package console

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/kyma-project/keb/libs/postgres/pgtest"
	"github.com/kyma-project/keb/libs/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Tests{M: m}) }

// thorough returns a system for a parallel test of the suite. Together these tests take a minute of two processors.
func thorough(t *testing.T) *system {
	t.Helper()
	t.Parallel()
	testkit.Suite(t, "console")
	return newSystem(t)
}

// browser returns the path of Chromium, which the Go module proxy does not have. Without it the test is skipped.
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
