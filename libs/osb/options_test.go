package osb_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/osb"
)

func TestWithBodyLimit_LargerBody_IsRejected(t *testing.T) {
	t.Parallel()
	b := &stub{provision: func(context.Context, *osb.ProvisionRequest) (osb.ProvisionResult, error) { return osb.Accepted{}, nil }}
	target := instanceTarget + "?accepts_incomplete=true"
	size := int64(len(validBody))
	w := call(t.Context(), osb.NewHandler(b, auth, osb.WithBodyLimit(size-1)), http.MethodPut, target, validBody)
	expectAnswer(t, w, http.StatusRequestEntityTooLarge)
	w = call(t.Context(), osb.NewHandler(b, auth, osb.WithBodyLimit(size)), http.MethodPut, target, validBody)
	expectAnswer(t, w, http.StatusAccepted)
}

func TestWithTimeout_Deadline_IsSet(t *testing.T) {
	t.Parallel()
	b := &stub{provision: func(ctx context.Context, _ *osb.ProvisionRequest) (osb.ProvisionResult, error) {
		if _, limited := ctx.Deadline(); !limited {
			t.Error("the context has no deadline")
			return osb.Accepted{}, nil
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	h := osb.NewHandler(b, auth, osb.WithTimeout(time.Millisecond))
	expectAnswer(t, call(t.Context(), h, http.MethodPut, instanceTarget, validBody), http.StatusServiceUnavailable)
}

func TestWithClock_Duration_IsMeasured(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	clock := func() time.Time {
		now = now.Add(time.Second)
		return now
	}
	var took []time.Duration
	observe := func(_ context.Context, o osb.Observation) { took = append(took, o.Duration) }
	h := osb.NewHandler(&stub{}, auth, osb.WithClock(clock), osb.WithObserver(observe))
	expectAnswer(t, call(t.Context(), h, http.MethodGet, "/v2/catalog", ""), http.StatusOK)
	if len(took) != 1 || took[0] != time.Second {
		t.Errorf("measured %v, want one second", took)
	}
}
