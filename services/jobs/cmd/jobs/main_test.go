package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// childEnv turns the test binary into the command, for tests of its exit code.
const childEnv = "KEB_JOBS_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func brokerWith(t *testing.T, body string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error": "not today"}`)
			return
		}
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestMain_ExitCode_ReportsResult(t *testing.T) {
	t.Parallel()
	const one = `{"data": [{"instanceID": "i-1", "status": {"state": "deprovisionincomplete"}}], "totalCount": 1}`
	for name, tt := range map[string]struct {
		args        []string
		broker      string
		code        int
		out, errors string
	}{
		"nothing to do": {
			[]string{"deprovision-retrigger"}, `{"data": [], "totalCount": 0}`, 0, "deprovision-retrigger: found 0, started 0, skipped 0, failed 0\n", "",
		},
		"an instance failed": {
			[]string{"deprovision-retrigger", "--output", "json"},
			one, 1, `"reason": "broker: POST /runtimes/{instance_id}/deprovision-retrigger: status 400: not today"`,
			"jobs: deprovision-retrigger: 1 of 1 instances failed",
		},
		"not a broker":     {[]string{"trial-expiry"}, `<html>`, 1, "trial-expiry: found 0", "unreadable answer"},
		"no job":           {nil, "", 2, "", "jobs: the name of a job is missing: use one of deprovision-retrigger"},
		"an unknown job":   {[]string{"tidy-up"}, "", 2, "", `jobs: there is no job "tidy-up"; use one of deprovision-retrigger`},
		"an unknown flag":  {[]string{"trial-expiry", "--wet-run"}, "", 2, "", "flag provided but not defined: -wet-run; see jobs trial-expiry --help"},
		"a bad value":      {[]string{"trial-expiry", "--trial-age", "14d"}, "", 2, "", "want a duration such as 30m or 336h"},
		"a value too high": {[]string{"trial-expiry", "--parallel", "1000"}, "", 2, "", "--parallel (KEB_JOB_PARALLEL): 1000 is not allowed, use 1 to 100"},
		"an argument":      {[]string{"trial-expiry", "now"}, "", 2, "", `unexpected argument "now"`},
		"a format":         {[]string{"trial-expiry", "--output", "yaml"}, "", 2, "", "use text or json"},
		"help":             {[]string{"subaccount-cleanup", "--help"}, "", 0, "-cis-url URL", ""},
		"help for all":     {[]string{"--help"}, "", 0, "jobs: deprovision-retrigger, trial-expiry, subaccount-cleanup", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := exec.CommandContext(t.Context(), os.Args[0], tt.args...)
			command.Env = append(os.Environ(), childEnv+"=1", "KEB_BROKER_URL="+brokerWith(t, tt.broker), "KEB_JOB_RETRIES=0", "KEB_LOG_LEVEL=error")
			var out, errs bytes.Buffer
			command.Stdout, command.Stderr = &out, &errs
			if err := command.Run(); err != nil && command.ProcessState == nil {
				t.Fatal(err)
			}
			if code := command.ProcessState.ExitCode(); code != tt.code || !strings.Contains(out.String(), tt.out) || !strings.Contains(errs.String(), tt.errors) {
				t.Errorf("exit code %d, want %d; printed %q, want %q; errors %q, want %q", code, tt.code, out.String(), tt.out, errs.String(), tt.errors)
			}
			if tt.code == 2 && strings.Count(errs.String(), "\n") != 1 {
				t.Errorf("the error is not one line: %q", errs.String())
			}
		})
	}
}

func TestMain_JSONReport_IsComplete(t *testing.T) {
	t.Setenv("KEB_BROKER_URL", brokerWith(t, `{"data": [], "totalCount": 0}`))
	c, err := parse([]string{"trial-expiry", "--output", "json", "--dry-run"})
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, c.run(t.Context(), slog.New(slog.DiscardHandler), &out))
	var report map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &report))
	for _, member := range []string{"job", "dryRun", "found", "started", "completed", "skipped", "failed"} {
		if _, ok := report[member]; !ok {
			t.Errorf("no member %s in %s", member, out.String())
		}
	}
}

func TestMain_StoppedJob_ExitsWithError(t *testing.T) {
	t.Setenv("KEB_BROKER_URL", brokerWith(t, `{}`))
	c, err := parse([]string{"trial-expiry"})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	err = c.run(ctx, slog.New(slog.DiscardHandler), io.Discard)
	// service.Main treats the context's error as a success.
	if err == nil || errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "stopped before its end") {
		t.Errorf("stopped with %v", err)
	}
	if _, err := parse([]string{"-h"}); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-h: %v", err)
	}
}
