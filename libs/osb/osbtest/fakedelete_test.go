package osbtest_test

import (
	"context"
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
		if f.is("D08") {
			return nil, osb.ConcurrencyError()
		}
		i.newest().state, i.newest().description = osb.StateFailed, "cancelled"
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
		i.bindings = map[string]*bound{}
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
