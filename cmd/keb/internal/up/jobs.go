package up

import (
	"errors"
	"fmt"
	"time"

	"github.com/kyma-project/keb/services/jobs"
)

// JobTimes holds the interval of each job; 0 means never.
type JobTimes struct {
	DeprovisionRetrigger, TrialExpiry, SubaccountCleanup time.Duration
}

// DefaultJobTimes returns short intervals, so that the jobs can be observed on one machine.
func DefaultJobTimes() JobTimes {
	return JobTimes{DeprovisionRetrigger: 5 * time.Minute, TrialExpiry: time.Hour, SubaccountCleanup: time.Hour}
}

// validate reports every negative interval.
func (t JobTimes) validate() error {
	var problems []error
	for _, e := range []struct {
		name  string
		every time.Duration
	}{
		{"--retrigger-every (KEB_RETRIGGER_EVERY)", t.DeprovisionRetrigger},
		{"--expiry-every (KEB_EXPIRY_EVERY)", t.TrialExpiry},
		{"--cleanup-every (KEB_CLEANUP_EVERY)", t.SubaccountCleanup},
	} {
		if e.every < 0 {
			problems = append(problems, fmt.Errorf("%s: %s is negative; 0 means never", e.name, e.every))
		}
	}
	return errors.Join(problems...)
}

// addJobs adds the periodic jobs to the group. Jobs use the broker's API; if the broker is unavailable, a job runs again at its next
// interval.
func (s *system) addJobs() error {
	deps := jobs.Deps{Log: s.Log.With("component", "jobs"), Registerer: s.Registry}
	if !s.Jobs.BrokerTLS.Enabled() {
		deps.Broker = s.cfg.Transport
	}
	schedule := jobs.NewSchedule(deps)
	for job, every := range map[jobs.Job]time.Duration{
		jobs.DeprovisionRetrigger: s.cfg.Jobs.DeprovisionRetrigger, jobs.TrialExpiry: s.cfg.Jobs.TrialExpiry,
		jobs.SubaccountCleanup: s.cfg.Jobs.SubaccountCleanup,
	} {
		if err := schedule.Add(job, every, s.Jobs); err != nil {
			return err
		}
	}
	s.Add("jobs", schedule.Run)
	return nil
}
