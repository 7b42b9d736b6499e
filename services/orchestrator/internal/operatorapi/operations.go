package operatorapi

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/filter"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

func (a *API) list(r *http.Request) (any, error) {
	q, err := parseQuestion(r.URL.Query())
	if err != nil {
		return nil, badRequest(err)
	}
	out, err := a.find(r.Context(), q)
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (a *API) find(ctx context.Context, q *question) (*operator.OperationList, error) {
	if err := a.locate(ctx, q); err != nil {
		return nil, err
	}
	found, err := a.deps.Operations.List(ctx, q.Filter)
	if err != nil {
		return nil, err
	}
	if q.After == nil {
		q.total, q.capped = found.Total, found.Capped
	}
	out := &operator.OperationList{TotalCountCapped: q.capped, NextCursor: q.cursor(found.Next)}
	if out.Data, err = a.views(ctx, found.Rows); err != nil {
		return nil, err
	}
	out.Count, out.TotalCount = len(out.Data), q.total
	if q.Sort.Bounded() && q.capped {
		out.SortedWithin = store.MaxCount
	}
	return out, nil
}

// locate resolves the steps and workers of a query to places in the definitions.
func (a *API) locate(ctx context.Context, q *question) error {
	if q.step == "" && q.worker == "" && q.system == "" && len(q.Waiting) == 0 && q.Expression == nil {
		return nil
	}
	all, err := a.deps.Definitions.All(ctx)
	if err != nil {
		return err
	}
	if q.step != "" || q.worker != "" || q.system != "" {
		q.At = places(all, func(_ string, s *process.Step) bool {
			return (q.step == "" || s.Name == q.step) && (q.worker == "" || s.Worker == q.worker) &&
				(q.system == "" || slices.Contains(s.CalledSystems(), q.system))
		})
	}
	q.Located = map[*filter.Comparison]store.Places{}
	for c := range q.Expression.Comparisons() {
		if wanted := standing(c); wanted != nil {
			q.Located[c] = places(all, wanted)
		}
	}
	q.Unserved = a.unserved(all)
	return nil
}

// standing returns what a comparison of a stage, step, worker or system selects; nil for one of another field.
func standing(c *filter.Comparison) func(stage string, s *process.Step) bool {
	switch c.Field.Name {
	case "stage":
		return func(stage string, _ *process.Step) bool { return stage == c.Text() }
	case "step":
		return func(_ string, s *process.Step) bool { return s.Name == c.Text() }
	case "worker":
		return func(_ string, s *process.Step) bool { return s.Worker == c.Text() }
	case "system":
		return func(_ string, s *process.Step) bool { return slices.Contains(s.CalledSystems(), c.Text()) }
	}
	return nil
}

// unserved returns the places of steps that no live worker serves.
func (a *API) unserved(all []*process.Process) store.Places {
	return places(all, func(_ string, s *process.Step) bool { return !s.BuiltIn() && !a.deps.Workers.Serves(s.Worker, s.Name) })
}

// places returns the places of the wanted steps; never nil.
func places(all []*process.Process, wanted func(stage string, s *process.Step) bool) store.Places {
	type place struct {
		kind        event.OperationType
		stage, step int
	}
	found := store.Places{}
	differ := map[place]bool{}
	for _, p := range all {
		for i := range p.Stages {
			for j := range p.Stages[i].Steps {
				if wanted(p.Stages[i].Name, &p.Stages[i].Steps[j]) {
					found = append(found, store.Place{Definition: p.Hash(), Type: p.Operation, Stage: i, Step: j})
				} else {
					differ[place{p.Operation, i, j}] = true
				}
			}
		}
	}
	for i := range found {
		found[i].Always = !differ[place{found[i].Type, found[i].Stage, found[i].Step}]
	}
	return found
}

func (a *API) get(r *http.Request) (any, error) {
	row, p, history, err := a.readHistory(r)
	if err != nil {
		return nil, err
	}
	extras, err := a.extras(r.Context(), []*store.Row{row})
	if err != nil {
		return nil, err
	}
	return a.details(row, p, extras, history), nil
}

// readHistory reads the operation of a request with its definition and its history.
func (a *API) readHistory(r *http.Request) (row *store.Row, p *process.Process, history []engine.Entry, err error) {
	id := r.PathValue("id")
	rows, err := a.deps.Operations.Read(r.Context(), []string{id})
	switch {
	case err != nil:
		return nil, nil, nil, err
	case len(rows) == 0:
		return nil, nil, nil, missing(store.ErrNotFound, "operation", id)
	}
	if p, err = a.deps.Definitions.Pinned(r.Context(), rows[0].Definition); err == nil {
		history, err = a.deps.Operations.History(r.Context(), rows[0].Operation.ID)
	}
	return rows[0], p, history, err
}

// history answers a page of the history of an operation.
func (a *API) history(r *http.Request) (any, error) {
	q := r.URL.Query()
	limit, _, err := parsePage(q)
	var after int64
	if err == nil {
		after, err = parseAfter(q)
	}
	if err != nil {
		return nil, badRequest(err)
	}
	_, p, history, err := a.readHistory(r)
	if err != nil {
		return nil, err
	}
	lines := linesAfter(history, after)
	page := operator.HistoryPage{List: operator.List[operator.HistoryLine]{TotalCount: len(history)}}
	if len(lines) > limit {
		lines = lines[:limit]
		page.NextAfter = lines[limit-1].Cursor
	}
	page.Data, page.Count = viewLines(lines, p), len(lines)
	return page, nil
}

// linesAfter returns the entries of a history after a cursor.
func linesAfter(history []engine.Entry, cursor int64) []engine.Entry {
	i, _ := slices.BinarySearchFunc(history, cursor+1, func(e engine.Entry, cursor int64) int { return cmp.Compare(e.Cursor, cursor) })
	return history[i:]
}
