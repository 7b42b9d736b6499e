package testkit

import (
	"os"
	"testing"
)

// suiteVariable is the variable with the suite that runs in full.
const suiteVariable = "KEB_SUITE"

// InSuite reports whether the suite of that name, a folder of test/, runs in full.
func InSuite(name string) bool { return os.Getenv(suiteVariable) == name }

// Suite skips a test unless its suite runs in full, because the test takes minutes or needs more than make test.
func Suite(t testing.TB, name string) {
	t.Helper()
	if !InSuite(name) {
		t.Skipf("make e2e SUITE=%s runs this test", name)
	}
}
