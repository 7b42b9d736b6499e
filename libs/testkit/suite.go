package testkit

import (
	"os"
	"strconv"
	"testing"
)

// suiteVariable is the variable with the suite that runs in full: a folder of test/, or a part of make soak.
const suiteVariable = "KEB_SUITE"

// InSuite reports whether the suite of that name runs in full.
func InSuite(name string) bool { return os.Getenv(suiteVariable) == name }

// Suite skips a test unless its suite runs in full, because the test takes minutes or needs more than make test.
func Suite(t testing.TB, name string) {
	t.Helper()
	if !InSuite(name) {
		t.Skipf("make e2e or make soak runs this test with SUITE=%s", name)
	}
}

// Number returns the number in an environment variable, or otherwise if it is not set. It fails the test unless the value is a whole number from
// least on.
func Number(t testing.TB, variable string, otherwise, least uint64) uint64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil || n < least {
		t.Fatalf("%s=%q: want a whole number from %d on", variable, text, least)
	}
	return n
}
