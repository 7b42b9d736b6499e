package operatorapi

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// failedPeriod is the time before now in which failed operations are counted by step.
const failedPeriod = 24 * time.Hour

// FailedSteps counts failed operations by step.
type FailedSteps interface {
	FailedAt(ctx context.Context, since time.Time) ([]store.FailedAt, error)
}

// steps answers the operations at each step.
func (a *API) steps(r *http.Request) (any, error) {
	types, err := oneOf(r.URL.Query(), "type", event.OperationTypes())
	if err != nil {
		return nil, badRequest(err)
	}
	out, err := a.stepFigures(r.Context(), types)
	if err != nil {
		return nil, err
	}
	return operator.All(out), nil
}

func (a *API) stepFigures(ctx context.Context, types []event.OperationType) ([]*operator.StepFigures, error) {
	type place struct {
		kind        event.OperationType
		stage, step string
	}
	byPlace := map[place]*operator.StepFigures{}
	figures := func(kind event.OperationType, stage, step string) *operator.StepFigures {
		at := place{kind, stage, step}
		if byPlace[at] == nil {
			byPlace[at] = &operator.StepFigures{Type: kind, Stage: stage, Step: step, Waiting: map[operator.WaitingReason]int{}}
		}
		return byPlace[at]
	}
	wanted := func(kind event.OperationType) bool { return len(types) == 0 || slices.Contains(types, kind) }
	standing, err := a.deps.Census.Read(ctx)
	if err != nil {
		return nil, err
	}
	for i := range standing.Groups {
		if g := &standing.Groups[i]; g.Step != "" && wanted(g.Type) {
			f := figures(g.Type, g.Stage, g.Step)
			f.Operations += g.Count
			f.Waiting[g.Reason] += g.Count
		}
	}
	failed, err := a.failed.Get(ctx)
	if err != nil {
		return nil, err
	}
	for _, f := range failed {
		if !wanted(f.Type) {
			continue
		}
		p, err := a.deps.Definitions.Pinned(ctx, f.Definition)
		if err != nil {
			return nil, err
		}
		if step := p.At(f.Stage, f.Step); step != nil {
			figures(f.Type, p.Stages[f.Stage].Name, step.Name).FailedLastDay += f.Count
		}
	}
	out := make([]*operator.StepFigures, 0, len(byPlace))
	for _, f := range byPlace {
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b *operator.StepFigures) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.Step, b.Step))
	})
	return out, nil
}
