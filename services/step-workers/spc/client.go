package spc

import (
	"context"
	"net/http"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
)

// States of an instance in an event (facts/keb.md 5.11).
const (
	stateUnderMaintenance = "1"
	stateFinished         = "2"
)

// Types of an event.
const (
	typeKubernetes = "0"
	typeKyma       = "1"
)

// maintenance is the body of a call: the event of an orchestration, and the instances that the call is about.
type maintenance struct {
	OrchestrationID string `json:"orchestrationId"`
	// EventType is only for a new event.
	EventType string   `json:"eventType,omitempty"`
	Tenants   []tenant `json:"tenants"`
}

// tenant is an instance. Its times are those of its maintenance window, in RFC 3339; empty when it has none.
type tenant struct {
	InstanceID    string `json:"instanceId"`
	StartDateTime string `json:"startDateTime"`
	EndDateTime   string `json:"endDateTime"`
	EventState    string `json:"eventState"`
}

// newMaintenance tells of op's instance alone: other operations of the orchestration tell of theirs.
func newMaintenance(op worker.Operation, state string) maintenance {
	kind := typeKubernetes
	if op.Type == event.UpgradeKyma {
		kind = typeKyma
	}
	return maintenance{
		OrchestrationID: op.Upgrade.OrchestrationID, EventType: kind,
		Tenants: []tenant{{
			InstanceID: op.InstanceID, EventState: state,
			StartDateTime: text(op.Upgrade.MaintenanceWindowBegin), EndDateTime: text(op.Upgrade.MaintenanceWindowEnd),
		}},
	}
}

func text(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

type client struct{ http *extclient.Client }

func newClient(cfg Config, deps extclient.Deps) (*client, error) {
	c, err := extclient.New(extclient.Config{System: component, BaseURL: cfg.URL, Timeout: cfg.Timeout}, nil, deps)
	if err != nil {
		return nil, err
	}
	return &client{http: c}, nil
}

const (
	createRoute = "/createMaintenanceEvent"
	updateRoute = "/updateMaintenanceEvent"
)

func (c *client) create(ctx context.Context, m maintenance) error {
	return c.http.Do(ctx, extclient.Request{Method: http.MethodPost, Route: createRoute, Body: m}, nil)
}

// update sets the instances of m in an existing event, and reports whether there is one. That 404 means that there is none
// is an assumption.
func (c *client) update(ctx context.Context, m maintenance) (known bool, err error) {
	m.EventType = ""
	err = c.http.Do(ctx, extclient.Request{Method: http.MethodPatch, Route: updateRoute, Body: m}, nil)
	if extclient.IsStatus(err, http.StatusNotFound) {
		return false, nil
	}
	return err == nil, err
}
