package osb

import (
	"context"
	"net/http"
)

func bind(ctx context.Context, x *exchange) (answer, error) {
	m, err := x.readBody()
	if err != nil {
		return answer{}, err
	}
	req := &BindRequest{
		InstanceID: x.instanceID, BindingID: x.bindingID, AcceptsIncomplete: x.acceptsIncomplete(),
		AppGUID: m.text("app_guid"), BindResource: m.object("bind_resource"),
		Context: m.object("context"), Parameters: m.object("parameters"),
		PredecessorBindingID: m.text("predecessor_binding_id"), Body: m.raw,
	}
	read := m.required
	if req.PredecessorBindingID != "" {
		// A rotation may omit everything else: the values are those of the predecessor.
		read = m.text
	}
	req.ServiceID, req.PlanID = read("service_id"), read("plan_id")
	if req.BindResource != nil {
		if inner, e := decodeMembers(req.BindResource); e == nil {
			if app := inner.text("app_guid"); app != "" {
				req.AppGUID = app
			}
			if inner.err != nil {
				m.fail("bind_resource.%s", inner.err.Description)
			}
		}
	}
	if m.err != nil {
		return answer{}, m.err
	}
	if e := checkID("predecessor_binding_id", req.PredecessorBindingID); e != nil {
		return answer{}, e
	}
	if err := x.bindable(ctx, req); err != nil {
		return answer{}, err
	}
	x.comparePlatforms(ctx, req.Context)
	req.Call = x.call
	result, err := x.h.broker.Bind(ctx, req)
	if err != nil {
		return answer{}, err
	}
	switch r := result.(type) {
	case Accepted:
		return ok(http.StatusAccepted, OperationAnswer{Operation: r.Operation})
	case Bound:
		status := http.StatusCreated
		if r.Existed {
			status = http.StatusOK
		}
		return ok(status, r.Binding.answer(nil))
	}
	return unexpected(result)
}

// bindable validates the given ids of a bind request against the catalog.
func (x *exchange) bindable(ctx context.Context, req *BindRequest) error {
	if req.ServiceID == "" {
		if req.PlanID != "" {
			return BadRequest("plan_id needs a service_id beside it")
		}
		return nil
	}
	var err error
	if req.Service, req.Plan, err = x.known(ctx, req.ServiceID, req.PlanID); err != nil || req.Plan == nil {
		return err
	}
	if !req.Service.IsBindable(req.Plan) {
		return BadRequest("plan %q is not bindable", req.Plan.Name)
	}
	if req.PredecessorBindingID != "" && (req.Plan.BindingRotatable == nil || !*req.Plan.BindingRotatable) {
		return BadRequest("bindings of plan %q cannot be rotated: leave out predecessor_binding_id", req.Plan.Name)
	}
	return nil
}

func getBinding(ctx context.Context, x *exchange) (answer, error) {
	hints, err := x.hints(ctx)
	if err != nil {
		return answer{}, err
	}
	binding, err := x.h.broker.GetBinding(ctx, &GetBindingRequest{
		Call: x.call, InstanceID: x.instanceID, BindingID: x.bindingID, Hints: hints,
	})
	if err != nil {
		return answer{}, err
	}
	if binding == nil {
		return unexpected(binding)
	}
	return ok(http.StatusOK, binding.answer(binding.Parameters))
}

func unbind(ctx context.Context, x *exchange) (answer, error) {
	service, plan, err := x.idsInQuery(ctx)
	if err != nil {
		return answer{}, err
	}
	result, err := x.h.broker.Unbind(ctx, &UnbindRequest{
		Call: x.call, InstanceID: x.instanceID, BindingID: x.bindingID, AcceptsIncomplete: x.acceptsIncomplete(),
		ServiceID: service, PlanID: plan,
	})
	if err != nil {
		return answer{}, err
	}
	switch r := result.(type) {
	case Accepted:
		return ok(http.StatusAccepted, OperationAnswer{Operation: r.Operation})
	case Unbound:
		return ok(http.StatusOK, struct{}{})
	}
	return unexpected(result)
}

func lastBindingOperation(ctx context.Context, x *exchange) (answer, error) {
	hints, err := x.hints(ctx)
	if err != nil {
		return answer{}, err
	}
	operation := x.r.URL.Query().Get("operation")
	if err := checkOperation(operation); err != nil {
		return answer{}, err
	}
	last, err := x.h.broker.LastBindingOperation(ctx, &LastBindingOperationRequest{
		Call: x.call, InstanceID: x.instanceID, BindingID: x.bindingID, Operation: operation, Hints: hints,
	})
	return lastOperationAnswer(last, err)
}
