package operatorapi

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/census"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// liveWorkers returns the live workers and the workers that the processes name, by name.
func (a *API) liveWorkers() []*operator.LiveWorker {
	byName := map[string]*operator.LiveWorker{}
	for _, live := range a.deps.Workers.Workers() {
		byName[live.Name] = &operator.LiveWorker{
			Name: live.Name, Versions: live.Versions, Replicas: live.Replicas, Steps: append([]string{}, live.Steps...), Alive: true,
			MissingSteps: []string{}, VersionReplicas: make([]operator.VersionReplicas, len(live.Versions)),
		}
		for i, version := range live.Versions {
			byName[live.Name].VersionReplicas[i] = operator.VersionReplicas{Version: version, Replicas: live.ByVersion[version], Ramped: live.Ramped[version]}
		}
	}
	for _, p := range a.deps.Definitions.Set() {
		for _, stage := range p.Stages {
			for i := range stage.Steps {
				a.want(byName, &stage.Steps[i])
			}
		}
	}
	ramps := a.deps.CurrentRamps()
	for i := range ramps {
		if entry := byName[ramps[i].Worker]; entry != nil {
			entry.Ramps = append(entry.Ramps, viewRamp(&ramps[i]))
		}
	}
	for _, entry := range byName {
		slices.Sort(entry.MissingSteps)
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b *operator.LiveWorker) int { return strings.Compare(a.Name, b.Name) })
}

// want records a step that a process needs.
func (a *API) want(byName map[string]*operator.LiveWorker, s *process.Step) {
	if s.BuiltIn() || a.deps.Workers.Serves(s.Worker, s.Name) {
		return
	}
	entry := byName[s.Worker]
	if entry == nil {
		entry = &operator.LiveWorker{Name: s.Worker, Versions: []string{}, VersionReplicas: []operator.VersionReplicas{}, Steps: []string{}, MissingSteps: []string{}}
		byName[s.Worker] = entry
	}
	if !slices.Contains(entry.MissingSteps, s.Name) {
		entry.MissingSteps = append(entry.MissingSteps, s.Name)
	}
}

// Live implements stream.Renderer.
func (a *API) Live() []byte {
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(operator.LiveWorkers{Data: a.liveWorkers()}); err != nil {
		a.deps.Log.Error("workers not encoded", "err", err)
		return nil
	}
	return bytes.TrimSpace(b.Bytes())
}

func (a *API) workers(r *http.Request) (any, error) {
	views, err := a.workerViews(r.Context())
	if err != nil {
		return nil, err
	}
	return operator.All(views), nil
}

func (a *API) workerViews(ctx context.Context) ([]*operator.Worker, error) {
	live := a.liveWorkers()
	views := make([]*operator.Worker, len(live))
	byName := make(map[string]*operator.Worker, len(live))
	for i, l := range live {
		views[i] = &operator.Worker{
			LiveWorker: *l, Version: strings.Join(l.Versions, ", "), LastSeen: optional(a.deps.Workers.Seen(l.Name).UTC()),
		}
		byName[l.Name] = views[i]
	}
	depths, err := a.deps.Census.Depths(ctx)
	if err != nil {
		a.deps.Log.Debug("waiting commands are not available", "err", err)
	}
	if err == nil {
		// No commands are sent to a worker without a consumer, such as one that only answers questions.
		for name, v := range byName {
			d, ramped := depths[name], depths[event.Ramped(name)]
			d.Pending, d.Unanswered = d.Pending+ramped.Pending, d.Unanswered+ramped.Unanswered
			v.Pending, v.DeliveredNotAcked = &d.Pending, &d.Unanswered
		}
	}
	if err := a.rates(ctx, byName); err != nil {
		return nil, err
	}
	standing, err := a.deps.Census.Read(ctx)
	if err != nil {
		return nil, err
	}
	for i := range standing.Groups {
		g := &standing.Groups[i]
		v := byName[g.Worker]
		if v == nil {
			continue
		}
		switch g.Reason {
		case operator.Executing, operator.Slow:
			v.OperationsExecuting += g.Count
		case operator.Polling, operator.Failing, operator.NoAnswer, operator.NoWorker:
			v.OperationsWaiting += g.Count
		}
	}
	return views, nil
}

// rates sets the rates of workers from this minute and the minute before.
func (a *API) rates(ctx context.Context, byName map[string]*operator.Worker) error {
	now := a.deps.Now().UTC()
	since := minuteBefore(now)
	counts, err := a.counts.Get(ctx)
	if err != nil {
		return err
	}
	minutes := now.Sub(since).Minutes()
	steps, retries, failures := map[string]int64{}, map[string]int64{}, map[string]int64{}
	for k, n := range counts {
		if k.Minute.Before(since) {
			continue // the minute has changed since the counts were read
		}
		if k.Outcome == store.TallyTimed || k.Outcome == store.TallyTook {
			continue
		}
		steps[k.Worker] += n
		switch event.Outcome(k.Outcome) {
		case event.OutcomeFailed, event.OutcomeNotCompleted:
			failures[k.Worker] += n
		case event.OutcomeRetry, event.OutcomeNoAnswer, event.OutcomeStageLost:
			retries[k.Worker] += n
		}
	}
	for name, v := range byName {
		v.StepsPerMinute, v.RetriesPerMinute = perMinute(steps[name], minutes), perMinute(retries[name], minutes)
		v.FailuresPerMinute = perMinute(failures[name], minutes)
	}
	return nil
}

// minuteBefore returns the start of the previous minute.
func minuteBefore(now time.Time) time.Time { return now.Truncate(time.Minute).Add(-time.Minute) }

// perMinute returns a rate with one decimal.
func perMinute(n int64, minutes float64) float64 {
	return float64(int64(float64(n)/minutes*10+0.5)) / 10
}

// key identifies a group in the answer. Plans and versions of a definition are not distinguished.
type key struct {
	reason              operator.WaitingReason
	kind                event.OperationType
	worker, stage, step string
}

func keyOf(g *census.Group) key { return key{g.Reason, g.Type, g.Worker, g.Stage, g.Step} }

// withoutWorker returns since when an operation has had no live worker, if it has waited since a time for any reason.
func (a *API) withoutWorker(worker string, since time.Time) time.Time {
	if seen := a.deps.Workers.Seen(worker).UTC(); seen.After(since) {
		return seen
	}
	return since
}
