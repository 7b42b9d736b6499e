package jobs_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/jobs"
)

func TestSchedule_BrokerOutage_Continues(t *testing.T) {
	t.Parallel()
	s := newStandin(t, incomplete(1)...)
	s.down = http.StatusServiceUnavailable
	cfg := s.config()
	cfg.Retries = 0
	log := &testkit.Log{}
	schedule := jobs.NewSchedule(jobs.Deps{Log: slog.New(slog.NewJSONHandler(log, nil))})
	require.NoError(t, schedule.Add(jobs.DeprovisionRetrigger, 20*time.Millisecond, cfg))
	if err := schedule.Add(jobs.TrialExpiry, 0, jobs.Config{}); err != nil {
		t.Errorf("a disabled job is validated: %v", err)
	}
	if err := schedule.Add(jobs.TrialExpiry, time.Hour, jobs.Config{}); err == nil {
		t.Error("an invalid configuration is accepted")
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- schedule.Run(ctx) }()
	testkit.Eventually(t, waitLimit, "runs while the broker is down", func() bool { return strings.Count(log.String(), "job failed and will be repeated") >= 3 })
	if len(s.requests()) > 0 {
		t.Errorf("requests %v during an outage", s.requests())
	}
	s.change(func() { s.down = 0 })
	// On a busy machine the client's breaker may have opened for some seconds.
	testkit.Eventually(t, waitLimit, "two successful runs", func() bool { return strings.Count(log.String(), `"msg":"job ended"`) >= 2 })
	stop()
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
	if len(s.requests()) < 2 {
		t.Errorf("requests %v", s.requests())
	}
}

func TestSchedule_Empty_WaitsForContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- jobs.NewSchedule(jobs.Deps{}).Run(ctx) }()
		synctest.Wait()
		if len(ended) > 0 {
			t.Fatalf("ended too early: %v", <-ended)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
