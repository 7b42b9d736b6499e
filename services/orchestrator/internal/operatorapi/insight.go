package operatorapi

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/census"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

const (
	// maxStuck limits the groups of stuck operations, and maxNamed the operations listed in each.
	maxStuck = 200
	maxNamed = 5
	// maxMinutes limits the period of the throughput.
	maxMinutes     = 24 * 60
	defaultMinutes = 60
)

// addOperations adds n operations with an outcome.
func addOperations(c *operator.OperationCounts, outcome string, n int64) {
	switch outcome {
	case census.Started:
		c.Started += n
	case string(event.Succeeded):
		c.Succeeded += n
	case string(event.Failed):
		c.Failed += n
	case string(event.Cancelled):
		c.Cancelled += n
	}
}

// addSteps adds n executions with an outcome.
func addSteps(c *operator.StepCounts, outcome string, n int64) {
	switch event.Outcome(outcome) {
	case census.Polled:
		c.Polled += n
	case event.OutcomeSucceeded:
		c.Succeeded += n
	case event.OutcomeRetry:
		c.Retry += n
	case event.OutcomeFailed:
		c.Failed += n
	case event.OutcomeSkipped:
		c.Skipped += n
	case event.OutcomeNotCompleted:
		c.NotCompleted += n
	case event.OutcomeStageLost:
		c.StageLost += n
	case event.OutcomeNoAnswer:
		c.NoAnswer += n
	}
}

func (a *API) overview(r *http.Request) (any, error) {
	out, err := a.summary(r.Context())
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (a *API) summary(ctx context.Context) (*operator.Overview, error) {
	now := a.deps.Now().UTC()
	out := &operator.Overview{
		Time: now, Operations: []operator.StateCount{}, Waiting: map[operator.WaitingReason]int{}, Oldest: []operator.Oldest{},
		Steps: []operator.StepCount{},
	}
	for _, reason := range operator.WaitingReasons() {
		out.Waiting[reason] = 0
	}
	standing, err := a.deps.Census.Read(ctx)
	if err != nil {
		return nil, err
	}
	type kind struct {
		t event.OperationType
		s event.OperationState
	}
	unfinished := map[kind]int{}
	places := map[operator.StepCount]int{}
	since := map[event.OperationType]time.Time{}
	for i := range standing.Groups {
		g := &standing.Groups[i]
		out.Waiting[g.Reason] += g.Count
		unfinished[kind{g.Type, g.State}] += g.Count
		if g.Step != "" {
			places[operator.StepCount{Type: g.Type, Stage: g.Stage, Step: g.Step}] += g.Count
		}
		if at, ok := since[g.Type]; !ok || g.Oldest.Before(at) {
			since[g.Type] = g.Oldest
		}
	}
	for k, n := range unfinished {
		out.Operations = append(out.Operations, operator.StateCount{Type: k.t, State: k.s, Count: n})
	}
	ended, err := a.ended.Get(ctx)
	if err != nil {
		return nil, err
	}
	for _, e := range ended {
		out.Operations = append(out.Operations, operator.StateCount{Type: e.Type, State: e.State, Count: e.Count, Capped: e.Capped})
	}
	types, order := event.OperationTypes(), event.OperationStates()
	slices.SortFunc(out.Operations, func(a, b operator.StateCount) int {
		return cmp.Or(cmp.Compare(slices.Index(types, a.Type), slices.Index(types, b.Type)),
			cmp.Compare(slices.Index(order, a.State), slices.Index(order, b.State)))
	})
	for place, n := range places {
		place.Count = n
		out.Steps = append(out.Steps, place)
	}
	slices.SortFunc(out.Steps, func(a, b operator.StepCount) int {
		return cmp.Or(cmp.Compare(slices.Index(types, a.Type), slices.Index(types, b.Type)), cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.Step, b.Step))
	})
	oldest, err := a.deps.Operations.Oldest(ctx, since)
	if err != nil {
		return nil, err
	}
	for _, o := range oldest {
		out.Oldest = append(out.Oldest, operator.Oldest{Type: o.Type, Operation: o.ID, State: o.State, CreatedAt: o.CreatedAt})
	}
	last, err := a.lastHour.Get(ctx)
	if err != nil {
		return nil, err
	}
	out.LastHour, out.LastHourSince = last.counts, last.since
	return out, nil
}

// hour is what ended since a time.
type hour struct {
	since  time.Time
	counts operator.OperationCounts
}

