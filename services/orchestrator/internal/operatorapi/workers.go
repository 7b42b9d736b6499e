package operatorapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// liveWorker is who a worker is, without what changes all the time.
type liveWorker struct {
	Name     string `json:"name"`
	Replicas int    `json:"replicas"`
	// Alive tells whether a replica has answered lately.
	Alive bool `json:"alive"`
	// Versions are those of the live replicas.
	Versions []string `json:"versions"`
	Steps    []string `json:"steps"`
	// MissingSteps are those that the processes name and no live replica serves.
	MissingSteps []string `json:"missingSteps"`
}

// workerView is a worker as the API shows it.
type workerView struct {
	liveWorker
	// Version is that of the live replicas, with commas between when they differ.
	Version  string     `json:"version"`
	LastSeen *time.Time `json:"lastSeen,omitempty"`
	// Pending commands wait on the bus, and DeliveredNotAcked ones are with the replicas; absent when the bus does not tell.
	Pending           *int64 `json:"pending,omitempty"`
	DeliveredNotAcked *int64 `json:"deliveredNotAcked,omitempty"`
	// The rates are over the last one to two minutes.
	StepsPerMinute    float64 `json:"stepsPerMinute"`
	FailuresPerMinute float64 `json:"failuresPerMinute"`
	// OperationsWaiting and OperationsExecuting count the operations at its steps.
	OperationsWaiting   int `json:"operationsWaiting"`
	OperationsExecuting int `json:"operationsExecuting"`
}

// liveWorkers are the workers that live and those that the processes name, by name.
func (a *API) liveWorkers() []*liveWorker {
	byName := map[string]*liveWorker{}
	for _, live := range a.deps.Workers.Workers() {
		byName[live.Name] = &liveWorker{
			Name: live.Name, Versions: live.Versions, Replicas: live.Replicas, Steps: append([]string{}, live.Steps...), Alive: true,
			MissingSteps: []string{},
		}
	}
	for _, p := range a.deps.Definitions.Set() {
		for _, stage := range p.Stages {
			for i := range stage.Steps {
				a.want(byName, &stage.Steps[i])
			}
		}
	}
	for _, entry := range byName {
		slices.Sort(entry.MissingSteps)
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b *liveWorker) int { return strings.Compare(a.Name, b.Name) })
}

// want notes a step of a process that nobody serves.
func (a *API) want(byName map[string]*liveWorker, s *process.Step) {
	if s.BuiltIn() || a.deps.Workers.Serves(s.Worker, s.Name) {
		return
	}
	entry := byName[s.Worker]
	if entry == nil {
		entry = &liveWorker{Name: s.Worker, Versions: []string{}, Steps: []string{}, MissingSteps: []string{}}
		byName[s.Worker] = entry
	}
	if !slices.Contains(entry.MissingSteps, s.Name) {
		entry.MissingSteps = append(entry.MissingSteps, s.Name)
	}
}

// Live implements stream.Renderer.
func (a *API) Live() []byte {
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(map[string]any{"data": a.liveWorkers()}); err != nil {
		a.deps.Log.Error("workers not encoded", "err", err)
		return nil
	}
	return bytes.TrimSpace(b.Bytes())
}

func (a *API) workers(w http.ResponseWriter, r *http.Request) {
	views, err := a.workerViews(r.Context())
	if err != nil {
		a.broken(w, err)
		return
	}
	a.write(w, http.StatusOK, page[*workerView]{Data: views, Count: len(views), TotalCount: len(views)})
}

func (a *API) workerViews(ctx context.Context) ([]*workerView, error) {
	live := a.liveWorkers()
	views := make([]*workerView, len(live))
	byName := make(map[string]*workerView, len(live))
	for i, l := range live {
		views[i] = &workerView{
			liveWorker: *l, Version: strings.Join(l.Versions, ", "), LastSeen: optional(a.deps.Workers.Seen(l.Name).UTC()),
		}
		byName[l.Name] = views[i]
	}
	depths, err := a.deps.Backlog.Depths(ctx)
	if err != nil {
		a.deps.Log.Debug("commands that wait are not known", "err", err)
	}
	for name, d := range depths {
		if v := byName[name]; v != nil {
			v.Pending, v.DeliveredNotAcked = &d.Pending, &d.Unanswered
		}
	}
	if err := a.rates(ctx, byName); err != nil {
		return nil, err
	}
	groups, err := a.groups(ctx)
	if err != nil {
		return nil, err
	}
	for i := range groups {
		g := &groups[i]
		v := byName[g.worker]
		switch {
		case v == nil:
		case g.reason == store.Executing:
			v.OperationsExecuting += g.Count
		default:
			v.OperationsWaiting += g.Count
		}
	}
	return views, nil
}

