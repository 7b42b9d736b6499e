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

// sampled is one case in that many of a loop, under the race detector.
const sampled = 10

// runs tells whether the nth case of a loop runs in this binary: every one without the race detector, some with it.
func runs(n int) bool { return n%sampled == 0 || !testkit.RaceDetector() }

// Under the race detector an operation takes six times as long and finds little more: a world does one thing after the other. So the
// tests run a sample of their cases under it, with each step in it, and build themselves without it for all cases.
func TestSteps_AllCases_WithoutRaceDetector(t *testing.T) {
	t.Parallel()
	if !testkit.RaceDetector() {
		t.Skip("the other tests of this package run all their cases")
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
	// As the kube-apiserver is built, so that what both need is compiled once.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, output)
	}
}
