package operatorapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/hold"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// Holds stores holds.
type Holds interface {
	Holds(ctx context.Context) ([]hold.Hold, error)
	HeldBy(ctx context.Context) (map[string]int, error)
	AddHold(ctx context.Context, h *hold.Hold) error
	DropHold(ctx context.Context, id string) error
}

func viewHold(h *hold.Hold, operations int) operator.Hold {
	orders := operator.OrdersWait
	if h.RejectsOrders {
		orders = operator.OrdersReject
	}
	return operator.Hold{
		ID: h.ID, Scope: operator.HoldScope(h.Scope), Orders: orders, Reason: h.Reason, CreatedBy: h.CreatedBy, CreatedAt: h.CreatedAt, Until: optional(h.Until),
		Operations: operations,
	}
}

func (a *API) listHolds(r *http.Request) (any, error) {
	holds, err := a.deps.Holds.Holds(r.Context())
	if err != nil {
		return nil, err
	}
	counts, err := a.deps.Holds.HeldBy(r.Context())
	if err != nil {
		return nil, err
	}
	out := make([]operator.Hold, 0, len(holds))
	now := a.deps.Now()
	for i := range holds {
		if h := &holds[i]; h.Active(now) {
			out = append(out, viewHold(h, counts[h.ID]))
		}
	}
	return operator.All(out), nil
}

func (a *API) createHold(r *http.Request) (any, error) {
	var body operator.HoldRequest
	if err := decode(r, maxBody, `"scope", "reason" and "until"`, &body); err != nil {
		return nil, err
	}
	h := hold.Hold{
		ID: uuid.Must(uuid.NewV7()).String(), Scope: hold.Scope(body.Scope), RejectsOrders: body.Orders == operator.OrdersReject,
		Reason: body.Reason, CreatedBy: by(r.Context(), body.By), CreatedAt: a.deps.Now().UTC(),
	}
	if body.Until != nil {
		h.Until = body.Until.UTC()
	}
	note(r.Context(), func(a *store.Action) { a.Target, a.Detail = h.ID, describeHold(&body, &h) })
	if body.Orders != "" && body.Orders != operator.OrdersWait && !h.RejectsOrders {
		return nil, badRequest(fmt.Errorf("orders %.50q: allowed are %s and %s", body.Orders, operator.OrdersWait, operator.OrdersReject))
	}
	if err := h.Validate(h.CreatedAt); err != nil {
		return nil, badRequest(err)
	}
	if err := a.deps.Holds.AddHold(r.Context(), &h); err != nil {
		return nil, err
	}
	a.holdsChanged(r.Context())
	a.deps.Log.Info("hold created", "hold_id", h.ID, "scope", body.Scope.String(), "by", h.CreatedBy)
	return viewHold(&h, 0), nil
}

// describeHold describes a new hold in the record of actions.
func describeHold(request *operator.HoldRequest, h *hold.Hold) string {
	text := request.Scope.String()
	if h.RejectsOrders {
		text += " (rejects orders)"
	}
	return text + ": " + h.Reason
}

func (a *API) releaseHold(r *http.Request) (any, error) {
	id, err := uuid.Parse(r.PathValue("id"))
	if err == nil {
		err = a.deps.Holds.DropHold(r.Context(), id.String())
	} else {
		err = store.ErrNotFound
	}
	if err != nil {
		return nil, missing(err, "hold", r.PathValue("id"))
	}
	a.holdsChanged(r.Context())
	a.deps.Log.Info("hold released", "hold_id", id.String(), "by", caller(r.Context()).Name)
	return nil, nil
}

// Rejections answers event.AskRejections from the database, so that the answer contains every hold that was accepted.
func (a *API) Rejections(ctx context.Context, data []byte) (any, error) {
	var request event.RejectionsRequest
	if err := json.Unmarshal(data, &request); err != nil {
		return nil, fmt.Errorf("the request must be a JSON object with after: %w", err)
	}
	holds, err := a.deps.Holds.Holds(ctx)
	if err != nil {
		a.deps.Log.Warn("question not answered", "err", err)
		return nil, errors.New("the holds cannot be read now")
	}
	found := []event.Rejection{}
	for i := range holds {
		if h := &holds[i]; h.RejectsOrders && h.ID > request.After {
			s := &h.Scope
			found = append(found, event.Rejection{
				HoldID: h.ID, Type: s.Type, InstanceID: s.Instance, GlobalAccountID: s.GlobalAccount, Plan: s.Plan, Region: s.Region,
				Reason: h.Reason, Until: optional(h.Until),
			})
		}
	}
	slices.SortFunc(found, func(x, y event.Rejection) int { return strings.Compare(x.HoldID, y.HoldID) })
	n, err := bus.Page(found)
	if err != nil {
		a.deps.Log.Error("question not answered", "err", err)
		return nil, errors.New("the holds cannot be encoded")
	}
	return event.RejectionsAnswer{Rejections: found[:n], More: n < len(found)}, nil
}

// holdsChanged applies a change in this orchestrator and notifies the others. After an error the next read applies it.
func (a *API) holdsChanged(ctx context.Context) {
	if err := a.deps.HoldsChanged(ctx); err != nil {
		a.deps.Log.Warn("holds not read; the next read applies the change", "err", err)
	}
}
