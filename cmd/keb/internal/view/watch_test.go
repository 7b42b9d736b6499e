package view_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/cmd/keb/internal/view"
	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
)

var errAway = &operator.UnreachableError{Address: "keb:8081", Err: errors.New("no\x1b[2J answer")}

// script returns its answers in order; the last one is repeated.
type script struct {
	answers []answer
	asked   int
}

type answer struct {
	op  *operator.OperationDetail
	err error
}

func (s *script) Operation(context.Context, string) (*operator.OperationDetail, json.RawMessage, error) {
	a := s.answers[min(s.asked, len(s.answers)-1)]
	s.asked++
	raw, err := json.Marshal(a.op)
	if err != nil {
		return nil, nil, err
	}
	return a.op, raw, a.err
}

func operation(state string) *operator.OperationDetail {
	started := time.Date(2026, 3, 4, 10, 0, 0, 0, time.UTC)
	op := &operator.OperationDetail{Operation: operator.Operation{
		ID: "op-1", Type: "provision", InstanceID: "inst-1", Plan: "azure", State: event.OperationState(state), StartedAt: &started,
	}}
	if op.Final() {
		op.FinishedAt = &started
	}
	return op
}

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func config() view.FollowConfig {
	return view.FollowConfig{Every: time.Millisecond, Now: func() time.Time { return noon }}
}

func TestFollow_FinalState_Ends(t *testing.T) {
	t.Parallel()
	source := &script{answers: []answer{{op: operation("pending")}, {op: operation("in progress")}, {op: operation("succeeded")}}}
	var out bytes.Buffer
	op, err := view.Follow(t.Context(), source, "op-1", &view.Lines{Out: &out, Prefix: "  "}, config())
	if err != nil || op.State != "succeeded" {
		t.Fatalf("%v, %v", op, err)
	}
	want := []string{
		"  2026-03-04T12:00:00Z provision op-1 of instance inst-1, plan azure",
		"  2026-03-04T12:00:00Z pending",
		"  2026-03-04T12:00:00Z in progress",
		"  2026-03-04T12:00:00Z succeeded after 0ms",
	}
	if diff := cmp.Diff(want, strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")); diff != "" {
		t.Errorf("lines differ (-want +got):\n%s", diff)
	}
}

func TestFollow_SourceRestarts_Continues(t *testing.T) {
	t.Parallel()
	source := &script{answers: []answer{
		{op: operation("in progress")}, {err: errAway}, {err: errAway}, {err: &operator.StatusError{Status: 503}}, {op: operation("failed")},
	}}
	for name, printer := range map[string]func(out, errs io.Writer) view.Printer{
		"lines": func(out, errs io.Writer) view.Printer { return &view.Lines{Out: out, Err: errs} },
		"JSON":  func(out, errs io.Writer) view.Printer { return &view.JSON{Out: out, Err: errs} },
	} {
		var out, errs bytes.Buffer
		source.asked = 0
		op, err := view.Follow(t.Context(), source, "op-1", printer(&out, &errs), config())
		if err != nil || op.State != "failed" {
			t.Fatalf("%s: %v, %v", name, op, err)
		}
		if n := strings.Count(errs.String(), "(no[2J answer); still trying"); n != 1 || strings.Contains(out.String(), "trying") {
			t.Errorf("%s: the loss is printed %d times, want once:\n%s", name, n, &errs)
		}
	}
}

func TestFollow_RejectedLater_Fails(t *testing.T) {
	t.Parallel()
	for _, rejected := range []error{errors.New("the token is not valid"), operator.ErrNotFound, &operator.StatusError{Status: 400}} {
		source := &script{answers: []answer{{op: operation("in progress")}, {err: rejected}, {op: operation("succeeded")}}}
		if _, err := view.Follow(t.Context(), source, "op-1", &view.Lines{Out: &bytes.Buffer{}}, config()); !errors.Is(err, rejected) {
			t.Errorf("error %v, want %v", err, rejected)
		}
	}
}

