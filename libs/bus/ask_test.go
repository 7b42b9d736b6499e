package bus_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

func answer(t testing.TB, b *bus.Bus, handle func(context.Context, []byte) (any, error)) (stop func()) {
	t.Helper()
	stop, err := b.Answer(event.AskOperations, "orchestrator", handle)
	require.NoError(t, err)
	require.NoError(t, b.NATS().Flush())
	return stop
}

func ask(b *bus.Bus, ids ...string) (event.OperationsAnswer, error) {
	var a event.OperationsAnswer
	err := b.Ask(context.Background(), event.AskOperations, event.OperationsRequest{IDs: ids}, &a)
	return a, err
}

func TestAsk_Question_ReturnsAnswer(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	defer answer(t, b, func(_ context.Context, data []byte) (any, error) {
		var r event.OperationsRequest
		if err := json.Unmarshal(data, &r); err != nil {
			return nil, err
		}
		return event.OperationsAnswer{Operations: []event.OperationStatus{{OperationID: r.IDs[0], State: event.Succeeded}}}, nil
	})()
	got, err := ask(b, "op")
	if err != nil || len(got.Operations) != 1 || got.Operations[0].OperationID != "op" {
		t.Errorf("answer is %+v, %v", got, err)
	}
}

func TestAsk_HandlerFails_ReturnsAskError(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	defer answer(t, b, func(_ context.Context, data []byte) (any, error) {
		if string(data) == `{"ids":["panic"]}` {
			panic("oh")
		}
		return nil, errors.New("ids: at most 500")
	})()
	for id, want := range map[string]string{"a": "ids: at most 500", "panic": "internal error: oh"} {
		_, err := ask(b, id)
		if refusal, ok := errors.AsType[*bus.AskError](err); !ok || refusal.Message != want {
			t.Errorf("error is %v, want an AskError with %q", err, want)
		}
	}
}

func TestAsk_NoSubscriber_ReturnsErrNoAnswer(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	if _, err := ask(b); !errors.Is(err, bus.ErrNoAnswer) {
		t.Errorf("error is %v, want ErrNoAnswer", err)
	}
}

func TestAsk_SlowHandler_TimesOut(t *testing.T) {
	t.Parallel()
	s := testkit.NATS(t)
	b := connect(t, s, bus.Config{Timeout: 100 * time.Millisecond}, bus.Deps{})
	defer answer(t, b, func(ctx context.Context, _ []byte) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})()
	_, err := ask(b)
	_, refused := errors.AsType[*bus.AskError](err) // both sides have the same deadline
	if !errors.Is(err, context.DeadlineExceeded) && !refused {
		t.Errorf("error is %v, want a deadline", err)
	}
}

func TestAnswer_Stop_WaitsForRunningHandlers(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	asked := make(chan struct{})
	ended := false
	stop := answer(t, b, func(ctx context.Context, _ []byte) (any, error) {
		close(asked)
		<-ctx.Done()
		ended = true // without the wait, this is a data race
		return nil, errors.New("shutting down")
	})
	done := make(chan error, 1)
	go func() { _, err := ask(b); done <- err }()
	within(t, asked, "the question arrives")
	stop()
	if !ended {
		t.Error("stop did not wait for the answer under way")
	}
	if err := within(t, done, "the answer"); err == nil {
		t.Error("the question was answered by a handler that gave up")
	}
	if _, err := ask(b); !errors.Is(err, bus.ErrNoAnswer) {
		t.Errorf("after stop: error is %v, want ErrNoAnswer", err)
	}
}

func TestAnswer_ClientTimeout_LimitsHandler(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	left := make(chan time.Duration, 2)
	defer answer(t, b, func(ctx context.Context, _ []byte) (any, error) {
		deadline, _ := ctx.Deadline()
		left <- time.Until(deadline)
		return event.OperationsAnswer{}, nil
	})()
	for _, wait := range []time.Duration{20 * time.Second, time.Hour} {
		var a event.OperationsAnswer
		require.NoError(t, b.AskWithTimeout(t.Context(), wait, event.AskOperations, event.OperationsRequest{}, &a))
		got, limit := <-left, min(wait, time.Minute)
		if got > limit || got < limit/2 { // without the client's timeout it would be 5 s
			t.Errorf("an asker that waits %s leaves %s for the answer, want about %s", wait, got, limit)
		}
	}
}

func TestAnswer_TooLargeForMessage_IsRefusal(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	defer answer(t, b, func(context.Context, []byte) (any, error) {
		return event.OperationsAnswer{Operations: []event.OperationStatus{{Message: strings.Repeat("x", event.MaxPayload)}}}, nil
	})()
	_, err := ask(b, "op")
	if refusal, ok := errors.AsType[*bus.AskError](err); !ok || !strings.Contains(refusal.Message, "at most 1048576 are possible") {
		t.Errorf("error is %v, want an AskError that names the limit", err)
	}
}

func TestPage_Lists_FitIntoMessages(t *testing.T) {
	t.Parallel()
	const huge = event.MaxPayload - 100<<10
	for name, tc := range map[string]struct {
		items []string
		want  []int
	}{
		"none":                {nil, []int{}},
		"short":               {slices.Repeat([]string{"x"}, 500), []int{500}},
		"long":                {slices.Repeat([]string{strings.Repeat("x", 5000)}, 400), []int{183, 183, 34}},
		"long when encoded":   {slices.Repeat([]string{strings.Repeat("<", 5000)}, 61), []int{30, 30, 1}},
		"one that is too big": {[]string{"a", strings.Repeat("x", huge), "b"}, []int{1, 1, 1}},
	} {
		got := []int{}
		for items := tc.items; len(items) > 0; {
			n, err := bus.Page(items)
			require.NoError(t, err)
			got, items = append(got, n), items[n:]
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: pages of %v, want %v", name, got, tc.want)
		}
	}
}
