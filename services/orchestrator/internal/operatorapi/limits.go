package operatorapi

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/services/orchestrator/internal/limit"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// Limits stores the limits.
type Limits interface {
	Limits(ctx context.Context) (limit.Document, error)
	CommandUse(ctx context.Context) (inUse, waiting map[string]int, err error)
	LimitUse(ctx context.Context) (running, waiting map[limit.Queue]int, err error)
	ApplyLimits(ctx context.Context, document, by string, at time.Time) (version int64, err error)
}

// maxLimitsBody is the maximum size of a request with a document, whose characters may be escaped.
const maxLimitsBody = 2*limit.MaxDocument + maxBody

func (a *API) getLimits(r *http.Request) (any, error) {
	document, set, err := a.storedLimits(r.Context())
	if err != nil {
		return nil, err
	}
	inUse, waiting, err := a.deps.Limits.CommandUse(r.Context())
	if err != nil {
		return nil, err
	}
	running, pending, err := a.operationUse(r.Context(), set)
	if err != nil {
		return nil, err
	}
	out := operator.Limits{
		Version: document.Version, Document: document.Text, AppliedBy: document.AppliedBy, AppliedAt: optional(document.AppliedAt),
		Limits: make([]operator.Limit, len(set.Limits)), Weights: set.Weights,
	}
	for i := range set.Limits {
		l := &set.Limits[i]
		scope := map[string][]string{}
		for member, values := range l.Scope {
			scope[string(member)] = values
		}
		out.Limits[i] = operator.Limit{
			Name: l.Name, Scope: scope, Each: string(l.Each), Commands: l.Commands, Rate: l.Rate.String(), Operations: l.Operations,
		}
		if l.BoundsCommands() {
			out.Limits[i].Use = useOf(l.Name, inUse, waiting)
		}
		if l.Operations > 0 {
			out.Limits[i].OperationUse = useOf(l.Name, running, pending)
		}
	}
	return out, nil
}

// maxUse is the number of values of a limit with each whose use is listed.
const maxUse = 20

// operationUse returns the numbers of operations in progress and of those that wait for limits, by the keys of the limits.
func (a *API) operationUse(ctx context.Context, set *limit.Set) (running, waiting map[string]int, err error) {
	if !set.BoundsOperations() {
		return nil, nil, nil
	}
	inProgress, pending, err := a.deps.Limits.LimitUse(ctx)
	return byLimit(set, inProgress), byLimit(set, pending), err
}

func byLimit(set *limit.Set, counts map[limit.Queue]int) map[string]int {
	sums := map[string]int{}
	for q, n := range counts {
		for _, key := range q.Keys(set) {
			sums[key.String()] += n
		}
	}
	return sums
}

// useOf returns the use of a limit, the values with the longest queues first.
func useOf(name string, inUse, waiting map[string]int) []operator.LimitUse {
	keys := map[string]bool{}
	for _, counts := range []map[string]int{inUse, waiting} {
		for key := range counts {
			keys[key] = keys[key] || limit.NameOf(key) == name
		}
	}
	use := []operator.LimitUse{}
	for key, ofLimit := range keys {
		if ofLimit {
			use = append(use, operator.LimitUse{Value: strings.TrimPrefix(key[len(name):], "/"), InUse: inUse[key], Waiting: waiting[key]})
		}
	}
	slices.SortFunc(use, func(a, b operator.LimitUse) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.InUse, a.InUse), cmp.Compare(a.Value, b.Value))
	})
	return use[:min(len(use), maxUse)]
}

func (a *API) storedLimits(ctx context.Context) (document limit.Document, set *limit.Set, err error) {
	if document, err = a.deps.Limits.Limits(ctx); err == nil {
		set, err = limit.Parse([]byte(document.Text))
	}
	if err != nil {
		return limit.Document{}, nil, fmt.Errorf("read limits: %w", err)
	}
	return document, set, nil
}

func (a *API) applyLimits(r *http.Request) (any, error) {
	var body operator.LimitsRequest
	if err := decode(r, maxLimitsBody, `"document", "dryRun" and "by"`, &body); err != nil {
		return nil, err
	}
	set, err := limit.Parse([]byte(body.Document))
	if err != nil {
		return nil, badRequest(fmt.Errorf("document: %w", err))
	}
	stored, before, err := a.storedLimits(r.Context())
	if err != nil {
		return nil, err
	}
	answer := operator.LimitsAnswer{Version: stored.Version, Changes: limit.Changes(before, set)}
	note(r.Context(), func(a *store.Action) { a.Detail = limitsDetail(&body, answer.Changes) })
	if !body.DryRun && body.Document != stored.Text {
		author := by(r.Context(), body.By)
		answer.Version, err = a.deps.Limits.ApplyLimits(r.Context(), body.Document, author, a.deps.Now().UTC())
		if err != nil {
			return nil, err
		}
		if err := a.deps.LimitsChanged(r.Context()); err != nil {
			a.deps.Log.Warn("limits not read; the next read applies the change", "err", err)
		}
	}
	return answer, nil
}

// maxDetail limits the detail of an audit record.
const maxDetail = 4000

func limitsDetail(body *operator.LimitsRequest, changes []string) string {
	text := strings.Join(changes, "; ")
	if body.DryRun {
		text = "preview: " + text
	}
	return text[:min(len(text), maxDetail)]
}