// rates fills in what workers did in this minute and the one before.
func (a *API) rates(ctx context.Context, byName map[string]*workerView) error {
	now := a.deps.Now().UTC()
	since := now.Truncate(time.Minute).Add(-time.Minute)
	counts, err := a.counts.get(ctx, func(ctx context.Context) (map[store.TallyKey]int64, error) { return a.deps.Counts.Since(ctx, since) })
	if err != nil {
		return err
	}
	minutes := now.Sub(since).Minutes()
	steps, failures := map[string]int64{}, map[string]int64{}
	for k, n := range counts {
		if k.Minute.Before(since) {
			continue // the minute has changed since they were read
		}
		steps[k.Worker] += n
		if o := event.Outcome(k.Outcome); o == event.OutcomeFailed || o == event.OutcomeNotCompleted {
			failures[k.Worker] += n
		}
	}
	for name, v := range byName {
		v.StepsPerMinute, v.FailuresPerMinute = perMinute(steps[name], minutes), perMinute(failures[name], minutes)
	}
	return nil
}

// perMinute is a rate with one decimal, for nobody needs more.
func perMinute(n int64, minutes float64) float64 {
	return float64(int64(float64(n)/minutes*10+0.5)) / 10
}

// group is a group of the census, with what it waits for.
type group struct {
	store.Group
	reason              store.Reason
	worker, stage, step string
}

// key tells groups apart that are shown apart: plans and versions of a definition are not.
type key struct {
	reason              store.Reason
	kind                event.OperationType
	worker, stage, step string
}

func (g *group) key() key { return key{g.reason, g.Type, g.worker, g.stage, g.step} }

// groups are where the operations stand that have not ended.
func (a *API) groups(ctx context.Context) ([]group, error) {
	census, err := a.census.get(ctx, a.deps.Operations.Census)
	if err != nil {
		return nil, err
	}
	groups := make([]group, len(census.Groups))
	for i, g := range census.Groups {
		if groups[i], err = a.group(ctx, g); err != nil {
			return nil, err
		}
	}
	return groups, nil
}

// group finds what a group of the census waits for.
func (a *API) group(ctx context.Context, g store.Group) (group, error) {
	out := group{Group: g, reason: store.WaitsForAdmission}
	if g.State == event.Pending {
		if g.Held {
			out.reason = store.WaitsForInstance
		}
		return out, nil
	}
	out.reason = store.Executing
	p, err := a.deps.Definitions.Pinned(ctx, g.Definition)
	if err != nil {
		return out, err
	}
	if g.Held {
		out.reason = store.WaitsForRetry
	}
	if g.Stage < len(p.Stages) && g.Step < len(p.Stages[g.Stage].Steps) {
		step := &p.Stages[g.Stage].Steps[g.Step]
		out.worker, out.stage, out.step = step.Worker, p.Stages[g.Stage].Name, step.Name
		if !g.Held && !a.deps.Workers.Serves(step.Worker, step.Name) {
			out.reason = store.WaitsForWorker
		}
	}
	return out, nil
}

// since is when the first of a group came to where it is.
func (a *API) since(g *group) time.Time {
	switch g.reason {
	case store.WaitsForRetry, store.Executing:
		return cmp.Or(g.TriedAt, g.Oldest)
	case store.WaitsForWorker:
		at := cmp.Or(g.SentAt, g.TriedAt, g.Oldest)
		if seen := a.deps.Workers.Seen(g.worker).UTC(); seen.After(at) {
			return seen
		}
		return at
	default:
		return g.Oldest
	}
}
