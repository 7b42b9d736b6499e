package operatorapi

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
	"github.com/kyma-project/keb/services/orchestrator/internal/webhook"
)

// Webhooks reads webhooks and their messages.
type Webhooks interface {
	List(ctx context.Context) ([]webhook.Webhook, error)
	Webhook(ctx context.Context, id string) (*webhook.Webhook, error)
	Messages(ctx context.Context, id string, f store.WebhookMessageFilter) ([]webhook.Message, int, error)
}

// WebhookService changes webhooks.
type WebhookService interface {
	Create(ctx context.Context, w *webhook.Webhook, t *webhook.Target) error
	Drop(ctx context.Context, id string) error
	SetState(ctx context.Context, id string, state webhook.State, reason string) (*webhook.Webhook, error)
	Test(ctx context.Context, id, by string) (*webhook.Message, error)
}

func (a *API) webhookRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /webhooks", a.answer(a.listWebhooks))
	a.actionRoute(mux, "POST /webhooks", "create_webhook", a.createWebhook)
	mux.HandleFunc("GET /webhooks/{id}", a.answer(a.getWebhook))
	a.actionRoute(mux, "DELETE /webhooks/{id}", "delete_webhook", a.deleteWebhook)
	a.actionRoute(mux, "POST /webhooks/{id}/enable", "enable_webhook", a.changeWebhook(webhook.Active))
	a.actionRoute(mux, "POST /webhooks/{id}/disable", "disable_webhook", a.changeWebhook(webhook.Disabled))
	a.actionRoute(mux, "POST /webhooks/{id}/test", "test_webhook", a.testWebhook)
	mux.HandleFunc("GET /webhooks/{id}/deliveries", a.answer(a.listWebhookDeliveries))
}

func viewWebhook(w *webhook.Webhook) operator.Webhook {
	out := operator.Webhook{
		ID: w.ID, Name: w.Name, Origin: w.Origin, Format: operator.WebhookFormat(w.Format), CreatedBy: w.CreatedBy, CreatedAt: w.CreatedAt,
		State: operator.WebhookState(w.State), Reason: w.Reason, Failures: w.Failures, FailingSince: optional(w.FailingSince), Error: w.Error,
		DeliveredAt: optional(w.DeliveredAt), Waiting: w.Waiting,
		Filter: operator.WebhookFilter{Types: w.Filter.Types, Plans: w.Filter.Plans, GlobalAccounts: w.Filter.GlobalAccounts},
	}
	for _, k := range w.Filter.Kinds {
		out.Filter.Kinds = append(out.Filter.Kinds, operator.WebhookKind(k))
	}
	if w.State == webhook.Active && w.Failures > 0 {
		out.NextAttempt = optional(w.DueAt)
	}
	return out
}

func viewDelivery(m *webhook.Message) operator.WebhookDelivery {
	return operator.WebhookDelivery{
		ID: m.ID, Subject: m.Subject, Kind: string(m.Kind), CreatedAt: m.CreatedAt, State: operator.WebhookDeliveryState(m.State),
		Attempts: m.Attempts, Status: m.Status, Error: m.Error, AttemptedAt: optional(m.AttemptedAt), Event: json.RawMessage(m.Event),
	}
}

func (a *API) listWebhooks(r *http.Request) (any, error) {
	list, err := a.deps.Webhooks.List(r.Context())
	if err != nil {
		return nil, err
	}
	out := make([]operator.Webhook, 0, len(list))
	for i := range list {
		out = append(out, viewWebhook(&list[i]))
	}
	return operator.All(out), nil
}

func (a *API) createWebhook(r *http.Request) (any, error) {
	var body operator.WebhookRequest
	if err := decode(r, maxBody, `"name", "url", "format", "filter" and "secret"`, &body); err != nil {
		return nil, err
	}
	hook := webhook.Webhook{
		Name: body.Name, Format: webhook.Format(body.Format), CreatedBy: by(r.Context(), body.By),
		Filter: webhook.Filter{Types: body.Filter.Types, Plans: body.Filter.Plans, GlobalAccounts: body.Filter.GlobalAccounts},
	}
	if hook.Format == "" {
		hook.Format = webhook.CloudEvents
	}
	for _, k := range body.Filter.Kinds {
		hook.Filter.Kinds = append(hook.Filter.Kinds, webhook.Kind(k))
	}
	note(r.Context(), func(a *store.Action) { a.Target, a.Detail = body.Name, string(hook.Format) })
	target := webhook.Target{URL: body.URL, Secret: body.Secret}
	if body.Secret == "" {
		target.Secret = webhook.NewSecret()
	}
	err := hook.Validate()
	if err == nil {
		err = webhook.CheckURL(target.URL, a.deps.LocalWebhooks)
	}
	if err == nil {
		err = webhook.CheckSecret(target.Secret)
	}
	if err != nil {
		return nil, badRequest(err)
	}
	if err := a.deps.WebhookService.Create(r.Context(), &hook, &target); err != nil {
		return nil, missing(err, "webhook", r.PathValue("id"))
	}
	note(r.Context(), func(a *store.Action) {
		a.Target, a.Detail = hook.ID, hook.Name+" at "+hook.Origin+", "+string(hook.Format)
	})
	a.deps.Log.Info("webhook created", "webhook_id", hook.ID, "webhook", hook.Name, "origin", hook.Origin, "by", hook.CreatedBy)
	out := viewWebhook(&hook)
	if body.Secret == "" {
		out.Secret = target.Secret
	}
	return out, nil
}

func (a *API) getWebhook(r *http.Request) (any, error) {
	hook, err := a.deps.Webhooks.Webhook(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, missing(err, "webhook", r.PathValue("id"))
	}
	return viewWebhook(hook), nil
}

func (a *API) deleteWebhook(r *http.Request) (any, error) {
	if err := a.deps.WebhookService.Drop(r.Context(), r.PathValue("id")); err != nil {
		return nil, missing(err, "webhook", r.PathValue("id"))
	}
	return nil, nil
}

// changeWebhook enables or disables a webhook.
func (a *API) changeWebhook(to webhook.State) handler {
	return func(r *http.Request) (any, error) {
		reason := ""
		if to == webhook.Disabled {
			reason = "disabled by " + caller(r.Context()).Name
		}
		hook, err := a.deps.WebhookService.SetState(r.Context(), r.PathValue("id"), to, reason)
		if err != nil {
			return nil, missing(err, "webhook", r.PathValue("id"))
		}
		note(r.Context(), func(a *store.Action) { a.Detail = hook.Name })
		return viewWebhook(hook), nil
	}
}

func (a *API) testWebhook(r *http.Request) (any, error) {
	m, err := a.deps.WebhookService.Test(r.Context(), r.PathValue("id"), caller(r.Context()).Name)
	if err != nil {
		return nil, missing(err, "webhook", r.PathValue("id"))
	}
	return viewDelivery(m), nil
}

func (a *API) listWebhookDeliveries(r *http.Request) (any, error) {
	var f store.WebhookMessageFilter
	var err error
	if f.State, f.Limit, f.Offset, err = parseList(r.URL.Query(), webhook.MessageStates()); err != nil {
		return nil, badRequest(err)
	}
	hook, err := a.deps.Webhooks.Webhook(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, missing(err, "webhook", r.PathValue("id"))
	}
	list, total, err := a.deps.Webhooks.Messages(r.Context(), hook.ID, f)
	if err != nil {
		return nil, err
	}
	return listOf(list, total, func(m webhook.Message) operator.WebhookDelivery { return viewDelivery(&m) }), nil
}
