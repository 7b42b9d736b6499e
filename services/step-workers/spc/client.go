package spc

import (
	"context"
	"net/http"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/extclient"
)

// The states of an instance in an event (docs/contracts/spc.md).
const (
	stateUnderMaintenance = "1"
	stateFinished         = "2"
)

// The types of an event.
const (
	typeKubernetes = "0"
	typeKyma       = "1"
)

// maintenance is the body of a call: the event of an orchestration and its instances. Empty members are omitted.
type maintenance struct {
	OrchestrationID string `json:"orchestrationId"`
	// EventType is set only for a new event.
	EventType string   `json:"eventType,omitempty"`
	Tenants   []tenant `json:"tenants,omitempty"`
}

// tenant is an instance.
type tenant struct {
	InstanceID    string `json:"instanceId"`
	StartDateTime string `json:"startDateTime,omitempty"`
	EndDateTime   string `json:"endDateTime,omitempty"`
	// EventState is empty for a new event.
	EventState string `json:"eventState,omitempty"`
}

// localTime is the format of a time: in the server's zone, without the name of the zone.
const localTime = "2006-01-02 15:04:05"

// scheduled returns the event of an orchestration. SPC expects the times of a maintenance window in Go's default format.
func scheduled(q event.NotifyRequest) maintenance {
	m := maintenance{OrchestrationID: q.OrchestrationID, EventType: typeKubernetes, Tenants: make([]tenant, len(q.Instances))}
	if q.Type == event.UpgradeKyma {
		m.EventType = typeKyma
	}
	for i, instance := range q.Instances {
		m.Tenants[i] = tenant{InstanceID: instance.InstanceID, StartDateTime: instance.Begin.Local().Format(localTime)}
		if instance.End != nil {
			m.Tenants[i].StartDateTime, m.Tenants[i].EndDateTime = instance.Begin.UTC().String(), instance.End.UTC().String()
		}
	}
	return m
}

type client struct{ http *extclient.Client }

func newClient(cfg Config, deps extclient.Deps) (*client, error) {
	c, err := extclient.New(extclient.Config{System: component, BaseURL: cfg.URL, Timeout: cfg.Timeout}, nil, deps)
	return &client{http: c}, err
}

const (
	createRoute = "/createMaintenanceEvent"
	updateRoute = "/updateMaintenanceEvent"
	cancelRoute = "/cancelMaintenanceEvent"
)

func (c *client) send(ctx context.Context, method, route string, m maintenance) error {
	return c.http.Do(ctx, extclient.Request{
		Method: method, Route: route, Body: m, Accept: []int{http.StatusOK, http.StatusCreated, http.StatusNoContent},
	}, nil)
}

// update sets the state of one instance in the event of its orchestration.
func (c *client) update(ctx context.Context, orchestrationID string, t tenant) error {
	return c.send(ctx, http.MethodPatch, updateRoute, maintenance{OrchestrationID: orchestrationID, Tenants: []tenant{t}})
}
