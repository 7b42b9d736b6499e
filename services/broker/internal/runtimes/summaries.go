package runtimes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/broker/internal/catalog"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// maxSummaries is the maximum page size of event.AskInstances.
const maxSummaries = 1000

var errLater = errors.New("instances cannot be read at present, ask again")

// Answer answers event.AskInstances. A page can contain fewer instances than requested, see InstancesAnswer.Next.
func (a *API) Answer(ctx context.Context, question []byte) (any, error) {
	var q event.InstancesRequest
	if err := json.Unmarshal(question, &q); err != nil {
		return nil, errors.New("the question must be a JSON object with limit, and optionally ids and after")
	}
	switch {
	case q.Limit < 1 || q.Limit > maxSummaries:
		return nil, fmt.Errorf("limit %d: must be from 1 to %d", q.Limit, maxSummaries)
	case len(q.IDs) > maxSummaries:
		return nil, fmt.Errorf("ids: %d are given, at most %d are allowed", len(q.IDs), maxSummaries)
	}
	for i, id := range q.IDs {
		if err := checkText(fmt.Sprintf("ids[%d]", i), id); err != nil {
			return nil, err
		}
	}
	if q.After != "" {
		if err := checkText("after", q.After); err != nil {
			return nil, err
		}
	}
	found, err := a.deps.Store.Summaries(ctx, q.IDs, q.After, q.Limit+1)
	if err != nil {
		a.deps.Log.Warn("instances not read", "err", err)
		return nil, errLater
	}
	answer, err := summarize(found, q.Limit)
	if err != nil {
		a.deps.Log.Error("instances not read", "err", err)
		return nil, errLater
	}
	if q.After == "" {
		answer.Plans = catalog.PlanNames()
	}
	return answer, nil
}

// summarize returns a page of at most limit instances that fits into an answer, and at least one instance.
func summarize(found []store.Summary, limit int) (event.InstancesAnswer, error) {
	instances := make([]event.InstanceSummary, min(limit, len(found)))
	for i := range instances {
		instances[i] = summary(&found[i])
	}
	n, err := bus.Page(instances)
	if err != nil {
		return event.InstancesAnswer{}, fmt.Errorf("encode instances: %w", err)
	}
	a := event.InstancesAnswer{Instances: instances[:n], Versions: true}
	if n > 0 && n < len(found) {
		a.Next = instances[n-1].InstanceID
	}
	return a, nil
}

func summary(s *store.Summary) event.InstanceSummary {
	i := &s.Instance
	out := event.InstanceSummary{
		InstanceID: i.ID, Plan: i.Plan, GlobalAccountID: i.Context.GlobalAccountID, SubaccountID: i.Context.SubaccountID,
		Runtime: i.Runtime, RuntimeID: s.RuntimeID, State: instanceState(s.State), Failed: s.State == store.RuntimeError,
	}
	// Invalid parameters leave the versions unknown.
	if k, err := readKnown(&store.Runtime{InstanceID: i.ID, Effective: i.Effective, Details: s.Details}); err == nil {
		out.KymaVersion, out.KubernetesVersion = k.kymaVersion(), k.details.Provisioner.KubernetesVersion
	}
	return out
}

// instanceState returns a state without the details for operators: a runtime with a running or failed update or upgrade is
// provisioned.
func instanceState(s store.RuntimeState) event.InstanceState {
	switch s {
	case store.RuntimeProvisioning:
		return event.InstanceProvisioning
	case store.RuntimeFailed:
		return event.InstanceFailed
	case store.RuntimeSuspended:
		return event.InstanceSuspended
	case store.RuntimeDeprovisioning:
		return event.InstanceDeprovisioning
	case store.RuntimeIncomplete, store.RuntimeDeprovisioned:
		return event.InstanceDeleted
	}
	return event.InstanceProvisioned
}
