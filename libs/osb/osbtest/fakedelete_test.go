package osbtest_test

import (
	"context"
	"encoding/json"
	"time"

	"github.com/kyma-project/keb/libs/osb"
)

func (f *fake) Deprovision(_ context.Context, req *osb.DeprovisionRequest) (osb.DeprovisionResult, error) {
	defer f.lock()()
	i := f.instances[req.InstanceID]
	if i == nil || i.state == "gone" {
		switch {
		case i == nil && f.is("D06"), i != nil && f.is("D05", "O04"):
			return osb.Deprovisioned{}, nil
		}
		return nil, osb.Gone()
	}
	if !req.AcceptsIncomplete && !f.is("D01") {
		return nil, osb.AsyncRequired()
	}
	if req.PlanID != i.plan && !f.is("D12") {
		f.logger().Warn("the plan is not the instance's", "instance_id", req.InstanceID)
	}
	switch i.state {
	case updating:
		if !f.is("D08") {
			return nil, osb.ConcurrencyError()
		}
	case deprovisioning:
		if !f.is("D04", "D14") {
			return osb.Accepted{Operation: i.newest().id}, nil
		}
	case provisioning:
		i.newest().state, i.newest().description = osb.StateFailed, "cancelled"
		if f.is("D07") {
			i.newest().state = osb.StateSucceeded
		}
	}
	if !f.is("D13") {
		i.bindings = map[string]osb.Binding{}
	}
	op := f.start(i, deprovisioning, nil)
	if f.is("D03") {
		return osb.Accepted{}, nil
	}
	return osb.Accepted{Operation: op.id}, nil
}

func (f *fake) LastOperation(_ context.Context, req *osb.LastOperationRequest) (*osb.LastOperation, error) {
	defer f.lock()()
	i := f.instances[req.InstanceID]
	if i == nil {
		if f.is("L09") {
			return nil, osb.Gone()
		}
		return nil, osb.NotFound("there is no such instance")
	}
	if i.purged && !f.is("L11") {
		return nil, osb.Gone()
	}
	op := i.newest()
	switch {
	case f.is("L05"), f.is("L06") && req.Operation == "":
		op = i.ops[0]
	case f.is("L10") && i.state == "gone":
		return nil, osb.Gone()
	case req.Operation != "":
		op = nil
		for _, one := range i.ops {
			if one.id == req.Operation {
				op = one
			}
		}
	}
	if op == nil {
		return f.foreign(i, req)
	}
	last := &osb.LastOperation{State: op.state, Description: op.description}
	no, yes := false, true
	if op.flags {
		last.InstanceUsable = &yes
		if op.kind == updating {
			last.UpdateRepeatable = &yes
		}
		if f.is("L15", "L16") {
			last.InstanceUsable = nil
		}
	}
	switch {
	case op.state == osb.StateInProgress && f.is("L02"):
		last.RetryAfter = 100 * time.Hour
	case op.state == osb.StateInProgress:
		last.RetryAfter = 1500 * time.Millisecond
		if f.is("L19") {
			last.Description = "GET http://127.0.0.1:8090/edp: 500"
		}
		if f.is("L01") {
			last.State = osb.StateSucceeded
		}
	case op.state == osb.StateFailed && f.is("L04"):
		last.InstanceUsable = &no
	case f.is("L12"):
		last.Description = op.id + time.Now().String()
	}
	return last, nil
}

func (f *fake) foreign(i *instance, req *osb.LastOperationRequest) (*osb.LastOperation, error) {
	for _, other := range f.instances {
		for _, op := range other.ops {
			if op.id == req.Operation && !f.is("L08") {
				return nil, osb.BadRequest("the operation is another instance's")
			}
		}
	}
	if f.is("L07") {
		return &osb.LastOperation{State: i.newest().state}, nil
	}
	return nil, osb.NotFound("there is no such operation")
}

func (f *fake) Bind(_ context.Context, req *osb.BindRequest) (osb.BindResult, error) {
	defer f.lock()()
	i := f.instances[req.InstanceID]
	switch {
	case i == nil && f.is("B06"):
		return nil, osb.Gone()
	case i == nil || i.state == "gone":
		return nil, osb.NotFound("there is no such instance")
	case i.state != "ready" && !f.is("B21"):
		return nil, osb.ConcurrencyError()
	case parameters(req.Parameters)["ttl"] != nil && !f.is("B23"):
		return nil, osb.BadRequest("/ttl is out of range")
	}
	if b, ok := i.bindings[req.BindingID]; ok {
		if !osb.SameJSON(b.Parameters, req.Parameters) && !f.is("B03") {
			return nil, osb.Conflict("it exists and is different")
		}
		if f.is("B02") {
			b.Credentials = json.RawMessage(`{"token":"another"}`)
		}
		return osb.Bound{Binding: b, Existed: true}, nil
	}
	b := osb.Binding{
		Credentials: json.RawMessage(`{"token":"` + req.BindingID + `"}`), Parameters: req.Parameters,
		ExpiresAt: time.Unix(1_900_000_000, 0), RenewBefore: time.Unix(1_800_000_000, 0),
	}
	if f.is("B11") {
		b.Credentials = nil
	}
	i.bindings[req.BindingID] = b
	if f.is("B32") {
		for _, other := range f.instances {
			other.bindings[req.BindingID] = b
		}
	}
	return osb.Bound{Binding: b}, nil
}

func (f *fake) GetBinding(_ context.Context, req *osb.GetBindingRequest) (*osb.Binding, error) {
	defer f.lock()()
	if i := f.instances[req.InstanceID]; i != nil {
		if b, ok := i.bindings[req.BindingID]; ok {
			return &b, nil
		}
	}
	if f.is("B12") {
		return &osb.Binding{}, nil
	}
	return nil, osb.NotFound("there is no such binding")
}

func (f *fake) Unbind(_ context.Context, req *osb.UnbindRequest) (osb.UnbindResult, error) {
	defer f.lock()()
	if i := f.instances[req.InstanceID]; i != nil {
		if _, ok := i.bindings[req.BindingID]; ok {
			if !f.is("B19") {
				delete(i.bindings, req.BindingID)
			}
			return osb.Unbound{}, nil
		}
	}
	if f.is("O05") {
		return nil, osb.NotFound("there is no such binding")
	}
	return nil, osb.Gone()
}

func (f *fake) LastBindingOperation(context.Context, *osb.LastBindingOperationRequest) (*osb.LastOperation, error) {
	if f.is("B14") {
		return &osb.LastOperation{State: osb.StateSucceeded}, nil
	}
	return nil, osb.NotFound("there is no such operation")
}
