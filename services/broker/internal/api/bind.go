package api

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/services/broker/internal/binding"
)

// The bindings are synchronous, like those of the original (docs/contracts/broker.md#bindings). Creating an access takes about a second, so
// platforms need no operation to poll. The cases of asynchronous bindings (docs/contracts/osb.md#bindings, B07 to B10, B13, B18
// and B20) do not apply.

// Bind creates a short-lived kubeconfig of the runtime.
func (b *Broker) Bind(ctx context.Context, req *osb.BindRequest) (osb.BindResult, error) {
	expiration, given, err := b.deps.Catalog.BindingExpiration(req.Parameters)
	if err != nil {
		return nil, orderError(err)
	}
	made, existed, err := b.deps.Bindings.Bind(ctx, binding.Order{
		InstanceID: req.InstanceID, BindingID: req.BindingID, ServiceID: req.ServiceID, PlanID: req.PlanID,
		Expiration: expiration, Given: given, Predecessor: req.PredecessorBindingID,
	})
	if err != nil {
		return nil, answer(err)
	}
	if !existed {
		b.auditBinding(req.Call, "bind", req.InstanceID, req.BindingID)
	}
	bound, err := platformBinding(made)
	if err != nil {
		return nil, err
	}
	return osb.Bound{Binding: *bound, Existed: existed}, nil
}

// GetBinding returns a binding with its kubeconfig.
func (b *Broker) GetBinding(ctx context.Context, req *osb.GetBindingRequest) (*osb.Binding, error) {
	made, err := b.deps.Bindings.Get(ctx, req.InstanceID, req.BindingID)
	if err != nil {
		return nil, answer(err)
	}
	return platformBinding(made)
}

// Unbind removes the access of a binding.
func (b *Broker) Unbind(ctx context.Context, req *osb.UnbindRequest) (osb.UnbindResult, error) {
	if err := b.deps.Bindings.Unbind(ctx, req.InstanceID, req.BindingID); err != nil {
		return nil, answer(err)
	}
	b.auditBinding(req.Call, "unbind", req.InstanceID, req.BindingID)
	return osb.Unbound{}, nil
}

// LastBindingOperation returns the state of a binding.
func (b *Broker) LastBindingOperation(ctx context.Context, req *osb.LastBindingOperationRequest) (*osb.LastOperation, error) {
	last, err := b.deps.Bindings.LastOperation(ctx, req.InstanceID, req.BindingID)
	if err != nil {
		return nil, answer(err)
	}
	return last, nil
}

func platformBinding(made *binding.Made) (*osb.Binding, error) {
	credentials, err := json.Marshal(map[string]string{"kubeconfig": made.Kubeconfig})
	if err != nil {
		return nil, fmt.Errorf("encode credentials: %w", err)
	}
	parameters, err := json.Marshal(map[string]int64{"expiration_seconds": int64(made.Expiration.Seconds())})
	if err != nil {
		return nil, fmt.Errorf("encode parameters: %w", err)
	}
	return &osb.Binding{
		Credentials: credentials, Parameters: parameters, ExpiresAt: made.ExpiresAt, RenewBefore: made.RenewBefore,
	}, nil
}

func (b *Broker) auditBinding(call osb.Call, action, instanceID, bindingID string) {
	b.audit(call, action, instanceID, "", "binding_id", bindingID)
}
