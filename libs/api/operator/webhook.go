package operator

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// WebhookFormat is the form of the requests to a webhook.
type WebhookFormat string

// The formats. WebhookCloudEvents is a CloudEvent in structured mode.
const (
	WebhookCloudEvents       WebhookFormat = "cloudevents"
	WebhookCloudEventsBinary WebhookFormat = "cloudevents-binary"
	WebhookSlack             WebhookFormat = "slack"
)

// WebhookKind is what an event reports.
type WebhookKind string

// The kinds. WebhookFailing is the first try of a step that fails with an error; further tries with the same error are not sent. WebhookStep is
// every try.
const (
	WebhookStarted       WebhookKind = "started"
	WebhookFailing       WebhookKind = "failing"
	WebhookFailed        WebhookKind = "failed"
	WebhookIncomplete    WebhookKind = "incomplete"
	WebhookSucceeded     WebhookKind = "succeeded"
	WebhookCancelled     WebhookKind = "cancelled"
	WebhookStep          WebhookKind = "step"
	WebhookStage         WebhookKind = "stage"
	WebhookOrchestration WebhookKind = "orchestration"
)

// WebhookKinds returns all kinds.
func WebhookKinds() []WebhookKind {
	return []WebhookKind{
		WebhookStarted, WebhookFailing, WebhookFailed, WebhookIncomplete, WebhookSucceeded, WebhookCancelled, WebhookStep, WebhookStage,
		WebhookOrchestration,
	}
}

// WebhookState is the state of a webhook.
type WebhookState string

// The states. A disabled webhook gets no events. A failing one is active, and its last attempts have failed.
const (
	WebhookActive   WebhookState = "active"
	WebhookDisabled WebhookState = "disabled"
)

// WebhookFilter selects the events of a webhook. All members that are given must match.
type WebhookFilter struct {
	// Kinds are the kinds of the events; absent means failing, failed and orchestration.
	Kinds []WebhookKind `json:"kinds,omitempty"`
	// Types are types of operations; absent means all.
	Types []event.OperationType `json:"types,omitempty"`
	// Plans are names or IDs of plans; absent means all. They do not apply to orchestrations.
	Plans []string `json:"plans,omitempty"`
	// GlobalAccounts are IDs of global accounts; absent means all. They do not apply to orchestrations.
	GlobalAccounts []string `json:"globalAccounts,omitempty"`
}

// WebhookRequest creates a webhook.
type WebhookRequest struct {
	// Name has lower-case letters, digits and hyphens, and is unique.
	Name string `json:"name"`
	// URL is an https URL. It is sealed, because it may contain a credential. Answers contain only its scheme and host.
	URL string `json:"url"`
	// Format is cloudevents, cloudevents-binary or slack; absent means cloudevents.
	Format WebhookFormat `json:"format,omitempty" jsonschema:"enum=cloudevents,enum=cloudevents-binary,enum=slack"`
	Filter WebhookFilter `json:"filter,omitzero"`
	// Secret signs the requests: "whsec_" and the base64 of 24 to 64 bytes. If it is absent, one is generated.
	Secret string `json:"secret,omitempty"`
	// By is the name of the caller. It is ignored if access control is on.
	By string `json:"by,omitempty"`
}

// Webhook is a receiver of events.
type Webhook struct {
	ID   string `json:"id" jsonschema:"format=uuid"`
	Name string `json:"name"`
	// Origin is the scheme and the host of the URL.
	Origin    string        `json:"origin"`
	Format    WebhookFormat `json:"format" jsonschema:"enum=cloudevents,enum=cloudevents-binary,enum=slack"`
	Filter    WebhookFilter `json:"filter"`
	CreatedBy string        `json:"createdBy"`
	CreatedAt time.Time     `json:"createdAt"`
	State     WebhookState  `json:"state" jsonschema:"enum=active,enum=disabled"`
	// Reason is why the webhook is disabled.
	Reason string `json:"reason,omitempty"`
	// Failures is the number of failed attempts since the last successful one.
	Failures int `json:"failures"`
	// FailingSince is the time of the first of them, Error the last error, and NextAttempt the time of the next attempt.
	FailingSince *time.Time `json:"failingSince,omitempty"`
	Error        string     `json:"error,omitempty"`
	NextAttempt  *time.Time `json:"nextAttempt,omitempty"`
	// DeliveredAt is the time of the last successful attempt.
	DeliveredAt *time.Time `json:"deliveredAt,omitempty"`
	// Waiting is the number of events that wait, up to 100,001.
	Waiting int `json:"waiting"`
	// Secret signs the requests. Only the answer to the creation contains it, and only if it was generated.
	Secret string `json:"secret,omitempty"`
}

