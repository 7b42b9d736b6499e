package operatorapi

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

const (
	// maxErrors limits the errors that are told apart, and maxSteps the steps of a group.
	maxErrors = 100
	maxSteps  = 5
	// failedWithin is the period of the failed operations.
	failedWithin = 24 * time.Hour
	// reasonFailed is the reason of groups of operations that have failed.
	reasonFailed = "failed"
)

// Troubles counts the operations that stand still or have failed, by error.
type Troubles interface {
	Troubles(ctx context.Context, unserved store.Places, groups int) ([]store.Trouble, error)
	Failures(ctx context.Context, since time.Time, groups int) ([]store.Trouble, error)
	EndedSince(ctx context.Context, since time.Time) (counts map[event.OperationState]int, more map[event.OperationState]bool, err error)
}

func (a *API) errors(r *http.Request) (any, error) {
	counted, err := a.errorGroups.Get(r.Context())
	if err != nil {
		return nil, err
	}
	out := *counted
	out.Time = a.deps.Now().UTC()
	if out.Calm, err = a.calm(r.Context()); err != nil {
		return nil, err
	}
	return out, nil
}

// countErrors counts the errors, except those of calm operations.
func (a *API) countErrors(ctx context.Context) (*operator.Errors, error) {
	all, err := a.deps.Definitions.All(ctx)
	if err != nil {
		return nil, err
	}
	now := a.deps.Now().UTC()
	// A whole minute, so that the queries stay the same for a while.
	out := &operator.Errors{CountedAt: now, FailedSince: now.Add(-failedWithin).Truncate(time.Minute)}
	standing, err := a.deps.Troubles.Troubles(ctx, a.unserved(all), maxErrors)
	if err != nil {
		return nil, err
	}
	failed, err := a.deps.Troubles.Failures(ctx, out.FailedSince, maxErrors)
	if err != nil {
		return nil, err
	}
	if out.Now, err = a.groupErrors(ctx, standing, out.FailedSince); err != nil {
		return nil, err
	}
	out.Failed, err = a.groupErrors(ctx, failed, out.FailedSince)
	return out, err
}

// groupKey identifies a group of errors.
type groupKey struct {
	reason                     operator.WaitingReason
	state                      event.OperationState
	error, worker, hold, limit string
}

// errorGroup is a group that counts are added to.
type errorGroup struct {
	operator.ErrorGroup
	steps map[operator.StepErrors]int
}

// groupErrors groups counts. failedSince is for the queries of failed operations.
func (a *API) groupErrors(ctx context.Context, troubles []store.Trouble, failedSince time.Time) (operator.ErrorGroups, error) {
	out := operator.ErrorGroups{Groups: []operator.ErrorGroup{}}
	byKey := map[groupKey]*errorGroup{}
	for i := range troubles {
		t := &troubles[i]
		out.Operations += t.Count
		if t.Errors > 0 {
			if out.Others == nil {
				out.Others = &operator.OtherErrors{}
			}
			out.Others.Errors += t.Errors
			out.Others.Operations += t.Count
			continue
		}
		step, systems, err := a.stepOf(ctx, t)
		if err != nil {
			return out, err
		}
		k := groupKey{reason: t.Reason, state: t.State, error: t.Error, hold: t.Hold, limit: t.Limit}
		switch t.Reason {
		case operator.NoWorker:
			k.worker = step.Worker
		case operator.Held:
			k.state = "" // pending and started ones are held for the same reason
		}
		if t.Reason == operator.NoWorker {
			t.First = a.withoutWorker(step.Worker, t.First)
		}
		g := byKey[k]
		if g == nil {
			g = &errorGroup{steps: map[operator.StepErrors]int{}}
			g.Key, g.Worker, g.Hold, g.Limit, g.Query = t.Error, k.worker, t.Hold, t.Limit, errorQuery(&k, failedSince)
			g.Reason = cmp.Or(string(t.Reason), reasonFailed)
			byKey[k] = g
		}
		g.add(t, step, systems)
	}
	holds, err := a.holdReasons(ctx, byKey)
	if err != nil {
		return out, err
	}
	for k, g := range byKey {
		g.Text = groupText(&k, holds)
		g.finish()
		out.Groups = append(out.Groups, g.ErrorGroup)
	}
	slices.SortFunc(out.Groups, func(a, b operator.ErrorGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), a.First.Compare(b.First), cmp.Compare(a.Query, b.Query))
	})
	return out, nil
}

// stepOf returns the step of a count, without its number, and the external systems that the step calls.
func (a *API) stepOf(ctx context.Context, t *store.Trouble) (step operator.StepErrors, systems []string, err error) {
	if t.Place.Definition == "" {
		return step, nil, nil
	}
	p, err := a.deps.Definitions.Pinned(ctx, t.Place.Definition)
	if err != nil {
		return step, nil, err
	}
	if at := p.At(t.Place.Stage, t.Place.Step); at != nil {
		return operator.StepErrors{Worker: at.Worker, Step: at.Name}, at.CalledSystems(), nil
	}
	return step, nil, nil
}

