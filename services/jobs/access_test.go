package jobs_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kyma-project/keb/services/jobs"
)

// tokens starts an OAuth2 server that issues token-1, token-2 and so on.
func tokens(t *testing.T) (url string, given *atomic.Int64) {
	t.Helper()
	given = &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, secret, _ := r.BasicAuth()
		if id != "jobs" || secret != "CANARY-client" || r.PostFormValue("scope") != "broker:write" {
			answer(w, http.StatusUnauthorized, nil)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		answer(w, http.StatusOK, map[string]any{"access_token": fmt.Sprintf("token-%d", given.Add(1)), "token_type": "bearer", "expires_in": 3600})
	}))
	t.Cleanup(server.Close)
	return server.URL, given
}

func TestToken_Rejected_IsRenewed(t *testing.T) {
	t.Parallel()
	v := newInventory(t)
	v.deleted("gone")
	s := newStandin(t, &instance{ID: "a", Subaccount: "gone", State: "succeeded"})
	cfg := v.into(s.config())
	url, given := tokens(t)
	cfg.BrokerTokenURL, cfg.BrokerClientID, cfg.BrokerClientSecret = url, "jobs", "CANARY-client"
	// The first token is expired; the second one is for the list, and the third one for the deprovisioning.
	s.token = "token-2"
	s.listed = func() { s.token = "token-3" }
	if got := run(t, jobs.SubaccountCleanup, cfg); got.Started != 1 || given.Load() != 3 {
		t.Errorf("report %+v with %d tokens, want one started with 3", got, given.Load())
	}
	s.listed = nil
	s.token = "none"
	if _, err := jobs.Run(t.Context(), jobs.TrialExpiry, cfg, jobs.Deps{}); err == nil || !strings.Contains(err.Error(), "status 401") {
		t.Errorf("a rejected token: %v", err)
	}
}

func TestJob_Secrets_AreNotLoggedOrReported(t *testing.T) {
	t.Parallel()
	v := newInventory(t)
	v.deleted("gone")
	s := newStandin(
		t, &instance{ID: "a", Subaccount: "gone", State: "succeeded", Answer: []int{400}},
		&instance{ID: "b", Plan: "trial", State: "deprovisionincomplete", Answer: []int{500, 500, 500, 500}},
		&instance{ID: "c", Plan: "trial", State: "succeeded", Created: time.Now().Add(-100 * day), Answer: []int{400}},
	)
	var log bytes.Buffer
	deps := jobs.Deps{Log: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	for _, change := range []func(*jobs.Config){
		func(*jobs.Config) {},
		func(c *jobs.Config) { c.Password = "CANARY-wrong" },
		func(c *jobs.Config) { c.CISClientSecret = "CANARY-wrong" },
		func(c *jobs.Config) {
			c.BrokerTokenURL, c.BrokerClientID, c.BrokerClientSecret = v.url+"/nowhere?CANARY", "jobs", "CANARY-client"
		},
		func(c *jobs.Config) { c.BrokerURL = "http://127.0.0.1:1" },
	} {
		for _, job := range jobs.All() {
			cfg := v.into(s.config())
			change(&cfg)
			report, err := jobs.Run(t.Context(), job, cfg, deps)
			raw, encodeErr := json.Marshal(report)
			output := fmt.Sprint(string(raw), err, encodeErr, report.Err())
			if strings.Contains(output, "CANARY") {
				t.Errorf("%s contains a secret: %s", job, output)
			}
			if err == nil && report.Err() == nil && len(report.Failed) > 0 {
				t.Errorf("%s: failures are not an error: %s", job, output)
			}
		}
	}
	if strings.Contains(log.String(), "CANARY") || !strings.Contains(log.String(), "job failed for an instance") {
		t.Errorf("logged: %s", log.String())
	}
}