// WebhookDeliveryState is the state of an event for a webhook.
type WebhookDeliveryState string

// The states. A failed event is not sent again.
const (
	WebhookDeliveryWaiting   WebhookDeliveryState = "waiting"
	WebhookDeliveryDelivered WebhookDeliveryState = "delivered"
	WebhookDeliveryFailed    WebhookDeliveryState = "failed"
)

// WebhookDelivery is an event for a webhook.
type WebhookDelivery struct {
	// ID is the header webhook-id of every attempt.
	ID string `json:"id"`
	// Subject is the ID of the operation or of the orchestration.
	Subject   string               `json:"subject"`
	Kind      string               `json:"kind"`
	CreatedAt time.Time            `json:"createdAt"`
	State     WebhookDeliveryState `json:"state" jsonschema:"enum=waiting,enum=delivered,enum=failed"`
	Attempts  int                  `json:"attempts"`
	// Status is the HTTP status of the last attempt; absent if it had no answer.
	Status int `json:"status,omitempty"`
	// Error is the error of the last attempt.
	Error       string     `json:"error,omitempty"`
	AttemptedAt *time.Time `json:"attemptedAt,omitempty"`
	// Event is the CloudEvent.
	Event json.RawMessage `json:"event"`
}

// Webhooks returns all webhooks, and the raw answer.
func (c *Client) Webhooks(ctx context.Context) (*List[Webhook], json.RawMessage, error) {
	return read[List[Webhook]](ctx, c, "/webhooks", nil, "list webhooks")
}

// Webhook returns a webhook, and the raw answer. The error is ErrNotFound if there is none with the ID.
func (c *Client) Webhook(ctx context.Context, id string) (*Webhook, json.RawMessage, error) {
	return read[Webhook](ctx, c, "/webhooks/"+url.PathEscape(id), nil, "webhook %s", id)
}

// CreateWebhook creates a webhook, and returns it with the raw answer. It has the secret if that was generated.
func (c *Client) CreateWebhook(ctx context.Context, request WebhookRequest) (*Webhook, json.RawMessage, error) {
	return write[Webhook](ctx, c, http.MethodPost, "/webhooks", request, "create webhook")
}

// DeleteWebhook deletes a webhook with its events.
func (c *Client) DeleteWebhook(ctx context.Context, id string) error {
	return c.order(ctx, http.MethodDelete, "/webhooks/"+url.PathEscape(id), "delete webhook %s", id)
}

// ChangeWebhook enables or disables a webhook, and returns it with the raw answer; the action is "enable" or "disable".
func (c *Client) ChangeWebhook(ctx context.Context, id, action string) (*Webhook, json.RawMessage, error) {
	return write[Webhook](ctx, c, http.MethodPost, "/webhooks/"+url.PathEscape(id)+"/"+action, nil, "%s webhook %s", action, id)
}

// TestWebhook sends a test event once, and returns its result with the raw answer.
func (c *Client) TestWebhook(ctx context.Context, id string) (*WebhookDelivery, json.RawMessage, error) {
	return write[WebhookDelivery](ctx, c, http.MethodPost, "/webhooks/"+url.PathEscape(id)+"/test", nil, "test webhook %s", id)
}

// WebhookDeliveries returns a page of the events of a webhook, newest first, and the raw answer.
func (c *Client) WebhookDeliveries(ctx context.Context, id string, p Page) (*List[WebhookDelivery], json.RawMessage, error) {
	return read[List[WebhookDelivery]](ctx, c, "/webhooks/"+url.PathEscape(id)+"/deliveries", p.query(), "events of webhook %s", id)
}
