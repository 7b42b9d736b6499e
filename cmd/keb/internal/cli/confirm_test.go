package cli

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

func TestConfirmCount_Interrupted_Ends(t *testing.T) {
	t.Parallel()
	in, typed := io.Pipe()
	// An interruption that is ignored becomes a wrong answer.
	defer time.AfterFunc(10*time.Second, func() { _ = typed.Close() }).Stop()
	defer typed.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := confirmCount(ctx, in, io.Discard, "cancel", 12); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}

func TestWebhooksCreate_Interrupted_Ends(t *testing.T) {
	t.Parallel()
	in, typed := io.Pipe()
	// An interruption that is ignored becomes an input without a URL.
	defer time.AfterFunc(10*time.Second, func() { _ = typed.Close() }).Stop()
	defer typed.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var said strings.Builder
	if code := Main(ctx, []string{"webhooks", "create", "chat", "-"}, IO{In: in, Out: io.Discard, Err: &said}); code != exitFailed || said.Len() > 0 {
		t.Errorf("code %d, %q", code, said.String())
	}
}

func TestConfirmCount_Answers_AreCompared(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]bool{"12\n": true, " 12": true, "11\n": false, "y\n": false, "": false} {
		if err := confirmCount(t.Context(), strings.NewReader(answer), io.Discard, "cancel", 12); (err == nil) != want {
			t.Errorf("%q: error %v, confirmed should be %t", answer, err, want)
		}
	}
}
