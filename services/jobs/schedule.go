package jobs

import (
	"context"
	"time"

	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/services/jobs/internal/retry"
)

// firstAfter is the longest time until the first run of a job on a schedule: a process that is restarted more often than a job runs
// would never run it.
const firstAfter = time.Minute

// Schedule runs jobs from time to time, for a process that is all there is of KEB. On Kubernetes that is what a CronJob does.
type Schedule struct {
	deps  Deps
	every []entry
}

type entry struct {
	*runner
	every time.Duration
}

// NewSchedule is an empty schedule.
func NewSchedule(deps Deps) *Schedule { return &Schedule{deps: deps.withDefaults()} }

// Add adds a job that runs once in every; 0 or less leaves it out. It returns an error for a configuration that cannot work.
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

// Run runs the jobs until ctx ends, each for the first time after a minute at the latest. A job that fails, for example as the broker
// is away, is logged and has its next turn at its time.
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
	for wait := min(e.every, firstAfter); retry.Wait(ctx, wait); wait = e.every {
		if _, err := e.run(ctx); err != nil && ctx.Err() == nil {
			e.deps.Log.WarnContext(ctx, "job could not be done, it comes again", "job", e.job, "again_in", e.every, "err", err)
		}
	}
	return nil
}
