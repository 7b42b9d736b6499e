package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

// The events in testdata are those of real runs: of a package with one test that passes, and of one that fails as its file is called.
func TestRead_RunsWithFailures_TellsFlakyFromHidden(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]Report{
		"flake": {Flaky: []Test{{
			Package: "flake", Name: "TestFlaky", Failures: 1,
			Output: "    a_test.go:5: the first time\n--- FAIL: TestFlaky/sub (0.00s)\n--- FAIL: TestFlaky (0.00s)\n",
		}}},
		"thrice": {},
		"leak": {Hidden: []string{
			"leak failed although none of its tests did: look at TestMain, leaked goroutines, data races and the build",
		}},
		"exit": {Hidden: []string{"exit ended in the middle of TestExits, so tests after it have not run"}},
	} {
		file, err := os.Open(filepath.Join("testdata", name+".json"))
		require.NoError(t, err)
		got, err := Read(file)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestRead_TornEvents_IsAnError(t *testing.T) {
	t.Parallel()
	if _, err := Read(strings.NewReader(`{"Action":"pass","Package":"p"}` + "\n" + `{"Action":"fa`)); err == nil {
		t.Error("no error")
	}
}

func TestCopy_Output_HoldsBackTheLastSummaryOnly(t *testing.T) {
	t.Parallel()
	const body = "✖ p\n\nDONE 3 tests, 1 failure in 1s\n\n✓ p\n\n=== Failed\n=== FAIL: p TestX\n\n"
	for rest, want := range map[string]struct{ copied, held string }{
		"DONE 2 runs, 4 tests, 1 failure in 2s\n":                                 {body, "DONE 2 runs, 4 tests, 1 failure in 2s\n"},
		"DONE 2 runs, 4 tests\n\nERROR rerun aborted\nmake: *** [test] Error 1\n": {body + "ERROR rerun aborted\nmake: *** [test] Error 1\n", "DONE 2 runs, 4 tests\n\n"},
		"no summary": {body + "no summary", ""},
	} {
		var out strings.Builder
		held, err := Copy(&out, strings.NewReader(body+rest))
		if diff := cmp.Diff(want.copied, out.String()); err != nil || held != want.held || diff != "" {
			t.Errorf("held %q, want %q, %v; copied (-want +got):\n%s", held, want.held, err, diff)
		}
	}
}

func TestPrint_FlakyTest_ShowsItsFirstOutput(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	report := Report{Flaky: []Test{{Package: "p", Name: "TestX", Failures: 2, Output: "x_test.go:1: once\n"}}, Hidden: []string{"q failed"}}
	require.NoError(t, report.Print(&out))
	want := "\n=== FLAKY: p TestX: failed 2 of 3 times; it first printed:\nx_test.go:1: once\n\n=== FAIL: q failed\n\n1 flaky: mend them before other work goes on\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
