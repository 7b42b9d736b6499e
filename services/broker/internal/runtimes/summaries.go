package runtimes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

const (
	// maxSummaries is the size of a page of event.AskInstances.
	maxSummaries = 1000
	// maxAnswer bounds the instances of an answer in bytes: the bus takes at most 1 MiB.
	maxAnswer = 900 << 10
)

var errLater = errors.New("instances cannot be read at present, ask again")

// Answer answers event.AskInstances. A page may hold fewer instances than asked for, see InstancesAnswer.Next.
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
	found, err := a.deps.Reader.Summaries(ctx, q.IDs, q.After, q.Limit+1)
	if err != nil {
		a.deps.Log.Warn("instances not read", "err", err)
		return nil, errLater
	}
	answer, err := summarize(found, q.Limit, maxAnswer)
	if err != nil {
		a.deps.Log.Error("instances not read", "err", err)
		return nil, errLater
	}
	return answer, nil
}

// summarize is a page of at most limit instances and most bytes; one instance is always on it.
func summarize(found []store.Summary, limit, most int) (event.InstancesAnswer, error) {
	a := event.InstancesAnswer{Instances: make([]event.InstanceSummary, 0, min(limit, len(found)))}
	size := 0
	for i := range found {
		s := summary(&found[i])
		raw, err := json.Marshal(s)
		if err != nil {
			return a, fmt.Errorf("encode instance %s: %w", s.InstanceID, err)
		}
		size += len(raw) + 1
		if i > 0 && (i == limit || size > most) {
			a.Next = a.Instances[i-1].InstanceID
			break
		}
		a.Instances = append(a.Instances, s)
	}
	return a, nil
}

func summary(s *store.Summary) event.InstanceSummary {
	i := &s.Instance
	return event.InstanceSummary{
		InstanceID: i.ID, Plan: i.Plan, GlobalAccountID: i.Context.GlobalAccountID, SubaccountID: i.Context.SubaccountID,
		Runtime: i.Runtime, RuntimeID: s.RuntimeID, State: instanceState(s.State),
	}
}

// instanceState is a state without what only operators care about: a runtime that is updated, or whose update or upgrade
// failed, is provisioned.
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
