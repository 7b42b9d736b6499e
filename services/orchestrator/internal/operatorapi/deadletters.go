package operatorapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/mask"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// DeadLetters keeps the messages that could not be handled.
type DeadLetters interface {
	DeadLetters(ctx context.Context, before uint64, limit int) (bus.DeadLetters, error)
	DeadLetter(ctx context.Context, seq uint64) (*bus.DeadLetter, error)
	DropDeadLetter(ctx context.Context, seq uint64) error
	Redrive(ctx context.Context, d *bus.DeadLetter) error
}

// Commands sends commands again.
type Commands interface {
	SendAgain(ctx context.Context, operationID string, cursor int64) error
	Extend(ctx context.Context, worker string, c event.CommandRef, by time.Duration) (time.Time, error)
}

// redriveEffects says what the redrive of a message of a stream does.
var redriveEffects = map[event.Stream]string{
	event.StreamRequests: "The request is published again. An operation that exists already does not start a second time.",
	event.StreamCommands: "The operation sends its command again, with its current data, if it still awaits the result of this one.",
	event.StreamResults:  "The result is published again. It counts only if the operation still awaits it.",
	event.StreamFacts:    "The fact is published again, to all readers. They ignore facts that they know.",
	event.StreamSignals:  "The event is published again. An event with the same key, source and ID is stored once.",
}

func (a *API) deadLetterRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /dead-letters", a.answer(a.listDeadLetters))
	mux.HandleFunc("GET /dead-letters/{id}", a.answer(a.getDeadLetter))
	a.actionRoute(mux, "POST /dead-letters/{id}/redrive", "redrive_dead_letter", a.redriveDeadLetter)
	a.actionRoute(mux, "DELETE /dead-letters/{id}", "drop_dead_letter", a.dropDeadLetter)
}

func (a *API) listDeadLetters(r *http.Request) (any, error) {
	q := r.URL.Query()
	limit, _, err := parsePage(q)
	if err == nil && q.Get("page") != "" {
		err = errors.New("page: use before, the nextBefore of the previous page")
	}
	var before uint64
	if text := q.Get("before"); err == nil && text != "" {
		if before, err = strconv.ParseUint(text, 10, 64); err != nil || before == 0 {
			err = fmt.Errorf("before %.50q: must be the nextBefore of the previous page", text)
		}
	}
	if err != nil {
		return nil, badRequest(err)
	}
	page, err := a.deps.DeadLetters.DeadLetters(r.Context(), before, limit)
	if err != nil {
		return nil, err
	}
	out := operator.DeadLetterList{NextBefore: page.Next}
	out.Data = make([]operator.DeadLetter, len(page.Letters))
	for i := range page.Letters {
		out.Data[i] = viewDeadLetter(&page.Letters[i])
	}
	out.Count, out.TotalCount = len(out.Data), int(page.Total)
	return out, nil
}

func (a *API) getDeadLetter(r *http.Request) (any, error) {
	letter, err := a.readDeadLetter(r)
	if err != nil {
		return nil, err
	}
	out := operator.DeadLetterDetail{DeadLetter: viewDeadLetter(letter), Headers: map[string]string{}}
	for name, values := range letter.Header {
		out.Headers[name] = maskHeader(name, strings.Join(values, ", "))
	}
	out.Payload, out.PayloadTruncated = maskPayload(letter.Data)
	out.PayloadTruncated = out.PayloadTruncated || letter.Truncated
	return out, nil
}

// readDeadLetter reads the dead letter of a request.
func (a *API) readDeadLetter(r *http.Request) (*bus.DeadLetter, error) {
	seq, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
	if err != nil || seq == 0 {
		return nil, noDeadLetter(bus.ErrNoDeadLetter, r)
	}
	letter, err := a.deps.DeadLetters.DeadLetter(r.Context(), seq)
	if err != nil {
		return nil, noDeadLetter(err, r)
	}
	note(r.Context(), func(action *store.Action) { action.Detail = clip(letter.Subject) })
	return letter, nil
}

