package osb

import "context"

// Broker answers the requests of a platform. The handler has authenticated, decoded and checked a request before a
// method is called; the methods are called from many goroutines at once.
//
// An error that is, or wraps, an *Error is answered as that says. The end of the context's deadline becomes 503, any other
// error 500 without its text, which only the log has. A nil result without an error is a mistake of the broker: 500.
//
// The context carries the handler's deadline (WithTimeout). For the requests that change something it does not end
// when the platform hangs up, so that work once begun is not torn in the middle.
type Broker interface {
	// Catalog returns the catalog for a platform region; region is empty for requests without one in their path.
	// It is called for nearly every request, so it should be cheap. The result must not be changed any more:
	// its encoding is kept as long as the same pointer is returned for the region.
	Catalog(ctx context.Context, region string) (*Catalog, error)

	// Provision orders an instance: PUT /v2/service_instances/{instance_id}.
	Provision(ctx context.Context, req *ProvisionRequest) (ProvisionResult, error)
	// GetInstance reads an instance: GET /v2/service_instances/{instance_id}.
	GetInstance(ctx context.Context, req *GetInstanceRequest) (*Instance, error)
	// Update changes an instance: PATCH /v2/service_instances/{instance_id}.
	Update(ctx context.Context, req *UpdateRequest) (UpdateResult, error)
	// Deprovision removes an instance: DELETE /v2/service_instances/{instance_id}.
	// An instance that does not exist (any more) is the error Gone.
	Deprovision(ctx context.Context, req *DeprovisionRequest) (DeprovisionResult, error)
	// LastOperation tells where an operation on an instance stands:
	// GET /v2/service_instances/{instance_id}/last_operation.
	LastOperation(ctx context.Context, req *LastOperationRequest) (*LastOperation, error)

	// Bind creates a binding: PUT /v2/service_instances/{instance_id}/service_bindings/{binding_id}.
	Bind(ctx context.Context, req *BindRequest) (BindResult, error)
	// GetBinding reads a binding: GET .../service_bindings/{binding_id}.
	GetBinding(ctx context.Context, req *GetBindingRequest) (*Binding, error)
	// Unbind removes a binding: DELETE .../service_bindings/{binding_id}.
	// A binding that does not exist (any more) is the error Gone.
	Unbind(ctx context.Context, req *UnbindRequest) (UnbindResult, error)
	// LastBindingOperation tells where an operation on a binding stands:
	// GET .../service_bindings/{binding_id}/last_operation.
	LastBindingOperation(ctx context.Context, req *LastBindingOperationRequest) (*LastOperation, error)
}