// countHour counts the last hour. The numbers of ended operations are exact up to store.MaxCount: the list of operations with finishedSince has as
// many. Greater ones are sums of counts per minute.
func (a *API) countHour(ctx context.Context) (*hour, error) {
	h := &hour{since: a.deps.Now().UTC().Add(-time.Hour).Truncate(time.Minute)}
	counts, err := a.deps.Counts.Since(ctx, h.since)
	if err != nil {
		return nil, err
	}
	for k, n := range counts {
		if k.Step == "" {
			addOperations(&h.counts, k.Outcome, n)
		}
	}
	ended, more, err := a.deps.Troubles.EndedSince(ctx, h.since)
	if err != nil {
		return nil, err
	}
	for state, n := range map[event.OperationState]*int64{
		event.Succeeded: &h.counts.Succeeded, event.Failed: &h.counts.Failed, event.Cancelled: &h.counts.Cancelled,
	} {
		if exact := int64(ended[state]); !more[state] {
			*n = exact
		} else {
			*n = max(*n, exact)
		}
	}
	return h, nil
}

func (a *API) stuck(r *http.Request) (any, error) {
	q, err := parseStuck(r.URL.Query())
	if err != nil {
		return nil, badRequest(err)
	}
	views, total, err := a.stuckGroups(r.Context(), q)
	if err != nil {
		return nil, err
	}
	return operator.List[*operator.Stuck]{Data: views, Count: len(views), TotalCount: total}, nil
}

func parseStuck(q url.Values) (*question, error) {
	w := &question{}
	var err error
	if w.Types, err = oneOf(q, "type", event.OperationTypes()); err != nil {
		return nil, err
	}
	if w.Waiting, err = oneOf(q, "waiting", operator.WaitingReasons()); err != nil {
		return nil, err
	}
	w.worker, err = name(q, "worker")
	return w, err
}

// selects reports whether the question is about groups of a type, worker and reason.
func (q *question) selects(kind event.OperationType, worker string, reason operator.WaitingReason) bool {
	return (q.worker == "" || worker == q.worker) && (len(q.Types) == 0 || slices.Contains(q.Types, kind)) &&
		(len(q.Waiting) == 0 || slices.Contains(q.Waiting, reason))
}

func (a *API) stuckGroups(ctx context.Context, q *question) (views []*operator.Stuck, total int, err error) {
	samples, err := a.samples.Get(ctx)
	if err != nil {
		return nil, 0, err
	}
	samples = slices.Clone(samples)
	slices.SortFunc(samples, func(a, b store.Sample) int { return a.Since.Compare(b.Since) })
	byKey := map[key]*operator.Stuck{}
	views = []*operator.Stuck{}
	for i := range samples {
		g, err := a.deps.Census.Group(ctx, samples[i].Group)
		if err != nil {
			return nil, 0, err
		}
		if g.Reason == operator.Executing || !q.selects(g.Type, g.Worker, g.Reason) {
			continue
		}
		if g.Reason == operator.NoWorker {
			g.Since = a.withoutWorker(g.Worker, g.Since)
		}
		v := byKey[keyOf(&g)]
		if v == nil {
			v = &operator.Stuck{Reason: g.Reason, Type: g.Type, Worker: g.Worker, Step: g.Step, Stage: g.Stage, Since: g.Since}
			byKey[keyOf(&g)] = v
			views = append(views, v)
		}
		v.Count += g.Count
		if len(v.Operations) < maxNamed {
			v.Operations = append(v.Operations, samples[i].ID)
		}
	}
	ramped, err := a.withoutRamped(ctx)
	if err != nil {
		return nil, 0, err
	}
	for _, g := range ramped {
		if q.selects(g.Type, g.Worker, g.Reason) {
			views = append(views, g)
		}
	}
	slices.SortFunc(views, func(a, b *operator.Stuck) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Step, b.Step)) })
	total = len(views)
	views = views[:min(total, maxStuck)]
	for _, v := range views {
		v.Text = stuckText(v)
	}
	return views, total, a.explain(ctx, views)
}

// stuckText returns what a group waits for as text.
func stuckText(v *operator.Stuck) string {
	switch v.Reason {
	case operator.Polling:
		return fmt.Sprintf("step %s of worker %s has polled for more than half of its time", v.Step, v.Worker)
	case operator.AwaitsEvent:
		return fmt.Sprintf("step %s of worker %s has waited for its event for more than half of its time", v.Step, v.Worker)
	case operator.Slow:
		return fmt.Sprintf("step %s of worker %s executes for longer than usual", v.Step, v.Worker)
	case operator.Failing:
		return fmt.Sprintf("step %s of worker %s fails and is tried again", v.Step, v.Worker)
	case operator.NoAnswer:
		return fmt.Sprintf("worker %s is alive and does not answer for step %s", v.Worker, v.Step)
	case operator.NoWorker:
		if v.Version != "" {
			return fmt.Sprintf("no live worker %s of version %s for step %s", v.Worker, v.Version, v.Step)
		}
		return fmt.Sprintf("no live worker %s for step %s", v.Worker, v.Step)
	case operator.Held:
		if v.Step != "" {
			return fmt.Sprintf("a hold keeps step %s of worker %s from running", v.Step, v.Worker)
		}
		return "a hold keeps the operation from starting"
	case operator.Limited:
		if v.Step != "" {
			return fmt.Sprintf("a limit has no room for step %s of worker %s", v.Step, v.Worker)
		}
		return "a limit has no room"
	case operator.InstanceBusy:
		return "another operation of the instance is in progress"
	default:
		return "waiting for admission"
	}
}

