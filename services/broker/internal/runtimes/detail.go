package runtimes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/mask"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

const (
	// minFind and maxFind limit the length of a search text, in bytes, and maxFound the number of instances.
	minFind, maxFind = 3, 100
	maxFound         = 100
)

// AnswerInstance answers event.AskInstance.
func (a *API) AnswerInstance(ctx context.Context, question []byte) (any, error) {
	var q event.InstanceRequest
	if err := json.Unmarshal(question, &q); err != nil {
		return nil, errors.New("the question must be a JSON object with instanceId")
	}
	if err := checkText("instanceId", q.InstanceID); err != nil {
		return nil, err
	}
	found, err := a.deps.Store.RuntimeDetail(ctx, q.InstanceID)
	if errors.Is(err, store.ErrNotFound) {
		return event.InstanceAnswer{}, nil
	}
	if err != nil {
		a.deps.Log.Warn("instance not read", "instance_id", q.InstanceID, "err", err)
		return nil, errLater
	}
	d, err := detail(found)
	if err != nil {
		a.deps.Log.Error("instance not read", "instance_id", q.InstanceID, "err", err)
		return nil, errLater
	}
	return event.InstanceAnswer{Instance: d}, nil
}

func detail(r *store.RuntimeDetail) (*event.InstanceDetail, error) {
	k, err := readKnown(&r.Runtime)
	if err != nil {
		return nil, err
	}
	d := &event.InstanceDetail{
		InstanceID: r.InstanceID, Plan: r.Plan, State: string(r.State), Runtime: r.Runtime.Runtime, RuntimeID: r.RuntimeID,
		GlobalAccountID: r.GlobalAccountID, SubscriptionAccountID: r.SubscriptionAccountID, SubaccountID: r.SubaccountID,
		PlatformRegion: r.PlatformRegion, DashboardURL: r.DashboardURL, KymaVersion: k.kymaVersion(), MaintenanceVersion: r.MaintenanceVersion,
		CreatedAt: r.CreatedAt.UTC(), ExpiredAt: optional(r.ExpiredAt), DeletedAt: optional(r.DeletedAt),
		Parameters: mask.JSON(r.Sent), EffectiveParameters: mask.JSON(r.Effective),
	}
	// A removed instance has only these properties of its runtime.
	d.Runtime.ShootName, d.Runtime.Provider, d.Runtime.Region = r.ShootName, r.Provider, r.Region
	for i := range r.Bindings {
		b := &r.Bindings[i]
		d.Bindings = append(d.Bindings, event.BindingSummary{
			BindingID: b.ID, CreatedAt: b.CreatedAt.UTC(), ExpiresAt: b.ExpiresAt.UTC(), CreatedAccessAt: optional(b.MadeAt),
			RevokedAt: optional(b.RevokedAt), Predecessor: b.Predecessor,
		})
	}
	return d, nil
}

// AnswerFind answers event.AskFind.
func (a *API) AnswerFind(ctx context.Context, question []byte) (any, error) {
	var q event.FindRequest
	if err := json.Unmarshal(question, &q); err != nil {
		return nil, errors.New("the question must be a JSON object with text and limit")
	}
	switch {
	case len(q.Text) < minFind || len(q.Text) > maxFind:
		return nil, fmt.Errorf("text: must have from %d to %d bytes", minFind, maxFind)
	case q.Limit < 1 || q.Limit > maxFound:
		return nil, fmt.Errorf("limit %d: must be from 1 to %d", q.Limit, maxFound)
	}
	found, more, err := a.deps.Store.Find(ctx, q.Text, q.Limit)
	if err != nil {
		a.deps.Log.Warn("instances not found", "err", err)
		return nil, errLater
	}
	answer := event.FindAnswer{Instances: make([]event.FoundInstance, len(found)), More: more}
	for i := range found {
		f := &found[i]
		answer.Instances[i] = event.FoundInstance{
			InstanceID: f.InstanceID, Matched: f.Matched, RuntimeName: f.Name, ShootName: f.ShootName, RuntimeID: f.RuntimeID, Plan: f.Plan,
			Region: f.Region, GlobalAccountID: f.Account, SubaccountID: f.Subaccount, State: string(f.State), CreatedAt: f.CreatedAt.UTC(),
			ExpiredAt: optional(f.ExpiredAt()),
		}
	}
	return answer, nil
}

// optional returns a time in UTC; nil if it is zero.
func optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
