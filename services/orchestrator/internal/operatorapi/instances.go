package operatorapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

const (
	// maxShown limits each list of an instance, and maxFound the operations of a search.
	maxShown = 50
	maxFound = 20
	// askTimeout limits the wait for another service.
	askTimeout = 5 * time.Second
)

// Asker asks other services over the bus.
type Asker interface {
	Ask(ctx context.Context, subject string, request, answer any) error
}

// Memberships finds the operations of orchestrations by instance.
type Memberships interface {
	Memberships(ctx context.Context, instanceID string, limit int) ([]store.Membership, error)
}

// ask asks another service. The error is readable for people and contains no internals.
func (a *API) ask(ctx context.Context, who, subject string, request, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	err := a.deps.Asker.Ask(ctx, subject, request, answer)
	if err == nil {
		return nil
	}
	a.deps.Log.Debug("question not answered", "subject", subject, "err", err)
	if refusal, ok := errors.AsType[*bus.AskError](err); ok {
		return fmt.Errorf("the %s cannot answer: %s", who, refusal.Message)
	}
	return fmt.Errorf("the %s does not answer", who)
}

// instance answers everything that is known of an instance. What cannot be read is listed in the answer.
func (a *API) instance(r *http.Request) (any, error) {
	id, ctx := r.PathValue("id"), r.Context()
	if len(id) > maxName {
		return nil, missing(store.ErrNotFound, "instance", id)
	}
	out := operator.Instance{InstanceID: id, Orchestrations: []operator.Member{}, Events: []operator.Event{}}
	var known event.InstanceAnswer
	if err := a.ask(ctx, "broker", event.AskInstance, event.InstanceRequest{InstanceID: id}, &known); err != nil {
		out.Problems = append(out.Problems, err.Error())
	}
	out.Detail = known.Instance
	list, err := a.find(ctx, &question{Filter: store.Filter{InstanceID: id, Limit: maxShown}})
	if err != nil {
		return nil, err
	}
	out.Operations, out.OperationCount = list.Data, list.TotalCount
	if out.Detail == nil && len(out.Operations) == 0 && len(out.Problems) == 0 {
		return nil, missing(store.ErrNotFound, "instance", id)
	}
	members, err := a.deps.Memberships.Memberships(ctx, id, maxShown)
	if err != nil {
		return nil, err
	}
	for i := range members {
		out.Orchestrations = append(out.Orchestrations, viewMember(&members[i].Member, members[i].DryRun))
	}
	if len(out.Operations) > 0 {
		if out.Events, err = a.eventsOf(ctx, id); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// eventsOf returns the newest events of an instance.
func (a *API) eventsOf(ctx context.Context, instanceID string) ([]operator.Event, error) {
	events, err := a.deps.Orchestrations.Events(ctx, nil, []string{instanceID}, maxShown)
	if err != nil {
		return nil, err
	}
	out := make([]operator.Event, len(events))
	for i := range events {
		p, err := a.deps.Definitions.Pinned(ctx, events[i].Definition)
		if err != nil {
			return nil, err
		}
		out[i] = viewEvent(&events[i], p)
	}
	return out, nil
}

// maintenanceWindow answers the window of the shoot of an instance, which the worker hyperscaler reads from the hyperscaler.
func (a *API) maintenanceWindow(r *http.Request) (any, error) {
	id := r.PathValue("id")
	var known event.InstanceAnswer
	if err := a.ask(r.Context(), "broker", event.AskInstance, event.InstanceRequest{InstanceID: id}, &known); err != nil {
		return operator.MaintenanceWindow{Problem: err.Error()}, nil
	}
	if known.Instance == nil {
		return operator.MaintenanceWindow{Problem: "the broker does not know the instance"}, nil
	}
	out := operator.MaintenanceWindow{ShootName: known.Instance.Runtime.ShootName}
	if out.ShootName != "" {
		var answer event.MaintenanceWindowsAnswer
		request := event.MaintenanceWindowsRequest{ShootNames: []string{out.ShootName}}
		if err := a.ask(r.Context(), "worker hyperscaler", event.AskMaintenanceWindows, request, &answer); err != nil {
			out.Problem = err.Error()
		}
		for _, window := range answer.Windows {
			if window.ShootName == out.ShootName {
				out.Begin, out.End = window.Begin, window.End
			}
		}
	}
	return out, nil
}

// findAny answers the instances and operations that match a text.
func (a *API) findAny(r *http.Request) (any, error) {
	query := r.URL.Query()
	for name := range query {
		if name != "q" {
			return nil, badRequest(fmt.Errorf("unknown parameter %.50q; allowed is q", name))
		}
	}
	q, err := parseQuestion(query)
	if err == nil && q.Query == "" {
		err = fmt.Errorf("q: must have from %d to %d characters", minQuery, maxQuery)
	}
	if err != nil {
		return nil, badRequest(err)
	}
	q.Limit = maxFound
	out := operator.Found{Instances: []event.FoundInstance{}}
	var found event.FindAnswer
	request := event.FindRequest{Text: strings.ToValidUTF8(q.Query, ""), Limit: maxShown}
	if err := a.ask(r.Context(), "broker", event.AskFind, request, &found); err != nil {
		out.Problems = append(out.Problems, err.Error())
	}
	out.Instances = append(out.Instances, found.Instances...)
	out.MoreInstances = found.More
	list, err := a.find(r.Context(), q)
	if err != nil {
		return nil, err
	}
	out.Operations, out.OperationCount, out.OperationCountCapped = list.Data, list.TotalCount, list.TotalCountCapped
	return out, nil
}
