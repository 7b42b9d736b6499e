package runtimes

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

func TestMasked_Secrets_AreRemovedAtAnyDepth(t *testing.T) {
	t.Parallel()
	got := string(masked([]byte(`{"name":"shop","oidc":{"clientID":"9bd05ed7-a930-44e6-8c79-e6defeb7dec9","clientSecret":"hush-hush","issuerURL":"https://issuer.example.com/path"},
 "list":[{"access_token":"abcdefgh"},{"proxy":"https://user:hunter22@proxy.example.com"}],"kubeconfig":{"a":"b"},"secretsAllowed":true,"tokens":3}`)))
	want := `{"kubeconfig":"[redacted]","list":[{"access_token":"[redacted]"},{"proxy":"https://[redacted]@proxy.example.com"}],"name":"shop",` +
		`"oidc":{"clientID":"9bd05ed7-a930-44e6-8c79-e6defeb7dec9","clientSecret":"[redacted]","issuerURL":"https://issuer.example.com/path"},"secretsAllowed":true,"tokens":3}`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := masked([]byte("not json")); got != nil {
		t.Errorf("unreadable parameters became %s", got)
	}
}

func TestDetail_Bindings_HaveNoAccess(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 23, 3, 0, 0, 0, time.UTC)
	d, err := detail(&store.RuntimeDetail{
		Runtime: store.Runtime{
			InstanceID: "i", State: store.RuntimeSuspended, Plan: event.Plan{Name: "trial"}, ShootName: "c-1", Region: "eastus", CreatedAt: at, ExpiredAt: at.Add(time.Hour),
			Runtime: event.Runtime{Name: "shop"},
		},
		Sent:     []byte(`{"name":"shop"}`),
		Bindings: []store.Binding{{ID: "b", CreatedAt: at, ExpiresAt: at.Add(time.Hour), MadeAt: at, Sealed: "sealed kubeconfig"}},
	})
	require.NoError(t, err)
	expired := at.Add(time.Hour)
	want := &event.InstanceDetail{
		InstanceID: "i", State: "suspended", Plan: event.Plan{Name: "trial"}, Runtime: event.Runtime{Name: "shop", ShootName: "c-1", Region: "eastus"}, CreatedAt: at,
		ExpiredAt: &expired, Parameters: []byte(`{"name":"shop"}`),
		Bindings: []event.BindingSummary{{BindingID: "b", CreatedAt: at, ExpiresAt: expired, CreatedAccessAt: &at}},
	}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
