package jobs

import (
	"context"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/service"
)

// firstAfter is the longest delay before the first run of a scheduled job. Without it, a process that often restarts would never run a job.
const firstAfter = time.Minute

// Schedule runs jobs periodically in a process that contains all of KEB. On Kubernetes, a CronJob does that.
type Schedule struct {
	deps  Deps
	every []entry
}

type entry struct {
	*runner
	every time.Duration
}

// NewSchedule returns an empty schedule.
func NewSchedule(deps Deps) *Schedule { return &Schedule{deps: deps.withDefaults()} }

// Add adds a job with an interval; 0 or less omits it. It returns an error for an invalid configuration.
func (s *Schedule) Add(job Job, every time.Duration, cfg Config) error {
	if every <= 0 {
		return nil
	}
	r, err := newRunner(job, cfg, s.deps)
	if err != nil {
		return err
	}
	s.every = append(s.every, entry{runner: r, every: every})
	return nil
}

// Run runs the jobs until ctx ends. The first run of each is after at most a minute. A failed job, for example because the broker is
// unavailable, is logged and repeated after its interval.
func (s *Schedule) Run(ctx context.Context) error {
	g := service.NewGroup(s.deps.Log)
	for _, e := range s.every {
		g.Add(string(e.job), e.loop)
	}
	if len(s.every) == 0 {
		g.Add("no jobs", func(ctx context.Context) error { <-ctx.Done(); return nil })
	}
	return g.Run(ctx)
}

func (e entry) loop(ctx context.Context) error {
	for wait := min(e.every, firstAfter); extclient.Wait(ctx, wait); wait = e.every {
		if _, err := e.run(ctx); err != nil && ctx.Err() == nil {
			e.deps.Log.WarnContext(ctx, "job failed and will be repeated", "job", e.job, "again_in", e.every, "err", err)
		}
	}
	return nil
}
