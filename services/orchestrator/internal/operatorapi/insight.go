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

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/census"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

const (
	// maxStuck bounds the groups of operations that do not move, and maxNamed the operations named of each.
	maxStuck = 200
	maxNamed = 5
	// maxMinutes is how far back the throughput goes.
	maxMinutes     = 24 * 60
	defaultMinutes = 60
)

// operationCounts counts operations.
type operationCounts struct {
	Started   int64 `json:"started"`
	Succeeded int64 `json:"succeeded"`
	Failed    int64 `json:"failed"`
	Cancelled int64 `json:"cancelled"`
}

func (c *operationCounts) add(outcome string, n int64) {
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

// stepCounts counts executions of steps.
type stepCounts struct {
	Succeeded    int64 `json:"succeeded"`
	Retry        int64 `json:"retry"`
	Failed       int64 `json:"failed"`
	Skipped      int64 `json:"skipped"`
	NotCompleted int64 `json:"notCompleted"`
	StageLost    int64 `json:"stageLost"`
}

func (c *stepCounts) add(outcome string, n int64) {
	switch event.Outcome(outcome) {
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
	}
}

type overviewView struct {
	Time       time.Time            `json:"time"`
	Operations []countView          `json:"operations"`
	Waiting    map[store.Reason]int `json:"waiting"`
	Oldest     []oldestView         `json:"oldest"`
	// Steps are where operations in progress stand.
	Steps    []placeView     `json:"steps"`
	LastHour operationCounts `json:"lastHour"`
}

type countView struct {
	Type  event.OperationType  `json:"type"`
	State event.OperationState `json:"state"`
	Count int                  `json:"count"`
	// Capped tells that there are more.
	Capped bool `json:"capped,omitempty"`
}

type placeView struct {
	Type  event.OperationType `json:"type"`
	Stage string              `json:"stage"`
	Step  string              `json:"step"`
	Count int                 `json:"count"`
}

type oldestView struct {
	Type      event.OperationType  `json:"type"`
	Operation string               `json:"operation"`
	State     event.OperationState `json:"state"`
	CreatedAt time.Time            `json:"createdAt"`
}

func (a *API) overview(w http.ResponseWriter, r *http.Request) {
	out, err := a.summary(r.Context())
	if err != nil {
		a.broken(w, r, err)
		return
	}
	a.write(w, http.StatusOK, out)
}

func (a *API) summary(ctx context.Context) (*overviewView, error) {
	now := a.deps.Now().UTC()
	out := &overviewView{Time: now, Operations: []countView{}, Waiting: map[store.Reason]int{}, Oldest: []oldestView{}, Steps: []placeView{}}
	for _, reason := range store.Reasons() {
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
	places := map[placeView]int{}
	since := map[event.OperationType]time.Time{}
	for i := range standing.Groups {
		g := &standing.Groups[i]
		out.Waiting[g.Reason] += g.Count
		unfinished[kind{g.Type, g.State}] += g.Count
		if g.Step != "" {
			places[placeView{Type: g.Type, Stage: g.Stage, Step: g.Step}] += g.Count
		}
		if at, ok := since[g.Type]; !ok || g.Oldest.Before(at) {
			since[g.Type] = g.Oldest
		}
	}
	for k, n := range unfinished {
		out.Operations = append(out.Operations, countView{Type: k.t, State: k.s, Count: n})
	}
	ended, err := a.ended.Get(ctx)
	if err != nil {
		return nil, err
	}
	for _, e := range ended {
		out.Operations = append(out.Operations, countView{Type: e.Type, State: e.State, Count: e.Count, Capped: e.Capped})
	}
	types, order := event.OperationTypes(), states()
	slices.SortFunc(out.Operations, func(a, b countView) int {
		return cmp.Or(cmp.Compare(slices.Index(types, a.Type), slices.Index(types, b.Type)),
			cmp.Compare(slices.Index(order, a.State), slices.Index(order, b.State)))
	})
	for place, n := range places {
		place.Count = n
		out.Steps = append(out.Steps, place)
	}
	slices.SortFunc(out.Steps, func(a, b placeView) int {
		return cmp.Or(cmp.Compare(slices.Index(types, a.Type), slices.Index(types, b.Type)), cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.Step, b.Step))
	})
	oldest, err := a.deps.Operations.Oldest(ctx, since)
	if err != nil {
		return nil, err
	}
	for _, o := range oldest {
		out.Oldest = append(out.Oldest, oldestView{Type: o.Type, Operation: o.ID, State: o.State, CreatedAt: o.CreatedAt})
	}
	counts, err := a.deps.Counts.Since(ctx, now.Add(-time.Hour))
	if err != nil {
		return nil, err
	}
	for k, n := range counts {
		if k.Step == "" {
			out.LastHour.add(k.Outcome, n)
		}
	}
	return out, nil
}

// stuckView is a number of operations that do not move for the same reason.
type stuckView struct {
	Reason store.Reason        `json:"reason"`
	Type   event.OperationType `json:"type"`
	Worker string              `json:"worker,omitempty"`
	Step   string              `json:"step,omitempty"`
	Stage  string              `json:"stage,omitempty"`
	Since  time.Time           `json:"since"`
	Count  int                 `json:"count"`
	// Error and Message are the last of one of those that wait longest.
	Error      *event.Error `json:"error,omitempty"`
	Message    string       `json:"message,omitempty"`
	Operations []string     `json:"operations"`
	Text       string       `json:"text"`
}

func (a *API) stuck(w http.ResponseWriter, r *http.Request) {
	q, err := parseStuck(r.URL.Query())
	if err != nil {
		a.fail(w, http.StatusBadRequest, err)
		return
	}
	views, total, err := a.stuckGroups(r.Context(), q)
	if err != nil {
		a.broken(w, r, err)
		return
	}
	a.write(w, http.StatusOK, page[*stuckView]{Data: views, Count: len(views), TotalCount: total})
}

func parseStuck(q url.Values) (*question, error) {
	w := &question{}
	var err error
	if w.Types, err = among(q, "type", event.OperationTypes()); err != nil {
		return nil, err
	}
	if w.Waiting, err = among(q, "waiting", store.Reasons()); err != nil {
		return nil, err
	}
	w.worker, err = name(q, "worker")
	return w, err
}

func (a *API) stuckGroups(ctx context.Context, q *question) (views []*stuckView, total int, err error) {
	standing, err := a.deps.Census.Read(ctx)
	if err != nil {
		return nil, 0, err
	}
	byKey := map[key]*stuckView{}
	views = []*stuckView{}
	for i := range standing.Groups {
		g := &standing.Groups[i]
		if g.Reason == store.Executing || q.worker != "" && g.Worker != q.worker ||
			len(q.Types) > 0 && !slices.Contains(q.Types, g.Type) || len(q.Waiting) > 0 && !slices.Contains(q.Waiting, g.Reason) {
			continue
		}
		v := byKey[keyOf(g)]
		if v == nil {
			v = &stuckView{
				Reason: g.Reason, Type: g.Type, Worker: g.Worker, Step: g.Step, Stage: g.Stage, Since: a.since(g), Operations: []string{},
			}
			byKey[keyOf(g)] = v
			views = append(views, v)
		}
		v.Count += g.Count
		if at := a.since(g); at.Before(v.Since) {
			v.Since = at
		}
	}
	slices.SortFunc(views, func(a, b *stuckView) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Step, b.Step)) })
	total = len(views)
	views = views[:min(total, maxStuck)]
	for _, v := range views {
		v.Text = v.text()
	}
	if total == 0 {
		return views, 0, nil
	}
	return views, total, a.name(ctx, byKey, views)
}

