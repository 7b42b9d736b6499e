package osb_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kyma-project/keb/libs/osb"
)

func TestHandler_BodyAboveLimit_IsRejected(t *testing.T) {
	t.Parallel()
	b := &stub{provision: func(context.Context, *osb.ProvisionRequest) (osb.ProvisionResult, error) { return osb.Accepted{}, nil }}
	target := instanceTarget + "?accepts_incomplete=true"
	for size, status := range map[int]int{osb.BodyLimit: http.StatusAccepted, osb.BodyLimit + 1: http.StatusRequestEntityTooLarge} {
		body := "{" + strings.Repeat(" ", size-len(validBody)) + validBody[1:]
		expectAnswer(t, call(t.Context(), osb.NewHandler(b, auth), http.MethodPut, target, body), status)
	}
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

func TestWithObserver_Duration_IsMeasured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &stub{provision: func(context.Context, *osb.ProvisionRequest) (osb.ProvisionResult, error) {
			<-time.After(time.Second)
			return osb.Accepted{}, nil
		}}
		var took []time.Duration
		observe := func(_ context.Context, o osb.Observation) { took = append(took, o.Duration) }
		h := osb.NewHandler(b, auth, osb.WithObserver(observe))
		expectAnswer(t, call(t.Context(), h, http.MethodPut, instanceTarget+"?accepts_incomplete=true", validBody), http.StatusAccepted)
		if len(took) != 1 || took[0] != time.Second {
			t.Errorf("measured %v, want one second", took)
		}
	})
}
