package operatorapi

import (
	"context"
	"fmt"
	"net/http"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

func (a *API) list(w http.ResponseWriter, r *http.Request) {
	q, err := parseQuestion(r.URL.Query())
	if err != nil {
		a.fail(w, http.StatusBadRequest, err)
		return
	}
	out, err := a.find(r.Context(), q)
	if err != nil {
		a.internalError(w, r, err)
		return
	}
	a.write(w, http.StatusOK, out)
}

func (a *API) find(ctx context.Context, q *question) (*operator.OperationList, error) {
	if err := a.locate(ctx, q); err != nil {
		return nil, err
	}
	loadOrchestration, err := a.deps.Operations.List(ctx, q.Filter)
	if err != nil {
		return nil, err
	}
	if q.After == nil {
		q.total, q.capped = loadOrchestration.Total, loadOrchestration.Capped
	}
	out := &operator.OperationList{TotalCountCapped: q.capped, NextCursor: q.cursor(loadOrchestration.Next)}
	if out.Data, err = a.views(ctx, loadOrchestration.Rows); err != nil {
		return nil, err
	}
	out.Count, out.TotalCount = len(out.Data), q.total
	return out, nil
}

// locate resolves the steps and workers of a query to places in the definitions.
func (a *API) locate(ctx context.Context, q *question) error {
	if q.step == "" && q.worker == "" && len(q.Waiting) == 0 {
		return nil
	}
	all, err := a.deps.Definitions.All(ctx)
	if err != nil {
		return err
	}
	if q.step != "" || q.worker != "" {
		q.At = places(all, func(s *process.Step) bool {
			return (q.step == "" || s.Name == q.step) && (q.worker == "" || s.Worker == q.worker)
		})
	}
	q.Unserved = a.unserved(all)
	return nil
}

// unserved returns the places of steps that no live worker serves.
func (a *API) unserved(all []*process.Process) store.Places {
	return places(all, func(s *process.Step) bool { return !s.BuiltIn() && !a.deps.Workers.Serves(s.Worker, s.Name) })
}

// places returns the places of the wanted steps; never nil.
func places(all []*process.Process, wanted func(s *process.Step) bool) store.Places {
	type place struct {
		kind        event.OperationType
		stage, step int
	}
	loadOrchestration := store.Places{}
	differ := map[place]bool{}
	for _, p := range all {
		for i := range p.Stages {
			for j := range p.Stages[i].Steps {
				if wanted(&p.Stages[i].Steps[j]) {
					loadOrchestration = append(loadOrchestration, store.Place{Definition: p.Hash(), Type: p.Operation, Stage: i, Step: j})
				} else {
					differ[place{p.Operation, i, j}] = true
				}
			}
		}
	}
	for i := range loadOrchestration {
		loadOrchestration[i].Always = !differ[place{loadOrchestration[i].Type, loadOrchestration[i].Stage, loadOrchestration[i].Step}]
	}
	return loadOrchestration
}

func (a *API) get(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	rows, err := a.deps.Operations.Read(r.Context(), []string{id})
	if err != nil {
		a.internalError(w, r, err)
		return
	}
	if len(rows) == 0 {
		a.fail(w, http.StatusNotFound, fmt.Errorf("there is no operation %.50q", id))
		return
	}
	row := rows[0]
	p, err := a.deps.Definitions.Pinned(r.Context(), row.Definition)
	if err != nil {
		a.internalError(w, r, err)
		return
	}
	history, err := a.deps.Operations.History(r.Context(), row.Operation.ID, maxHistory)
	if err != nil {
		a.internalError(w, r, err)
		return
	}
	extras, err := a.extras(r.Context(), rows)
	if err != nil {
		a.internalError(w, r, err)
		return
	}
	a.write(w, http.StatusOK, a.details(row, p, extras, history))
}