// text says to people what a group waits for.
func (v *stuckView) text() string {
	switch v.Reason {
	case store.WaitsForRetry:
		return fmt.Sprintf("step %s of worker %s is retried", v.Step, v.Worker)
	case store.WaitsForWorker:
		return fmt.Sprintf("no live worker %s for step %s", v.Worker, v.Step)
	case store.WaitsForInstance:
		return "another operation of the instance is in progress"
	default:
		return "waiting for admission"
	}
}

// name adds some operations of each group, and what the one that waits longest says.
func (a *API) name(ctx context.Context, byKey map[key]*stuckView, views []*stuckView) error {
	found, err := a.samples.Get(ctx)
	if err != nil {
		return err
	}
	found = slices.Clone(found)
	slices.SortFunc(found, func(a, b store.Sample) int { return a.Since.Compare(b.Since) })
	for i := range found {
		s := &found[i]
		g, err := a.deps.Census.Group(ctx, store.Group{
			Type: s.Type, State: s.State, Held: s.Held, Definition: s.Definition, Stage: s.Stage, Step: s.Step,
		})
		if err != nil {
			return err
		}
		if v := byKey[keyOf(&g)]; v != nil && len(v.Operations) < maxNamed {
			v.Operations = append(v.Operations, s.ID)
		}
	}
	byFirst := map[string]*stuckView{}
	var ids []string
	for _, v := range views {
		if len(v.Operations) > 0 {
			byFirst[v.Operations[0]] = v
			ids = append(ids, v.Operations[0])
		}
	}
	rows, err := a.deps.Operations.Read(ctx, ids)
	if err != nil {
		return err
	}
	for _, r := range rows {
		if v := byFirst[r.Operation.ID]; v.Worker != "" {
			v.Error, v.Message = r.Error, r.Message
		}
	}
	return nil
}

type throughputView struct {
	page[*bucketView]
	BucketSeconds int `json:"bucketSeconds"`
}

type bucketView struct {
	// Time is when the bucket begins.
	Time       time.Time       `json:"time"`
	Operations operationCounts `json:"operations"`
	Steps      stepCounts      `json:"steps"`
}

func (a *API) throughput(w http.ResponseWriter, r *http.Request) {
	minutes, bucket, types, err := parseThroughput(r.URL.Query())
	if err != nil {
		a.fail(w, http.StatusBadRequest, err)
		return
	}
	now := a.deps.Now().UTC()
	first := now.Add(-time.Duration(minutes) * time.Minute).Truncate(bucket)
	counts, err := a.deps.Counts.Since(r.Context(), first)
	if err != nil {
		a.broken(w, r, err)
		return
	}
	out := throughputView{BucketSeconds: int(bucket / time.Second)}
	byTime := map[time.Time]*bucketView{}
	for at := first; !at.After(now); at = at.Add(bucket) {
		b := &bucketView{Time: at}
		byTime[at] = b
		out.Data = append(out.Data, b)
	}
	for k, n := range counts {
		b := byTime[k.Minute.Truncate(bucket)]
		switch {
		case b == nil || len(types) > 0 && !slices.Contains(types, k.Type):
		case k.Step == "":
			b.Operations.add(k.Outcome, n)
		default:
			b.Steps.add(k.Outcome, n)
		}
	}
	out.Count, out.TotalCount = len(out.Data), len(out.Data)
	a.write(w, http.StatusOK, out)
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
	types, err = among(q, "type", event.OperationTypes())
	return minutes, bucket, types, err
}