func TestFollow_SourceNeverAnswered_Fails(t *testing.T) {
	t.Parallel()
	source := &script{answers: []answer{{err: errAway}}}
	if _, err := view.Follow(t.Context(), source, "op-1", &view.Lines{Out: &bytes.Buffer{}}, config()); !errors.Is(err, errAway) {
		t.Errorf("error %v, want %v", err, errAway)
	}
}

func TestFollow_UnknownOperation_IsAwaited(t *testing.T) {
	t.Parallel()
	answers := []answer{{err: operator.ErrNotFound}, {op: operation("succeeded")}}
	cfg := config()
	if _, err := view.Follow(t.Context(), &script{answers: answers}, "op-1", &view.JSON{Out: &bytes.Buffer{}}, cfg); !errors.Is(err, operator.ErrNotFound) {
		t.Errorf("error %v, want %v", err, operator.ErrNotFound)
	}
	cfg.Await = time.Minute
	if _, err := view.Follow(t.Context(), &script{answers: answers}, "op-1", &view.JSON{Out: &bytes.Buffer{}}, cfg); err != nil {
		t.Error(err)
	}
	at := noon
	cfg.Now = func() time.Time {
		at = at.Add(25 * time.Second)
		return at
	}
	never := &script{answers: []answer{{err: operator.ErrNotFound}}}
	if _, err := view.Follow(t.Context(), never, "op-1", &view.JSON{Out: &bytes.Buffer{}}, cfg); !errors.Is(err, operator.ErrNotFound) {
		t.Errorf("after a minute: error %v, want %v", err, operator.ErrNotFound)
	}
}

func TestFollow_ContextEnds_Stops(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	printer := &cancelling{cancel: cancel}
	source := &script{answers: []answer{{op: operation("in progress")}}}
	if _, err := view.Follow(ctx, source, "op-1", printer, config()); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}

type cancelling struct{ cancel func() }

func (c *cancelling) Show(*operator.OperationDetail, json.RawMessage, time.Time) error {
	c.cancel()
	return nil
}
func (c *cancelling) Lost(error, time.Time) error { return nil }

func TestJSON_SameAnswer_IsPrintedOnce(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	printer := &view.JSON{Out: &out}
	for _, raw := range []string{`{"state": "pending"}`, `{"state":"pending"}`, "{\n\"state\":\"succeeded\"}"} {
		require.NoError(t, printer.Show(nil, json.RawMessage(raw), noon))
	}
	if want := "{\"state\":\"pending\"}\n{\"state\":\"succeeded\"}\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}

func TestTerminal_NewAnswer_RewritesLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	printer := &view.Terminal{Out: &out, Size: func() view.Size { return view.Size{Width: 30, Height: 3} }}
	for _, state := range []string{"in progress", "in progress", "succeeded"} {
		op := operation(state)
		op.Stages = []operator.Stage{{Name: "start", State: operator.StateFinished}}
		require.NoError(t, printer.Show(op, nil, noon))
	}
	const first = "provision op-1  plan azure  i…\x1b[K\n"
	const block = first + "in progress for 2h00m\x1b[K\n\x1b[J"
	// The last block is complete, even if the terminal has too few lines.
	const last = first + "succeeded after 0ms\x1b[K\n✓ start\x1b[K\n\x1b[J"
	if want := block + "\x1b[2A\r" + block + "\x1b[2A\r" + last; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}

func TestTerminal_AnswerAfterLoss_OverwritesNote(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	printer := &view.Terminal{Out: &out, Size: func() view.Size { return view.Size{Width: 40, Height: 9} }}
	op := operation("succeeded")
	require.NoError(t, errors.Join(printer.Show(op, nil, noon), printer.Lost(errAway, noon), printer.Show(op, nil, noon)))
	if !strings.Contains(out.String(), "cannot connect to keb:8081; is keb up r…\n\x1b[3A\r") {
		t.Errorf("printed %q, want the note and then three lines up", out.String())
	}
}