// explain adds to each group the last error of the longest-waiting operation, or the operations that block it.
func (a *API) explain(ctx context.Context, views []*operator.Stuck) error {
	var ids []string
	for _, v := range views {
		if v.Reason == operator.InstanceBusy {
			ids = append(ids, v.Operations...)
		} else {
			ids = append(ids, v.Operations[0])
		}
	}
	if len(ids) == 0 {
		return nil
	}
	rows, err := a.deps.Operations.Read(ctx, ids)
	if err != nil {
		return err
	}
	byID := make(map[string]*store.Row, len(rows))
	for _, r := range rows {
		byID[r.Operation.ID] = r
	}
	shown, err := a.extras(ctx, rows)
	if err != nil {
		return err
	}
	for _, v := range views {
		if r := byID[v.Operations[0]]; r != nil && v.Worker != "" {
			v.Error, v.Message = r.Error, r.Message
		}
		if v.Reason != operator.InstanceBusy {
			continue
		}
		for _, id := range v.Operations {
			if r := byID[id]; r != nil && r.Status == event.Pending {
				if w := a.waiting(r, nil, shown); w.Operation != "" && !slices.Contains(v.BlockedBy, w.Operation) {
					v.BlockedBy = append(v.BlockedBy, w.Operation)
				}
			}
		}
	}
	return nil
}

// stuckSamples reads the samples of the operations that may be stuck.
func (a *API) stuckSamples(ctx context.Context) ([]store.Sample, error) {
	all, err := a.deps.Definitions.All(ctx)
	if err != nil {
		return nil, err
	}
	now := a.deps.Now()
	var polls []store.PollsSince
	for _, p := range all {
		for i := range p.Stages {
			for j := range p.Stages[i].Steps {
				place := store.Place{Definition: p.Hash(), Stage: i, Step: j}
				polls = append(polls, store.PollsSince{Place: place, Since: now.Add(-pollsLong(p, &p.Stages[i].Steps[j]))})
			}
		}
	}
	return a.deps.Operations.Samples(ctx, polls, a.unserved(all))
}

// pollsLong is half of the time that a step may poll.
func pollsLong(p *process.Process, s *process.Step) time.Duration {
	limit := s.Retry.Timeout
	if s.Waits() {
		limit = s.Wait.Timeout
	}
	return cmp.Or(limit, p.Timeout) / 2
}

func (a *API) throughput(r *http.Request) (any, error) {
	minutes, bucket, types, err := parseThroughput(r.URL.Query())
	if err != nil {
		return nil, badRequest(err)
	}
	now := a.deps.Now().UTC()
	first := now.Add(-time.Duration(minutes) * time.Minute).Truncate(bucket)
	counts, err := a.deps.Counts.Since(r.Context(), first)
	if err != nil {
		return nil, err
	}
	out := operator.Throughput{BucketSeconds: int(bucket / time.Second)}
	byTime := map[time.Time]*operator.Bucket{}
	for at := first; !at.After(now); at = at.Add(bucket) {
		b := &operator.Bucket{Time: at, Types: map[event.OperationType]operator.OperationCounts{}}
		byTime[at] = b
		out.Data = append(out.Data, b)
	}
	for k, n := range counts {
		b := byTime[k.Minute.Truncate(bucket)]
		switch {
		case b == nil || len(types) > 0 && !slices.Contains(types, k.Type):
		case k.Step == "":
			addOperations(&b.Operations, k.Outcome, n)
			ofType := b.Types[k.Type]
			addOperations(&ofType, k.Outcome, n)
			b.Types[k.Type] = ofType
		default:
			addSteps(&b.Steps, k.Outcome, n)
		}
	}
	out.Count, out.TotalCount = len(out.Data), len(out.Data)
	return out, nil
}

func parseThroughput(q url.Values) (minutes int, bucket time.Duration, types []event.OperationType, err error) {
	minutes, bucket = defaultMinutes, time.Minute
	if v := q.Get("minutes"); v != "" {
		if minutes, err = strconv.Atoi(v); err != nil || minutes < 1 || minutes > maxMinutes {
			return 0, 0, nil, fmt.Errorf("minutes %.50q: must be a number from 1 to %d", v, maxMinutes)
		}
	}
	if v := q.Get("bucket"); v != "" {
		bucket, err = time.ParseDuration(v)
		if err != nil || bucket < time.Minute || bucket > maxMinutes*time.Minute || bucket%time.Minute != 0 {
			return 0, 0, nil, fmt.Errorf("bucket %.50q: must be whole minutes, such as 60s, 5m or 1h, at most %dh", v, maxMinutes/60)
		}
	}
	types, err = oneOf(q, "type", event.OperationTypes())
	return minutes, bucket, types, err
}
