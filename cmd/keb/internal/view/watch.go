package view

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/kyma-project/keb/libs/api/operator"
)

// Source returns the current state of an operation.
type Source interface {
	Operation(ctx context.Context, id string) (*operator.OperationDetail, json.RawMessage, error)
}

// Printer prints the answers of a source.
type Printer interface {
	// Show is called with every answer, also if nothing has changed. now is the time of the answer.
	Show(op *operator.OperationDetail, raw json.RawMessage, now time.Time) error
	// Lost is called once when the source stops answering.
	Lost(err error, now time.Time) error
}

// FollowConfig configures Follow.
type FollowConfig struct {
	// Every is the interval between two requests; zero means half a second.
	Every time.Duration
	// Await is the time limit for an operation to become known. An accepted operation becomes known a moment later.
	Await time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Follow shows an operation until it has ended and returns its final state. After an error that is temporary (operator.Temporary), Follow
// retries until ctx ends, because the source may be restarting. It returns other errors, and every error of a source that has never answered.
func Follow(ctx context.Context, source Source, id string, printer Printer, cfg FollowConfig) (*operator.OperationDetail, error) {
	if cfg.Every <= 0 {
		cfg.Every = 500 * time.Millisecond
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	ticker := time.NewTicker(cfg.Every)
	defer ticker.Stop()
	answered, shown, lost, began := false, false, false, cfg.Now()
	for {
		op, raw, err := source.Operation(ctx, id)
		switch {
		case err == nil:
			answered, shown, lost = true, true, false
			if err := printer.Show(op, raw, cfg.Now()); err != nil {
				return nil, fmt.Errorf("show operation: %w", err)
			}
			if op.Final() {
				return op, nil
			}
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !shown && errors.Is(err, operator.ErrNotFound) && cfg.Now().Sub(began) < cfg.Await:
			answered, lost = true, false
		case !answered || !operator.Temporary(err):
			return nil, err
		case !lost:
			lost = true
			if err := printer.Lost(err, cfg.Now()); err != nil {
				return nil, fmt.Errorf("show operation: %w", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-ticker.C:
		}
	}
}

// lossNote is the line about a source that stops answering.
func lossNote(err error) string { return OneLine(err.Error()) + "; still trying" }

// Lines prints one line per change, with the time of day.
type Lines struct {
	Out io.Writer
	// Err is for the errors of the source; nil means Out.
	Err io.Writer
	// Prefix is printed before the time of day.
	Prefix string

	changes Changes
}

// Show prints the changes since the last answer.
func (l *Lines) Show(op *operator.OperationDetail, _ json.RawMessage, now time.Time) error {
	var out bytes.Buffer
	for _, line := range l.changes.Next(op, now) {
		l.line(&out, now, line)
	}
	_, err := l.Out.Write(out.Bytes())
	return err
}

// Lost prints the error.
func (l *Lines) Lost(err error, now time.Time) error {
	var out bytes.Buffer
	l.line(&out, now, lossNote(err))
	to := l.Out
	if l.Err != nil {
		to = l.Err
	}
	_, err = to.Write(out.Bytes())
	return err
}

func (l *Lines) line(out *bytes.Buffer, now time.Time, text string) {
	fmt.Fprintf(out, "%s%s %s\n", l.Prefix, Time(now), text)
}

// Terminal rewrites the lines that it has printed.
type Terminal struct {
	Out io.Writer
	// Size is called before each rewrite; nil means no limit.
	Size func() Size

	printed int
}

// Show draws an operation.
func (t *Terminal) Show(op *operator.OperationDetail, _ json.RawMessage, now time.Time) error {
	var size Size
	if t.Size != nil {
		size = t.Size()
	}
	// The cursor stays in the line below the block, so that line is not used.
	size.Height = max(0, size.Height-1)
	if op.Final() {
		// The last block is not rewritten, so it may be longer than the terminal.
		size.Height = 0
	}
	return t.Draw(Render(op, now, size))
}

// Lost adds a line below the block; the next answer overwrites it.
func (t *Terminal) Lost(err error, _ time.Time) error {
	t.printed++
	line := lossNote(err)
	if t.Size != nil {
		if width := t.Size().Width; width > 0 {
			line = cut(line, width)
		}
	}
	_, err = fmt.Fprintln(t.Out, line)
	return err
}

// Draw overwrites the last block of lines.
func (t *Terminal) Draw(lines []string) error {
	var out bytes.Buffer
	if t.printed > 0 {
		fmt.Fprintf(&out, "\x1b[%dA\r", t.printed)
	}
	for _, line := range lines {
		out.WriteString(line)
		out.WriteString("\x1b[K\n")
	}
	out.WriteString("\x1b[J")
	t.printed = len(lines)
	_, err := t.Out.Write(out.Bytes())
	return err
}

// JSON prints each answer that differs from the one before, on a line of its own.
type JSON struct {
	Out io.Writer
	// Err is for the errors of the source.
	Err io.Writer

	last string
}

// Show prints the answer, with EscapeControls.
func (j *JSON) Show(_ *operator.OperationDetail, raw json.RawMessage, _ time.Time) error {
	var out bytes.Buffer
	if err := json.Compact(&out, raw); err != nil {
		return err
	}
	if out.String() == j.last {
		return nil
	}
	j.last = out.String()
	_, err := fmt.Fprintf(j.Out, "%s\n", EscapeControls(out.Bytes()))
	return err
}

// Lost prints the error.
func (j *JSON) Lost(err error, _ time.Time) error {
	_, err = fmt.Fprintln(j.Err, lossNote(err))
	return err
}
