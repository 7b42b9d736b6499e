package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func overlay(t *testing.T, content string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.yaml"), []byte(content), 0o600))
	return dir
}

func TestProcessCheck_Diff_ShowsWhatAnOverlayChanges(t *testing.T) {
	t.Parallel()
	dir := overlay(t, `
operation: deprovision
changes:
  - disable: EDP_Deregistration
  - retime: {step: IAS_Deregistration, retry: {timeout: 2m, factor: 3}}
`)
	got := run(t, "", "process", "check", "--diff", "--overlays", dir)
	for _, want := range []string{
		"\n--- deprovision (built in)\n+++ deprovision (with overlays)\n", "\n-stage edp_deregistration\n-  EDP_Deregistration: worker edp,",
		"\n-  IAS_Deregistration: worker ias, retry every 5s to 30s by factor 2 with jitter 0.5 for 5m0s,",
		"\n+  IAS_Deregistration: worker ias, retry every 5s to 30s by factor 3 with jitter 0.5 for 2m0s,",
	} {
		if !strings.Contains(got.out, want) {
			t.Errorf("output lacks %q:\n%s", want, got.out)
		}
	}
	if strings.Contains(got.out, "--- provision") {
		t.Errorf("a process without changes is shown:\n%s", got.out)
	}
	const warning = "warning: deprovision: the step EDP_Deregistration is disabled, but other processes still have steps of the worker edp; what these create stays behind\n"
	if got.code != 0 || got.err != warning {
		t.Errorf("code %d, errors %q; want 0, %q", got.code, got.err, warning)
	}
}

func TestProcessRehearse(t *testing.T) {
	t.Parallel()
	dir := overlay(t, `
operation: deprovision
changes:
  - addStage: {after: ias_deregistration, name: goodbye, steps: [{name: Goodbye, worker: hello-world, retry: {timeout: 1m}, onTimeout: skip}]}
`)
	got := run(t, "", "process", "rehearse", "deprovision", "--overlays", dir, "--answer", "Goodbye=retry*2,poll:20s,skip")
	text := strings.Join(strings.Fields(got.out), " ")
	for _, want := range []string{
		"goodbye Goodbye retry 2 scripted error 20s", "20s goodbye Goodbye retry 1 40s",
		"40s goodbye Goodbye skipped 1 nothing to do", "succeeded after 40s",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("output lacks %q:\n%s", want, got.out)
		}
	}
	if got.code != 0 || got.err != "" {
		t.Errorf("code %d, errors %q", got.code, got.err)
	}
	for answer, want := range map[string]string{
		"Goodbye":           `keb: --answer "Goodbye": must be STEP=ANSWER`,
		"Goodby=succeed":    `keb: --answer "Goodby=succeed": the process deprovision has no step "Goodby"`,
		"Goodbye=later":     `keb: --answer "Goodbye=later": "later": must be succeed, skip, poll, retry, fail, hang or away`,
		"Goodbye=fail:3s":   `keb: --answer "Goodbye=fail:3s": "fail:3s": only poll and retry take a time, such as retry:30s`,
		"Goodbye=retry:0s":  `keb: --answer "Goodbye=retry:0s": "retry:0s": only poll and retry take a time, such as retry:30s`,
		"Goodbye=succeed*0": `keb: --answer "Goodbye=succeed*0": "succeed*0": a number from 1 to 100000 must follow the *`,
	} {
		expect(t, run(t, "", "process", "rehearse", "deprovision", "--overlays", dir, "--answer", answer), 2, "", want+"\n")
	}
}

func TestProcessCheck_OverlayReference_IsAccepted(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../docs/overlays.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?ms)^```yaml\n(operation: [^`]*^changes:.*?)^```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 9 {
		t.Errorf("found only %d overlays", len(blocks))
	}
	for _, m := range blocks {
		if got := run(t, "", "process", "check", "--overlays", overlay(t, m[1])); got.code != 0 || got.err != "" {
			t.Errorf("%s: %+v", m[1], got)
		}
	}
}
