package osbtest_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"time"

	"github.com/kyma-project/keb/libs/osb"
)

const (
	// plansLater is a plan with asynchronous bindings, planApp one that can be bound to applications only.
	plansLater = "pl"
	planApp    = "pp"
	// bindingLimit is the maximum number of bindings of an instance.
	bindingLimit = 3
)

// bound is a binding. Asynchronous bindings are created and removed at the next request, unless they are held.
type bound struct {
	osb.Binding
	predecessor       string
	state             string // making, made, removing, gone
	creation, removal string
	expired           bool
}

const (
	making   = "making"
	made     = "made"
	removing = "removing"
	gone     = "gone"
)

func (f *fake) settle(i *instance) {
	for _, b := range i.bindings {
		switch b.state {
		case making:
			b.state = made
		case removing:
			b.state = gone
		}
	}
}

func (i *instance) usable(binding string) *bound {
	if b := i.bindings[binding]; b != nil && b.state == made && !b.expired {
		return b
	}
	return nil
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
	case i.plan == plansLater && !req.AcceptsIncomplete && !f.is("B07"):
		return nil, osb.AsyncRequired()
	case i.plan == planApp && req.AppGUID == "" && !f.is("B24"):
		return nil, &osb.Error{Status: 422, Code: osb.CodeRequiresApp, Description: "send bind_resource.app_guid"}
	}
	if b, ok := i.bindings[req.BindingID]; ok && b.state != gone {
		return f.boundAgain(b, req)
	}
	params, err := f.rotated(i, req)
	if err != nil {
		return nil, err
	}
	if n := len(i.bindings) - i.removed(); n >= bindingLimit && !f.is("B22") {
		return nil, osb.Unprocessable("there are %d bindings already", n)
	}
	return f.bindAnew(i, req, params), nil
}

func (i *instance) removed() (n int) {
	for _, b := range i.bindings {
		if b.state == gone {
			n++
		}
	}
	return n
}

func (f *fake) boundAgain(b *bound, req *osb.BindRequest) (osb.BindResult, error) {
	if !osb.SameJSON(b.Parameters, req.Parameters) && !f.is("B03") {
		return nil, osb.Conflict("it exists and is different")
	}
	if b.state == making {
		if f.is("B09") {
			b.creation = rand.Text()
		}
		return osb.Accepted{Operation: b.creation}, nil
	}
	again := b.Binding
	if f.is("B02") {
		again.Credentials = json.RawMessage(`{"token":"another"}`)
	}
	return osb.Bound{Binding: again, Existed: true}, nil
}

// rotated returns the parameters of a new binding: those of its predecessor, if it has one.
func (f *fake) rotated(i *instance, req *osb.BindRequest) (json.RawMessage, error) {
	if req.PredecessorBindingID == "" {
		return req.Parameters, nil
	}
	if req.ServiceID == "" && f.is("B28") {
		return nil, osb.BadRequest("service_id is missing")
	}
	if p := f.catalog.Services[0].Plan(i.plan); p.BindingRotatable == nil || !*p.BindingRotatable {
		return nil, osb.BadRequest("the plan has no rotation")
	}
	predecessor := i.usable(req.PredecessorBindingID)
	switch {
	case predecessor == nil && f.is("B30"), f.is("B27"):
		return req.Parameters, nil
	case predecessor == nil:
		return nil, osb.BadRequest("there is no such predecessor")
	}
	return predecessor.Parameters, nil
}

func (f *fake) bindAnew(i *instance, req *osb.BindRequest, params json.RawMessage) osb.BindResult {
	b := &bound{predecessor: req.PredecessorBindingID, state: made, creation: rand.Text(), Binding: osb.Binding{
		Credentials: json.RawMessage(`{"token":"` + req.BindingID + `"}`), Parameters: params,
		ExpiresAt: time.Unix(1_900_000_000, 0), RenewBefore: time.Unix(1_800_000_000, 0),
		Endpoints: []osb.Endpoint{{Host: "example.org", Ports: []string{"443"}, Protocol: "tcp"}},
	}}
	if f.is("B01", "B11") {
		b.Credentials = nil
	}
	i.bindings[req.BindingID] = b
	if f.is("B32") {
		for _, other := range f.instances {
			other.bindings[req.BindingID] = b
		}
	}
	if i.plan != plansLater || (f.is("B07") && !req.AcceptsIncomplete) {
		return osb.Bound{Binding: b.Binding}
	}
	if f.is("B08") {
		return osb.Accepted{}
	}
	b.state = making
	return osb.Accepted{Operation: b.creation}
}

func (f *fake) GetBinding(_ context.Context, req *osb.GetBindingRequest) (*osb.Binding, error) {
	defer f.lock()()
	if i := f.instances[req.InstanceID]; i != nil {
		b := i.usable(req.BindingID)
		if any := i.bindings[req.BindingID]; any != nil && (f.is("B10") || f.is("B26")) {
			b = any
		}
		if b != nil {
			return &b.Binding, nil
		}
	}
	if f.is("B12") {
		return &osb.Binding{}, nil
	}
	return nil, osb.NotFound("there is no such binding")
}

func (f *fake) Unbind(_ context.Context, req *osb.UnbindRequest) (osb.UnbindResult, error) {
	defer f.lock()()
	i := f.instances[req.InstanceID]
	if i == nil || i.bindings[req.BindingID] == nil || i.bindings[req.BindingID].state == gone {
		switch {
		case f.is("O05"):
			return nil, osb.NotFound("there is no such binding")
		case f.is("B19") && i != nil && i.bindings[req.BindingID] != nil:
			return osb.Unbound{}, nil
		}
		return nil, osb.Gone()
	}
	b := i.bindings[req.BindingID]
	switch {
	case i.plan != plansLater:
		b.state = gone
		return osb.Unbound{}, nil
	case !req.AcceptsIncomplete && !f.is("B18"):
		return nil, osb.AsyncRequired()
	case !req.AcceptsIncomplete:
		b.state = gone
		return osb.Unbound{}, nil
	case b.state == making && f.is("B20"):
		return nil, osb.ConcurrencyError()
	case b.state == making:
		b.creation = ""
	}
	b.state, b.removal = removing, rand.Text()
	return osb.Accepted{Operation: b.removal}, nil
}

func (f *fake) LastBindingOperation(_ context.Context, req *osb.LastBindingOperationRequest) (*osb.LastOperation, error) {
	defer f.lock()()
	var b *bound
	if i := f.instances[req.InstanceID]; i != nil {
		b = i.bindings[req.BindingID]
	}
	last := &osb.LastOperation{State: osb.StateSucceeded}
	switch {
	case b == nil && f.is("B14"):
		return last, nil
	case b == nil:
		return nil, osb.NotFound("there is no such operation")
	case b.state == gone && f.is("B15"):
		return nil, osb.NotFound("there is no such operation")
	case req.Operation != "" && req.Operation != b.creation && req.Operation != b.removal:
		last.State = osb.StateFailed
	case b.state == gone:
		return nil, osb.Gone()
	case b.state == making, b.state == removing:
		last.State, last.RetryAfter = osb.StateInProgress, time.Second
		if f.is("B13") {
			last.RetryAfter = 0
		}
	}
	return last, nil
}