// noDeadLetter returns err, in words for the client if there is no dead letter.
func noDeadLetter(err error, r *http.Request) error {
	if errors.Is(err, bus.ErrNoDeadLetter) {
		return notFound(fmt.Errorf("there is no dead letter %.50q: it was redriven or dropped, or it is older than 30 days", r.PathValue("id")))
	}
	return err
}

func (a *API) dropDeadLetter(r *http.Request) (any, error) {
	letter, err := a.readDeadLetter(r)
	if err != nil {
		return nil, err
	}
	if err := a.deps.DeadLetters.DropDeadLetter(r.Context(), letter.Seq); err != nil {
		return nil, noDeadLetter(err, r)
	}
	a.deps.Log.Info("dead letter dropped", "dead_letter", letter.Seq, "by", caller(r.Context()).Name)
	return nil, nil
}

func (a *API) redriveDeadLetter(r *http.Request) (any, error) {
	letter, err := a.readDeadLetter(r)
	if err != nil {
		return nil, err
	}
	if letter.Stream == event.StreamCommands {
		err = a.redriveCommand(r.Context(), letter)
	} else {
		err = a.deps.DeadLetters.Redrive(r.Context(), letter)
	}
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, fmt.Errorf("%w: its operation does not exist", bus.ErrNotRedrivable)
	case err != nil:
		return nil, err
	}
	a.deps.Log.Info("dead letter redriven", "dead_letter", letter.Seq, "by", caller(r.Context()).Name)
	return nil, nil
}

// redriveCommand sends the command of the operation again and drops the dead letter. The dead letter itself is not published: a worker may write
// dead letters, and must not get another worker to execute its text.
func (a *API) redriveCommand(ctx context.Context, letter *bus.DeadLetter) error {
	id, cursor, ok := commandOf(letter)
	if !ok {
		return fmt.Errorf("%w: it names no command of an operation", bus.ErrNotRedrivable)
	}
	if err := a.deps.Commands.SendAgain(ctx, id, cursor); err != nil {
		return err
	}
	if err := a.deps.DeadLetters.DropDeadLetter(ctx, letter.Seq); err != nil && !errors.Is(err, bus.ErrNoDeadLetter) {
		return fmt.Errorf("the command is sent again, but %w", err)
	}
	return nil
}

// commandOf returns the operation and the cursor of a command.
func commandOf(letter *bus.DeadLetter) (operationID string, cursor int64, ok bool) {
	if letter.Event.Context == nil {
		return "", 0, false
	}
	operationID, number, _ := strings.Cut(letter.Event.ID(), "/")
	cursor, err := strconv.ParseInt(number, 10, 64)
	return operationID, cursor, err == nil && operationOf(letter) == operationID
}

// operationOf returns the ID of the operation that a message belongs to; empty if it belongs to none.
func operationOf(letter *bus.DeadLetter) string {
	if letter.Event.Context == nil {
		return ""
	}
	id, err := uuid.Parse(letter.Event.Subject())
	if err != nil {
		return ""
	}
	return id.String()
}

// maxHeader limits texts of messages.
const maxHeader = 1000

func clip(text string) string {
	if len(text) > maxHeader {
		return strings.ToValidUTF8(text[:maxHeader], "") + "..."
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

func viewDeadLetter(d *bus.DeadLetter) operator.DeadLetter {
	out := operator.DeadLetter{
		ID: d.Seq, Time: d.Time, Stream: string(d.Stream), Subject: clip(d.Subject), Consumer: clip(d.Consumer), Reason: mask.Text(clip(d.Reason)),
		Operation: operationOf(d), Size: d.Size, Truncated: d.Truncated,
	}
	if d.Event.Context != nil {
		out.Type, out.EventID = clip(d.Event.Type()), clip(d.Event.ID())
	}
	_, _, isCommand := commandOf(d)
	switch err := d.Redrivable(); {
	case d.Stream == event.StreamCommands && !isCommand:
		out.Redrive = "Not possible: it names no command of an operation."
	case d.Stream != event.StreamCommands && err != nil:
		out.Redrive = "Not possible: " + strings.TrimPrefix(err.Error(), bus.ErrNotRedrivable.Error()+": ") + "."
	default:
		out.Redrivable, out.Redrive = true, redriveEffects[d.Stream]
	}
	return out
}
