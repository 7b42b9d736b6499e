package testkit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
)

// RaceDetector reports whether this binary was built with the race detector.
func RaceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// WithoutRace runs the tests of a package with sequential code, and returns the exit code for TestMain. The race detector finds nothing in such
// code and takes six times the processor time. If this binary was built with it, WithoutRace builds the package without it, with
// further flags for go test, and runs that binary with the same arguments instead of run.
func WithoutRace(run func() int, flags ...string) (code int) {
	if !RaceDetector() {
		return run()
	}
	code, err := runWithoutRace(flags)
	if err != nil {
		fmt.Fprintln(os.Stderr, "run the tests without the race detector:", err)
		return max(code, 1)
	}
	return code
}

func runWithoutRace(flags []string) (code int, err error) {
	dir, err := os.MkdirTemp("", "keb-without-race-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	binary := filepath.Join(dir, "package.test")
	build := exec.Command("go", slices.Concat([]string{"test", "-c", "-race=false", "-vet=off", "-pgo=off", "-ldflags=-w", "-o", binary}, flags, []string{"."})...)
	// The kube-apiserver is built with the same setting, so that shared packages are compiled once.
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	var out bytes.Buffer
	build.Stdout, build.Stderr = &out, &out
	if err := build.Run(); err != nil {
		return 1, fmt.Errorf("%s: %w\n%s", build, err, out.Bytes())
	}
	tests := exec.Command(binary, os.Args[1:]...)
	tests.Stdout, tests.Stderr = os.Stdout, os.Stderr
	// The kernel ends the tests with the thread that has started them.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tests.SysProcAttr = endWithTests()
	if exit, ended := errors.AsType[*exec.ExitError](tests.Run()); ended {
		return max(exit.ExitCode(), 1), nil
	} else if tests.ProcessState == nil {
		return 1, fmt.Errorf("%s did not start", tests)
	}
	return 0, nil
}
