package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kyma-project/keb/cmd/keb/internal/view"
	"github.com/kyma-project/keb/libs/api/operator"
)

// showTry prints what a worker was sent in one try of a step, and what it answered.
func (a *acting) showTry(ctx context.Context, client *operator.Client, id string) error {
	if _, err := strconv.ParseInt(a.try, 10, 64); err != nil && a.try != operator.TryRunning {
		return usageError("--try %q: must be the number of a line of --history, or %s", a.try, operator.TryRunning)
	}
	try, raw, err := client.Try(ctx, id, a.try)
	if err != nil {
		if errors.Is(err, operator.ErrNotFound) {
			return fmt.Errorf("%w; keb operation %s --history lists the tries", err, id)
		}
		return err
	}
	if a.json() {
		return printJSON(a.Out, raw)
	}
	_, err = io.WriteString(a.Out, tryText(try))
	return err
}

func tryText(try *operator.Try) string {
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(table, "%s:\t%s\n", name, value)
		}
	}
	row("step", try.Stage+"/"+try.Step)
	row("worker", try.Worker)
	attempt := fmt.Sprintf("%d of the stage, %d of the step", try.StageAttempt, try.StepAttempt)
	if try.First != nil {
		attempt += fmt.Sprintf("; %d tries since %s", try.Tries, view.Time(try.First.StartedAt))
	}
	row("attempt", attempt)
	_ = table.Flush() // a bytes.Buffer does not fail
	text.WriteString("\nSENT\n")
	writeSent(&text, try.Sent)
	writeAnswer(&text, try.Answer)
	return string(trimLines(text.Bytes()))
}

func writeSent(text *bytes.Buffer, s *operator.Sent) {
	if s == nil {
		text.WriteString("no worker was sent a command\n")
		return
	}
	table := tabwriter.NewWriter(text, 0, 0, 2, ' ', 0)
	limits := "execution " + milliseconds(s.ExecutionMS)
	if s.RetryTimeoutMS > 0 {
		limits += ", retries " + milliseconds(s.RetryTimeoutMS)
	}
	if s.WaitTimeoutMS > 0 {
		limits += ", waiting " + milliseconds(s.WaitTimeoutMS)
	}
	fmt.Fprintf(table, "limits:\t%s\n", limits)
	if len(s.Credentials) > 0 {
		fmt.Fprintf(table, "credentials to claim:\t%s\n", strings.Join(s.Credentials, ", "))
	}
	if s.Event != "" {
		fmt.Fprintf(table, "event:\t%s\n", s.Event)
	}
	_ = table.Flush()
	writeData(text, section{"parameters", s.Parameters, len(s.Parameters) > 0}, section{"changes", s.Update, s.Update != nil},
		section{"upgrade", s.Upgrade, s.Upgrade != nil}, section{"saved data of the workers", s.Details, len(s.Details) > 0})
	if len(s.Unknown) > 0 {
		fmt.Fprintf(text, "not recorded, because too large: %s\n", strings.Join(s.Unknown, ", "))
	}
	if !s.DetailsRecorded {
		text.WriteString("the saved data was not recorded: the operation started with an earlier release\n")
	}
}

func writeAnswer(text *bytes.Buffer, a *operator.Answer) {
	if a == nil {
		text.WriteString("\nrunning: no answer yet\n")
		return
	}
	text.WriteString("\nANSWERED\n")
	table := tabwriter.NewWriter(text, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "outcome:\t%s\n", a.Outcome)
	if a.Error != nil {
		fmt.Fprintf(table, "error:\t%s\n", view.OneLine(a.Error.String()))
	}
	if a.Message != "" {
		fmt.Fprintf(table, "message:\t%s\n", view.OneLine(a.Message))
	}
	if a.RetryAfterMS > 0 {
		fmt.Fprintf(table, "next try after:\t%s\n", milliseconds(a.RetryAfterMS))
	}
	if a.WorkerVersion != "" {
		fmt.Fprintf(table, "worker version:\t%s\n", a.WorkerVersion)
	}
	fmt.Fprintf(table, "executed:\t%s, for %s\n", view.Time(a.StartedAt), view.Duration(a.FinishedAt.Sub(a.StartedAt)))
	if a.QueuedMS > 0 {
		fmt.Fprintf(table, "queued before:\t%s\n", milliseconds(a.QueuedMS))
	}
	_ = table.Flush()
	writeData(text, section{"saved", a.Saved, len(a.Saved) > 0})
	if len(a.Unknown) > 0 {
		fmt.Fprintf(text, "also changed, values not recorded: %s\n", strings.Join(a.Unknown, ", "))
	}
}

func milliseconds(ms int64) string { return view.Duration(time.Duration(ms) * time.Millisecond) }
