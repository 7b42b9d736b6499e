package census

import (
	"context"

	"github.com/kyma-project/keb/libs/scrape"
	"github.com/kyma-project/keb/services/orchestrator/internal/limit"
)

// ofOperations is the label of limits on operations in progress, and ofCommands that of limits on commands in flight.
const (
	ofOperations = "operations"
	ofCommands   = "commands"
)

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
			"Operations that limits keep from starting, by the limits in whose scopes they are, and commands, by the limits that they wait for.", "limit", "of"),
	}
	return scrape.New(c.config("limits", maxAge), l.read, l.most, l.used, l.waiting)
}

func (l *limits) read(ctx context.Context, s *scrape.Sample) error {
	set := l.c.deps.Limits()
	if err := l.readCommands(ctx, s, set); err != nil {
		return err
	}
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

// readCommands reads the use of the limits on commands.
func (l *limits) readCommands(ctx context.Context, s *scrape.Sample, set *limit.Set) error {
	names := map[string]bool{}
	for i := range set.Limits {
		bound := &set.Limits[i]
		if !bound.BoundsCommands() {
			continue
		}
		names[bound.Name] = true
		if bound.Commands > 0 {
			s.Add(l.most, float64(bound.Commands), bound.Name, ofCommands)
		}
		s.Max(l.used, 0, bound.Name, ofCommands)
		s.Add(l.waiting, 0, bound.Name, ofCommands)
	}
	if len(names) == 0 {
		return nil
	}
	used, waiting, err := l.c.deps.Operations.CommandUse(ctx)
	if err != nil {
		return err
	}
	for key, n := range used {
		if name := limit.NameOf(key); names[name] {
			s.Max(l.used, float64(n), name, ofCommands)
		}
	}
	for key, n := range waiting {
		if name := limit.NameOf(key); names[name] {
			s.Add(l.waiting, float64(n), name, ofCommands)
		}
	}
	return nil
}

// each calls f for each limit of each queue.
func each(set *limit.Set, counts map[limit.Queue]int, f func(k limit.Key, n int)) {
	for q, n := range counts {
		for _, k := range q.Keys(set) {
			f(k, n)
		}
	}
}
