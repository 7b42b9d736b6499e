package fuzz_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFuzz runs every fuzz test for KEB_FUZZ_TIME, one after the other, and prints what came of each. KEB_FUZZ_ONLY is a part of
// the names of those that run.
func TestFuzz(t *testing.T) {
	text := os.Getenv("KEB_FUZZ_TIME")
	if text == "" {
		t.Skip("make soak SUITE=fuzz runs this test")
	}
	long, err := time.ParseDuration(text)
	require.NoError(t, err, "KEB_FUZZ_TIME")
	only := os.Getenv("KEB_FUZZ_ONLY")
	fmt.Printf("%-78s %12s %12s %6s  %s\n", "fuzz test", "executions", "interesting", "seeds", "failure")
	executions, failures, run := 0, 0, 0
	for _, target := range targets(t) {
		if !strings.Contains(target.String(), only) {
			continue
		}
		run++
		o := fuzz(t, target, long)
		executions += o.executions
		failure := "-"
		if o.failure != "" {
			failures++
			failure, _, _ = strings.Cut(o.failure, "\n")
			t.Errorf("%s: %s", target, o.failure)
		}
		fmt.Printf("%-78s %12d %12d %6d  %s\n", target, o.executions, o.interesting, target.seeds, failure)
	}
	fmt.Printf("%d fuzz tests of %s: %d executions, %d failures\n", run, long, executions, failures)
}

type outcome struct {
	executions, interesting int
	failure                 string
}

// progress is a line of go test about how far a fuzz test is.
var progress = regexp.MustCompile(`execs: (\d+) .*new interesting: (\d+)`)

func fuzz(t *testing.T, target target, long time.Duration) (o outcome) {
	t.Helper()
	// Building a package, and running what was found before, takes its time too.
	ctx, cancel := context.WithTimeout(t.Context(), long+15*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-fuzz", "^"+target.name+"$", "-fuzztime", long.String(), ".")
	cmd.Dir = filepath.Join(root, target.folder)
	out, err := cmd.CombinedOutput()
	for _, match := range progress.FindAllStringSubmatch(string(out), -1) {
		if _, err := fmt.Sscan(match[1], &o.executions); err != nil {
			t.Error(err)
		}
		if _, err := fmt.Sscan(match[2], &o.interesting); err != nil {
			t.Error(err)
		}
	}
	switch {
	case err != nil:
		o.failure = fmt.Sprintf("%v\n%s", err, out)
		// The line that says why comes first.
		for line := range strings.SplitSeq(string(out), "\n") {
			if strings.Contains(line, "_test.go:") || strings.Contains(line, "panic:") {
				o.failure = strings.TrimSpace(line) + "\n" + o.failure
				break
			}
		}
	case o.executions == 0:
		o.failure = "it has not run\n" + string(out)
	}
	return o
}
