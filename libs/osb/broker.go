package osb

import "context"

// Broker implements the requests of a platform. The handler authenticates, decodes and validates a request before it calls a method.
// Methods are called concurrently.
//
// An error that is or wraps an *Error is answered as it specifies. An exceeded deadline of the context becomes 503. Any other error
// becomes 500 without its text, which is only logged. A nil result without an error is a bug of the broker and becomes 500.
//
// The context has the handler's deadline (WithTimeout). For requests that change something it does not end
// when the platform disconnects, so that a started change is completed.
type Broker interface {
	// Catalog returns the catalog of a platform region; region is empty for requests whose path names none. It is called for nearly every
	// request, so it should be fast. The result must not change: its encoding is cached while the same pointer is returned for the
	// region.
	Catalog(ctx context.Context, region string) (*Catalog, error)

	// Provision orders an instance: PUT /v2/service_instances/{instance_id}.
	Provision(ctx context.Context, req *ProvisionRequest) (ProvisionResult, error)
	// GetInstance returns an instance: GET /v2/service_instances/{instance_id}.
	GetInstance(ctx context.Context, req *GetInstanceRequest) (*Instance, error)
	// Update changes an instance: PATCH /v2/service_instances/{instance_id}.
	Update(ctx context.Context, req *UpdateRequest) (UpdateResult, error)
	// Deprovision removes an instance: DELETE /v2/service_instances/{instance_id}.
	// It returns the error Gone for an instance that does not exist (any more).
	Deprovision(ctx context.Context, req *DeprovisionRequest) (DeprovisionResult, error)
	// LastOperation returns the state of an operation on an instance:
	// GET /v2/service_instances/{instance_id}/last_operation.
	LastOperation(ctx context.Context, req *LastOperationRequest) (*LastOperation, error)

	// Bind creates a binding: PUT /v2/service_instances/{instance_id}/service_bindings/{binding_id}.
	Bind(ctx context.Context, req *BindRequest) (BindResult, error)
	// GetBinding returns a binding: GET .../service_bindings/{binding_id}.
	GetBinding(ctx context.Context, req *GetBindingRequest) (*Binding, error)
	// Unbind removes a binding: DELETE .../service_bindings/{binding_id}.
	// It returns the error Gone for a binding that does not exist (any more).
	Unbind(ctx context.Context, req *UnbindRequest) (UnbindResult, error)
	// LastBindingOperation returns the state of an operation on a binding:
	// GET .../service_bindings/{binding_id}/last_operation.
	LastBindingOperation(ctx context.Context, req *LastBindingOperationRequest) (*LastOperation, error)
}
