package jobs_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/services/jobs"
)

func TestConfig_InvalidSetting_IsNamed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		job    jobs.Job
		change func(*jobs.Config)
		want   string
	}{
		"job":          {"tidy-up", func(*jobs.Config) {}, `there is no job "tidy-up"; use one of deprovision-retrigger, trial-expiry, subaccount-cleanup`},
		"broker":       {jobs.TrialExpiry, func(c *jobs.Config) { c.BrokerURL = "localhost" }, "--broker-url (KEB_BROKER_URL): want an absolute http or https URL"},
		"password":     {jobs.TrialExpiry, func(c *jobs.Config) { c.Password = "" }, "set both or neither"},
		"token URL":    {jobs.TrialExpiry, func(c *jobs.Config) { c.BrokerTokenURL = "x" }, "KEB_BROKER_TOKEN_URL: want an absolute"},
		"client":       {jobs.TrialExpiry, func(c *jobs.Config) { c.BrokerTokenURL = "http://x" }, "KEB_BROKER_CLIENT_ID and KEB_BROKER_CLIENT_SECRET"},
		"parallel":     {jobs.TrialExpiry, func(c *jobs.Config) { c.Parallel = 0 }, "--parallel (KEB_JOB_PARALLEL): 0 is not allowed, use 1 to 100"},
		"retries":      {jobs.TrialExpiry, func(c *jobs.Config) { c.Retries = -1 }, "KEB_JOB_RETRIES: -1 is not allowed"},
		"wait timeout": {jobs.TrialExpiry, func(c *jobs.Config) { c.WaitTimeout = 0 }, "--wait-timeout (KEB_JOB_WAIT_TIMEOUT): 0s must be positive"},
		"no plan":      {jobs.TrialExpiry, func(c *jobs.Config) { c.ExpiryPlans = nil }, "--plans (KEB_EXPIRY_PLANS): is empty"},
		"plan":         {jobs.TrialExpiry, func(c *jobs.Config) { c.ExpiryPlans = []string{"azure"} }, `plan "azure" does not expire, use trial, free or both`},
		"trial age":    {jobs.TrialExpiry, func(c *jobs.Config) { c.TrialAge = 0 }, "--trial-age (KEB_TRIAL_LIFETIME)"},
		"free age":     {jobs.TrialExpiry, func(c *jobs.Config) { c.FreeAge = -1 }, "--free-age (KEB_FREE_LIFETIME)"},
		"CIS":          {jobs.SubaccountCleanup, func(c *jobs.Config) { c.CISURL = "" }, "--cis-url (KEB_CIS_URL)"},
		"CIS tokens":   {jobs.SubaccountCleanup, func(c *jobs.Config) { c.CISTokenURL = "ftp://x" }, "--cis-token-url (KEB_CIS_TOKEN_URL)"},
		"CIS client":   {jobs.SubaccountCleanup, func(c *jobs.Config) { c.CISClientID = "" }, "KEB_CIS_CLIENT_ID and KEB_CIS_CLIENT_SECRET"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := service.Defaults[jobs.Config]()
			cfg.User, cfg.Password, cfg.CISClientID, cfg.CISClientSecret = user, password, "keb", "CANARY-cis"
			if job := tt.job; job != "tidy-up" {
				require.NoError(t, cfg.Validate(job), "the defaults are rejected")
			}
			tt.change(&cfg)
			_, err := jobs.Run(t.Context(), tt.job, cfg, jobs.Deps{})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if strings.Contains(fmt.Sprint(err), "CANARY") {
				t.Errorf("the error contains a secret: %v", err)
			}
		})
	}
}

func TestFlags_Values_OverrideConfiguration(t *testing.T) {
	t.Parallel()
	cfg := service.Defaults[jobs.Config]()
	flags := cfg.Flags(jobs.TrialExpiry)
	require.NoError(t, flags.Parse([]string{"--dry-run", "--parallel", "9", "--plans", "free, trial", "--free-age=24h", "--wait", "--wait-timeout", "3m"}))
	if !cfg.DryRun || cfg.Parallel != 9 || strings.Join(cfg.ExpiryPlans, " ") != "free trial" || cfg.FreeAge != 24*time.Hour || !cfg.Wait ||
		cfg.WaitTimeout != 3*time.Minute || cfg.TrialAge != 336*time.Hour {
		t.Errorf("the configuration is %+v", cfg)
	}
	for _, args := range [][]string{
		{"--free-age", "30d", "want a duration such as 30m or 336h"},
		{"--parallel", "many", "want a whole number"},
		{"--dry-run=perhaps", "", "invalid boolean value"},
		{"--cis-url", "http://x", "not defined: -cis-url"},
	} {
		err := cfg.Flags(jobs.TrialExpiry).Parse(args[:2])
		if err == nil || !strings.Contains(err.Error(), args[2]) {
			t.Errorf("%v: error %v, want %q", args[:2], err, args[2])
		}
	}
}

func TestConfig_LogValue_HasNoSecrets(t *testing.T) {
	t.Parallel()
	cfg := service.Defaults[jobs.Config]()
	cfg.User, cfg.Password, cfg.BrokerClientSecret, cfg.CISClientSecret = "jane", "CANARY-1", "CANARY-2", "CANARY-3"
	var text bytes.Buffer
	slog.New(slog.NewJSONHandler(&text, nil)).Info("starts", "config", cfg)
	if strings.Contains(text.String(), "CANARY") || !strings.Contains(text.String(), "jane") {
		t.Errorf("printed: %s", text.String())
	}
}

func TestReport_Print_WritesText(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		report jobs.Report
		want   string
	}{
		"done":    {jobs.Report{Job: "trial-expiry", Found: 3, Started: 2, Skipped: 1}, "trial-expiry: found 3, started 2, skipped 1, failed 0\n"},
		"dry run": {jobs.Report{Job: "trial-expiry", DryRun: true, Found: 3, Started: 3}, "trial-expiry (dry run): found 3, would start 3, skipped 0, failed 0\n"},
		"failed": {
			jobs.Report{Job: "j", Found: 3, Started: 2, Completed: 1, Failed: []jobs.Failure{{Instance: "i", Reason: "no"}}},
			"j: found 3, started 2, completed 1, skipped 0, failed 1\n  i: no\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var text bytes.Buffer
			if err := tt.report.Print(&text); err != nil || text.String() != tt.want {
				t.Errorf("%q, %v; want %q", text.String(), err, tt.want)
			}
		})
	}
}
