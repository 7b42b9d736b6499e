package osb

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	instancePath = "/v2/service_instances/{instance_id}"
	bindingPath  = instancePath + "/service_bindings/{binding_id}"
)

func routes() map[string]map[string]route {
	return map[string]map[string]route{
		"/v2/catalog": {"GET": {answer: getCatalog}},
		instancePath: {
			"PUT": {answer: provision, changes: true}, "PATCH": {answer: update, changes: true},
			"DELETE": {answer: deprovision, changes: true}, "GET": {answer: getInstance},
		},
		instancePath + "/last_operation": {"GET": {answer: lastOperation}},
		bindingPath: {
			"PUT": {answer: bind, changes: true}, "DELETE": {answer: unbind, changes: true}, "GET": {answer: getBinding},
		},
		bindingPath + "/last_operation": {"GET": {answer: lastBindingOperation}},
	}
}

func sortedMethods(methods map[string]route) []string { return slices.Sorted(maps.Keys(methods)) }

func notFound(context.Context, *exchange) (answer, error) {
	return answer{}, NotFound("there is nothing at this path: the routes of the API are under /v2")
}

func notAllowed(allow string) func(context.Context, *exchange) (answer, error) {
	return func(context.Context, *exchange) (answer, error) {
		return answer{}, &Error{
			Status: http.StatusMethodNotAllowed, Description: "this path allows only " + allow, allow: allow,
		}
	}
}

func ok(status int, body any) (answer, error) { return answer{status: status, body: body}, nil }

// unexpected returns the error for a result that the interface allows and the package does not support, such as nil.
func unexpected(result any) (answer, error) {
	return answer{}, fmt.Errorf("the broker returned neither a known result nor an error, but %T", result)
}

func provision(ctx context.Context, x *exchange) (answer, error) {
	m, err := x.readBody()
	if err != nil {
		return answer{}, err
	}
	req := &ProvisionRequest{
		InstanceID: x.instanceID, AcceptsIncomplete: x.acceptsIncomplete(),
		ServiceID: m.required("service_id"), PlanID: m.required("plan_id"),
		OrganizationGUID: m.text("organization_guid"), SpaceGUID: m.text("space_guid"),
		Context: m.object("context"), Parameters: m.object("parameters"), MaintenanceInfo: m.maintenanceInfo(), Body: m.raw,
	}
	if x.h.requireOrgSpace {
		m.required("organization_guid")
		m.required("space_guid")
	}
	if m.err != nil {
		return answer{}, m.err
	}
	if req.Service, req.Plan, err = x.offered(ctx, req.ServiceID, req.PlanID); err != nil {
		return answer{}, err
	}
	if e := req.Plan.CheckMaintenanceInfo(req.MaintenanceInfo); e != nil {
		return answer{}, e
	}
	x.comparePlatforms(ctx, req.Context)
	req.Call = x.call
	result, err := x.h.broker.Provision(ctx, req)
	if err != nil {
		return answer{}, err
	}
	switch r := result.(type) {
	case Accepted:
		return ok(http.StatusAccepted, InstanceAnswer{DashboardURL: r.DashboardURL, Operation: r.Operation, Metadata: r.Metadata})
	case Created:
		return ok(http.StatusCreated, InstanceAnswer{DashboardURL: r.DashboardURL, Metadata: r.Metadata})
	case Exists:
		return ok(http.StatusOK, InstanceAnswer{DashboardURL: r.DashboardURL, Metadata: r.Metadata})
	}
	return unexpected(result)
}

func update(ctx context.Context, x *exchange) (answer, error) {
	m, err := x.readBody()
	if err != nil {
		return answer{}, err
	}
	req := &UpdateRequest{
		InstanceID: x.instanceID, AcceptsIncomplete: x.acceptsIncomplete(),
		ServiceID: m.required("service_id"), PlanID: m.text("plan_id"),
		Context: m.object("context"), Parameters: m.object("parameters"), MaintenanceInfo: m.maintenanceInfo(),
		PreviousValues: m.object("previous_values"), Body: m.raw,
	}
	if m.err != nil {
		return answer{}, m.err
	}
	if req.Service, req.Plan, err = x.known(ctx, req.ServiceID, req.PlanID); err != nil {
		return answer{}, err
	}
	if req.Plan != nil {
		if e := req.Plan.CheckMaintenanceInfo(req.MaintenanceInfo); e != nil {
			return answer{}, e
		}
	}
	x.comparePlatforms(ctx, req.Context)
	req.Call = x.call
	result, err := x.h.broker.Update(ctx, req)
	if err != nil {
		return answer{}, err
	}
	switch r := result.(type) {
	case Accepted:
		return ok(http.StatusAccepted, InstanceAnswer{DashboardURL: r.DashboardURL, Operation: r.Operation, Metadata: r.Metadata})
	case Updated:
		return ok(http.StatusOK, InstanceAnswer{DashboardURL: r.DashboardURL, Metadata: r.Metadata})
	}
	return unexpected(result)
}

func deprovision(ctx context.Context, x *exchange) (answer, error) {
	service, plan, err := x.idsInQuery(ctx)
	if err != nil {
		return answer{}, err
	}
	result, err := x.h.broker.Deprovision(ctx, &DeprovisionRequest{
		Call: x.call, InstanceID: x.instanceID, AcceptsIncomplete: x.acceptsIncomplete(), ServiceID: service, PlanID: plan,
	})
	if err != nil {
		return answer{}, err
	}
	switch r := result.(type) {
	case Accepted:
		return ok(http.StatusAccepted, OperationAnswer{Operation: r.Operation})
	case Deprovisioned:
		return ok(http.StatusOK, struct{}{})
	}
	return unexpected(result)
}

