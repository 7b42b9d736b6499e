package census

import (
	"context"

	"github.com/kyma-project/keb/libs/scrape"
	"github.com/kyma-project/keb/services/orchestrator/internal/admission"
	"github.com/kyma-project/keb/services/orchestrator/internal/limit"
)

// ofOperations is the label of limits on operations in progress.
const ofOperations = "operations"

type limits struct {
	c                   *Census
	most, used, waiting *scrape.Gauge
}

func newLimits(c *Census) *scrape.Collector {
	l := &limits{
		c:    c,
		most: scrape.NewGauge("keb_limit", "What a limit allows at most, for each value of its member each if it has one.", "limit", "of"),
		used: scrape.NewGauge("keb_limit_in_use", "How much of a limit is in use; for a limit with each, by the value that uses most.", "limit", "of"),
		waiting: scrape.NewGauge("keb_limit_waiting",
			"Operations that limits keep from starting, by the limits in whose scopes they are.", "limit", "of"),
	}
	return scrape.New(c.config("limits", maxAge), l.read, l.most, l.used, l.waiting)
}

func (l *limits) read(ctx context.Context, s *scrape.Sample) error {
	set := l.c.deps.Limits()
	if !set.BoundsOperations() {
		return nil
	}
	running, waiting, err := l.c.deps.Operations.LimitUse(ctx)
	if err != nil {
		return err
	}
	for i := range set.Limits {
		if bound := &set.Limits[i]; bound.Operations > 0 {
			s.Add(l.most, float64(bound.Operations), bound.Name, ofOperations)
			s.Max(l.used, 0, bound.Name, ofOperations)
			s.Add(l.waiting, 0, bound.Name, ofOperations)
		}
	}
	used := map[limit.Key]int{}
	each(set, running, func(k limit.Key, n int) { used[k] += n })
	for k, n := range used {
		s.Max(l.used, float64(n), k.Limit.Name, ofOperations)
	}
	each(set, waiting, func(k limit.Key, n int) { s.Add(l.waiting, float64(n), k.Limit.Name, ofOperations) })
	return nil
}

// each calls f for each limit of each queue.
func each(set *limit.Set, counts map[admission.Queue]int, f func(k limit.Key, n int)) {
	for q, n := range counts {
		for _, k := range q.Keys(set) {
			f(k, n)
		}
	}
}