// add adds a count. The sample of the group is the operation that has stood still longest, or that failed last.
func (g *errorGroup) add(t *store.Trouble, step operator.StepErrors, systems []string) {
	isSample := g.Count == 0 || t.Reason != "" && t.First.Before(g.First) || t.Reason == "" && t.Last.After(g.Last)
	if g.Count == 0 || t.First.Before(g.First) {
		g.First = t.First
	}
	if t.Last.After(g.Last) {
		g.Last = t.Last
	}
	g.Count += t.Count
	if !slices.Contains(g.Types, t.Type) {
		g.Types = append(g.Types, t.Type)
	}
	if step.Step != "" {
		g.steps[step] += t.Count
	}
	for _, s := range systems {
		if !slices.Contains(g.Systems, s) {
			g.Systems = append(g.Systems, s)
		}
	}
	if !isSample {
		return
	}
	g.Sample = operator.ErrorSample{Operation: t.Sample.ID, Type: t.Type}
	if t.Error == "" {
		return
	}
	g.Error = &event.Error{Message: t.Sample.Pattern}
	g.Sample.Message = t.Sample.Message
	if e := t.Sample.Error; e != nil {
		g.Error.Component, g.Error.Reason, g.Sample.Message = e.Component, e.Reason, e.Message
	}
	if t.Error == store.NoErrorGroup {
		g.Error = nil // the operations have different errors
	}
}

// finish sorts the lists of the group.
func (g *errorGroup) finish() {
	types := event.OperationTypes()
	slices.SortFunc(g.Types, func(a, b event.OperationType) int { return cmp.Compare(slices.Index(types, a), slices.Index(types, b)) })
	slices.Sort(g.Systems)
	g.Systems = append([]string{}, g.Systems...)
	g.Steps = []operator.StepErrors{}
	for step, n := range g.steps {
		step.Count = n
		g.Steps = append(g.Steps, step)
	}
	slices.SortFunc(g.Steps, func(a, b operator.StepErrors) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Worker, b.Worker), cmp.Compare(a.Step, b.Step))
	})
	if n := len(g.Steps); n > maxSteps {
		g.Steps, g.MoreSteps = g.Steps[:maxSteps], n-maxSteps
	}
}

// errorQuery returns the query of the list that returns exactly the operations of a group.
func errorQuery(k *groupKey, failedSince time.Time) string {
	q := url.Values{}
	set := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	set("waiting", string(k.reason))
	set("error", k.error)
	set("worker", k.worker)
	set("hold", k.hold)
	set("limit_name", k.limit)
	switch {
	case k.reason == "":
		q.Set("state", string(event.Failed))
		q.Set("finished_since", failedSince.Format(time.RFC3339))
	case k.reason == operator.Limited && k.limit == "":
		q.Set("state", string(k.state))
	}
	return q.Encode()
}

// holdReasons returns the reasons of the holds of groups, by ID.
func (a *API) holdReasons(ctx context.Context, groups map[groupKey]*errorGroup) (map[string]string, error) {
	reasons := map[string]string{}
	for k := range groups {
		if k.hold == "" {
			continue
		}
		holds, err := a.deps.Holds.Holds(ctx)
		if err != nil {
			return nil, err
		}
		for i := range holds {
			reasons[holds[i].ID] = holds[i].Reason
		}
		return reasons, nil
	}
	return reasons, nil
}

// groupText describes a group without an error.
func groupText(k *groupKey, holds map[string]string) string {
	switch k.reason {
	case operator.NoWorker:
		return "no live worker " + k.worker
	case operator.Held:
		if reason := holds[k.hold]; reason != "" {
			return "held: " + reason
		}
		return "held"
	case operator.Limited:
		if k.limit == "" {
			return "a limit on operations in progress has no room"
		}
		return "the limit " + k.limit + " has no room"
	}
	if k.error == store.NoErrorGroup {
		return "errors that an earlier release has recorded"
	}
	return ""
}

// calm returns the operations that poll, wait for an event or execute for longer than usual.
func (a *API) calm(ctx context.Context) ([]operator.CalmGroup, error) {
	standing, err := a.deps.Census.Read(ctx)
	if err != nil {
		return nil, err
	}
	type place struct {
		reason       operator.WaitingReason
		worker, step string
	}
	now := a.deps.Now()
	byPlace := map[place]*operator.CalmGroup{}
	for i := range standing.Groups {
		g := &standing.Groups[i]
		if g.Reason != operator.Polling && g.Reason != operator.AwaitsEvent && g.Reason != operator.Slow {
			continue
		}
		k := place{g.Reason, g.Worker, g.Step}
		c := byPlace[k]
		if c == nil {
			c = &operator.CalmGroup{Reason: g.Reason, Worker: g.Worker, Step: g.Step, Since: g.Since, Query: url.Values{
				"waiting": {string(g.Reason)}, "worker": {g.Worker}, "step": {g.Step},
			}.Encode()}
			byPlace[k] = c
		}
		c.Count += g.Count
		if g.Since.Before(c.Since) {
			c.Since = g.Since
		}
		if g.Reason == operator.Slow {
			continue
		}
		p, err := a.deps.Definitions.Pinned(ctx, g.Definition)
		if err != nil {
			return nil, err
		}
		if step := p.At(g.Group.Stage, g.ReasonStep); step != nil {
			c.Long = c.Long || now.Sub(g.Since) > pollsLong(p, step)
		}
	}
	out := make([]operator.CalmGroup, 0, len(byPlace))
	for _, c := range byPlace {
		out = append(out, *c)
	}
	slices.SortFunc(out, func(a, b operator.CalmGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Worker, b.Worker), cmp.Compare(a.Step, b.Step), cmp.Compare(a.Reason, b.Reason))
	})
	return out, nil
}