func getInstance(ctx context.Context, x *exchange) (answer, error) {
	hints, err := x.hints(ctx)
	if err != nil {
		return answer{}, err
	}
	instance, err := x.h.broker.GetInstance(ctx, &GetInstanceRequest{Call: x.call, InstanceID: x.instanceID, Hints: hints})
	if err != nil {
		return answer{}, err
	}
	if instance == nil {
		return unexpected(instance)
	}
	return ok(http.StatusOK, instance)
}

func lastOperation(ctx context.Context, x *exchange) (answer, error) {
	hints, err := x.hints(ctx)
	if err != nil {
		return answer{}, err
	}
	operation := x.r.URL.Query().Get("operation")
	if e := checkOperation(operation); e != nil {
		return answer{}, e
	}
	last, err := x.h.broker.LastOperation(ctx, &LastOperationRequest{
		Call: x.call, InstanceID: x.instanceID, Operation: operation, Hints: hints,
	})
	return lastOperationAnswer(last, err)
}

func lastOperationAnswer(last *LastOperation, err error) (answer, error) {
	if err != nil {
		return answer{}, err
	}
	if last == nil {
		return unexpected(last)
	}
	a := answer{status: http.StatusOK, body: last}
	switch last.State {
	case StateInProgress:
		if last.RetryAfter > 0 {
			a.header = map[string]string{"Retry-After": seconds(last.RetryAfter)}
		}
	case StateSucceeded, StateFailed:
	default:
		return answer{}, fmt.Errorf("the broker returned a last operation in the unknown state %q", last.State)
	}
	return a, nil
}

// comparePlatforms logs a warning if the platform in the originating identity differs from that in the context.
func (x *exchange) comparePlatforms(ctx context.Context, platformContext []byte) {
	if x.call.OriginatingIdentity == nil || platformContext == nil {
		return
	}
	m, e := decodeMembers(platformContext)
	if e != nil {
		return
	}
	if platform := m.text("platform"); platform != "" && platform != x.call.OriginatingIdentity.Platform {
		x.h.log.WarnContext(ctx, "originating platform differs from the platform of the context",
			"request_id", x.call.ID, "instance_id", x.instanceID,
			"originating_platform", x.call.OriginatingIdentity.Platform, "context_platform", platform)
	}
}

func (x *exchange) acceptsIncomplete() bool {
	return x.r.URL.Query().Get("accepts_incomplete") == "true"
}

// offered returns the offering in the catalog, and the plan unless its id is empty.
func (x *exchange) offered(ctx context.Context, serviceID, planID string) (*Service, *Plan, error) {
	return x.named(ctx, serviceID, planID, (*Service).Plan)
}

// known is offered for a request about an existing instance, whose plan may be withdrawn.
func (x *exchange) known(ctx context.Context, serviceID, planID string) (*Service, *Plan, error) {
	return x.named(ctx, serviceID, planID, (*Service).known)
}

func (x *exchange) named(ctx context.Context, serviceID, planID string, find func(s *Service, id string) *Plan) (*Service, *Plan, error) {
	c, err := x.loadCatalog(ctx)
	if err != nil {
		return nil, nil, err
	}
	service := c.Service(serviceID)
	if service == nil {
		return nil, nil, BadRequest("service_id is not in the catalog")
	}
	if planID == "" {
		return service, nil, nil
	}
	plan := find(service, planID)
	if plan == nil {
		return nil, nil, BadRequest("plan_id is not a plan of service %q in the catalog", service.Name)
	}
	return service, plan, nil
}

// idsInQuery reads the required ids of a deletion.
func (x *exchange) idsInQuery(ctx context.Context) (service, plan string, err error) {
	query := x.r.URL.Query()
	service, plan = query.Get("service_id"), query.Get("plan_id")
	if service == "" {
		return "", "", BadRequest("the query parameter service_id is missing")
	}
	if plan == "" {
		return "", "", BadRequest("the query parameter plan_id is missing")
	}
	_, _, err = x.known(ctx, service, plan)
	return service, plan, err
}

// hints reads the optional ids of a read request.
func (x *exchange) hints(ctx context.Context) (Hints, error) {
	query := x.r.URL.Query()
	h := Hints{ServiceID: query.Get("service_id"), PlanID: query.Get("plan_id")}
	if h.ServiceID != "" {
		_, _, err := x.known(ctx, h.ServiceID, h.PlanID)
		return h, err
	}
	if h.PlanID == "" {
		return h, nil
	}
	c, err := x.loadCatalog(ctx)
	if err != nil {
		return h, err
	}
	for i := range c.Services {
		if c.Services[i].known(h.PlanID) != nil {
			return h, nil
		}
	}
	return h, BadRequest("plan_id is not in the catalog")
}

// maxOperation is the maximum length of an operation value in the specification, in characters.
const maxOperation = 10_000

// checkOperation answers an impossible value like an unknown one.
func checkOperation(operation string) error {
	if len(operation) > maxOperation || strings.ContainsFunc(operation, unicode.IsControl) || !utf8.ValidString(operation) {
		return NotFound("there is no such operation")
	}
	return nil
}
