package osb

import (
	"context"
	"log/slog"
	"time"
)

// MaxIDLength is the maximum length of an instance or binding id in bytes.
const MaxIDLength = 512

// BodyLimit is the maximum size of a body in bytes.
const BodyLimit = 1 << 20

// DefaultTimeout is the default of WithTimeout.
const DefaultTimeout = 30 * time.Second

// Option configures NewHandler.
type Option func(*handler)

// WithAuth sets the authenticator. Without it every request is answered 401.
func WithAuth(a Authenticator) Option { return func(h *handler) { h.auth = a } }

// WithLogger sets the log: successful requests are logged at level debug, rejected and failed ones at a higher level. Without it nothing is
// logged.
func WithLogger(log *slog.Logger) Option { return func(h *handler) { h.log = log } }

// WithObserver adds a function that is called after each request, in the goroutine of the request.
func WithObserver(observe func(ctx context.Context, o Observation)) Option {
	return func(h *handler) { h.observers = append(h.observers, observe) }
}

// WithTimeout sets the timeout of a request, instead of DefaultTimeout.
func WithTimeout(d time.Duration) Option { return func(h *handler) { h.timeout = d } }

// WithRequireOrgSpace rejects provisioning without organization_guid and space_guid.
func WithRequireOrgSpace(on bool) Option { return func(h *handler) { h.requireOrgSpace = on } }

// Observation is an answered request, for metrics and audit.
type Observation struct {
	// Route is the pattern without prefix, for example "/v2/service_instances/{instance_id}", or "other" for unknown paths.
	Route  string
	Method string
	// Status is the HTTP status, and Code the error code of the body, if any.
	Status   int
	Code     string
	Duration time.Duration
	// Call contains the valid parts of the request. Its Principal is empty for 401.
	Call Call
	// InstanceID and BindingID are empty on routes without them.
	InstanceID string
	BindingID  string
}
