package testkit

import (
	"os"
	"testing"
)

// suiteVariable names the suite that runs in full.
const suiteVariable = "KEB_SUITE"

// InSuite reports whether the suite of that name, a folder of test/, runs in full.
func InSuite(name string) bool { return os.Getenv(suiteVariable) == name }

// Suite skips a test that only belongs to a suite which runs in full, because it takes minutes or needs more than make test does.
func Suite(t testing.TB, name string) {
	t.Helper()
	if !InSuite(name) {
		t.Skipf("make e2e SUITE=%s runs this test", name)
	}
}
