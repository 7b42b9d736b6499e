package steps_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/testkit"
)

// sampled is the sampling rate of a loop under the race detector: one of that many cases runs.
const sampled = 10

// runs reports whether the nth case of a loop runs in this binary: every case without the race detector, a sample with it.
func runs(n int) bool { return n%sampled == 0 || !testkit.RaceDetector() }

// Under the race detector an operation takes six times as long and finds little more, because a world is sequential. So the tests run
// a sample of their cases under it, which contains each step. This test builds the package without it and runs all cases.
func TestSteps_AllCases_WithoutRaceDetector(t *testing.T) {
	t.Parallel()
	if !testkit.RaceDetector() {
		t.Skip("make test runs this test: without the race detector the other tests of this package run all cases")
	}
	binary := filepath.Join(t.TempDir(), "steps.test")
	command(t, "go", "test", "-c", "-race=false", "-pgo=off", "-o", binary, ".")
	command(t, binary)
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 14*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	// Use the build flags of the kube-apiserver, so that shared packages are compiled once.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, output)
	}
}
