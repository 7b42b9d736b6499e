package runtimes

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

func TestDetail_Secrets_AreNotShown(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 23, 3, 0, 0, 0, time.UTC)
	d, err := detail(&store.RuntimeDetail{
		Runtime: store.Runtime{
			InstanceID: "i", State: store.RuntimeSuspended, Plan: event.Plan{Name: "trial"}, ShootName: "c-1", Region: "eastus", CreatedAt: at, ExpiredAt: at.Add(time.Hour),
			Runtime: event.Runtime{Name: "shop"}, Effective: []byte(`{"kubeconfig":{"a":"b"}}`),
		},
		Sent:     []byte(`{"name":"shop","oidc":{"clientSecret":"hush-hush"}}`),
		Bindings: []store.Binding{{ID: "b", CreatedAt: at, ExpiresAt: at.Add(time.Hour), MadeAt: at, Sealed: "sealed kubeconfig"}},
	})
	require.NoError(t, err)
	expired := at.Add(time.Hour)
	want := &event.InstanceDetail{
		InstanceID: "i", State: "suspended", Plan: event.Plan{Name: "trial"}, Runtime: event.Runtime{Name: "shop", ShootName: "c-1", Region: "eastus"}, CreatedAt: at,
		ExpiredAt: &expired, Parameters: []byte(`{"name":"shop","oidc":{"clientSecret":"[redacted]"}}`), EffectiveParameters: []byte(`{"kubeconfig":"[redacted]"}`),
		Bindings: []event.BindingSummary{{BindingID: "b", CreatedAt: at, ExpiresAt: expired, CreatedAccessAt: &at}},
	}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
