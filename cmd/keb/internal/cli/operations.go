package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kyma-project/keb/cmd/keb/internal/operator"
	"github.com/kyma-project/keb/cmd/keb/internal/view"
	"github.com/kyma-project/keb/cmd/keb/internal/watch"
	"github.com/kyma-project/keb/libs/event"
)

func newOperations(o *options) *cobra.Command {
	var filter operator.Filter
	cmd := &cobra.Command{
		Use:     "operations",
		Aliases: []string{"ops"},
		Short:   "List operations, newest first",
		Example: "  keb operations --state 'in progress' --plan azure\n  keb operations --instance 0d7ee4a2-9a58-4a50-ae6b-f7f2ee8ea1d5 -o json",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkFilter(&filter); err != nil {
				return err
			}
			client, err := o.operatorClient()
			if err != nil {
				return err
			}
			list, raw, err := client.Operations(cmd.Context(), filter)
			if err != nil {
				return err
			}
			if o.json() {
				return printJSON(o.Out, raw)
			}
			return printOperations(o.Out, list, time.Now())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&filter.State, "state", "", "only operations in this state: "+strings.Join(states(), ", "))
	flags.StringVar(&filter.Type, "type", "", "only operations of this type: "+strings.Join(types(), ", "))
	flags.StringVar(&filter.Plan, "plan", "", "only operations of this plan, for example azure")
	flags.StringVar(&filter.Instance, "instance", "", "only operations of this instance")
	flags.IntVar(&filter.Page, "page", 1, "page, from 1")
	flags.IntVar(&filter.PageSize, "page-size", 50, "operations on a page")
	return cmd
}

// states lists what --state takes, in the order of an operation's life.
func states() []string {
	return []string{string(event.Pending), string(event.InProgress), string(event.Succeeded), string(event.Failed), string(event.Cancelled)}
}

// types lists what --type takes.
func types() []string {
	var names []string
	for _, t := range event.OperationTypes() {
		names = append(names, string(t))
	}
	return names
}

// checkFilter refuses what could only give an empty list, so that a typing error does not look like an answer.
func checkFilter(f *operator.Filter) error {
	// The state has a blank in it, which is a nuisance in a shell.
	if f.State == "in-progress" || f.State == "in_progress" {
		f.State = string(event.InProgress)
	}
	switch {
	case f.State != "" && !slices.Contains(states(), f.State):
		return usageError("--state %q is not a state; allowed: %s", f.State, strings.Join(states(), ", "))
	case f.Type != "" && !slices.Contains(types(), f.Type):
		return usageError("--type %q is not an operation type; allowed: %s", f.Type, strings.Join(types(), ", "))
	case f.Page < 1:
		return usageError("--page %d is not a page; they count from 1", f.Page)
	case f.PageSize < 1:
		return usageError("--page-size must be at least 1")
	}
	return nil
}

// printOperations prints a table: what needs attention is in its last column.
func printOperations(out io.Writer, list *operator.Operations, now time.Time) error {
	if len(list.Data) == 0 {
		_, err := fmt.Fprintln(out, "no operations")
		return err
	}
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "OPERATION\tTYPE\tSTATE\tPLAN\tINSTANCE\tAGE\tWHERE\t")
	for i := range list.Data {
		op := &list.Data[i]
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", op.ID, op.Type, op.State, op.Plan, op.InstanceID,
			view.Duration(now.Sub(op.CreatedAt)), where(op))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if list.Count < list.TotalCount {
		fmt.Fprintf(&text, "%d of %d operations; see --page\n", list.Count, list.TotalCount)
	}
	_, err := out.Write(trimLines(text.Bytes()))
	return err
}

// trimLines drops what a table leaves at the ends of its lines.
func trimLines(text []byte) []byte {
	var out bytes.Buffer
	for line := range strings.Lines(string(text)) {
		out.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return out.Bytes()
}

// where is the position of an operation and what it waits for or failed with.
func where(op *operator.Operation) string {
	var parts []string
	if op.Step != "" && op.State != operator.StateSucceeded {
		parts = append(parts, op.Stage+"/"+op.Step)
	}
	switch {
	case op.State == operator.StateFailed && op.Error != nil:
		parts = append(parts, op.Error.String())
	case !op.Final() && op.WaitingFor != "":
		parts = append(parts, "waits for: "+op.WaitingFor)
	case len(op.NotCompleted) > 0:
		parts = append(parts, "not completed: "+strings.Join(op.NotCompleted, ", "))
	}
	return strings.Join(strings.Fields(strings.Join(parts, "  ")), " ")
}

func newOperation(o *options) *cobra.Command {
	var history bool
	cmd := &cobra.Command{
		Use:   "operation ID",
		Short: "Show one operation with its stages and steps",
		Args:  exactly("the id of an operation"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := o.operatorClient()
			if err != nil {
				return err
			}
			op, raw, err := client.Operation(cmd.Context(), args[0])
			if err != nil {
				return explainUnknown(err, args[0])
			}
			if o.json() {
				return printJSON(o.Out, raw)
			}
			text := strings.Join(view.Render(op, time.Now(), view.Size{}), "\n") + "\n"
			if history {
				text += historyText(op)
			}
			_, err = io.WriteString(o.Out, text)
			return err
		},
	}
	cmd.Flags().BoolVar(&history, "history", false, "also list every execution of a step")
	return cmd
}

// historyText lists every execution in the order of cursors, which is the order in which they counted.
func historyText(op *operator.Operation) string {
	var text bytes.Buffer
	text.WriteString("\nhistory:\n")
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, e := range op.History {
		finished, told, step, tries := "", e.Message, "", ""
		if e.Step != "" {
			step, tries = e.Stage+"/"+e.Step, fmt.Sprintf("%d.%d", e.StageAttempt, e.StepAttempt)
		}
		if e.FinishedAt != nil {
			finished = e.FinishedAt.Local().Format("2006-01-02 15:04:05.000")
		}
		if e.Error != nil {
			told = e.Error.String()
		}
		fmt.Fprintf(table, "  %d\t%s\t%s\t%s\t%s\t%s\t\n", e.Cursor, finished, step, tries, e.Outcome,
			strings.Join(strings.Fields(told), " "))
	}
	_ = table.Flush() // a bytes.Buffer does not fail
	return string(trimLines(text.Bytes()))
}

func explainUnknown(err error, id string) error {
	if errors.Is(err, operator.ErrNotFound) {
		return fmt.Errorf("there is no operation %s; keb operations lists them", id)
	}
	return err
}

func newWatch(o *options) *cobra.Command {
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "watch ID",
		Short: "Follow an operation until it ends",
		Long: `Follow an operation until it ends: live on a terminal, one line per change otherwise, one JSON object per change with -o json.
The exit code is 0 if the operation succeeded.`,
		Args: exactly("the id of an operation"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if every < 50*time.Millisecond {
				return usageError("--every must be at least 50ms")
			}
			client, err := o.operatorClient()
			if err != nil {
				return err
			}
			op, err := watch.Follow(cmd.Context(), client, args[0], o.printer(), watch.Config{Every: every})
			if err != nil {
				return explainUnknown(err, args[0])
			}
			return outcome(op)
		},
	}
	cmd.Flags().DurationVar(&every, "every", 500*time.Millisecond, "time between two looks")
	return cmd
}

// outcome is the error of an operation that did not succeed.
func outcome(op *operator.Operation) error {
	if op.State == operator.StateSucceeded {
		return nil
	}
	if op.Error != nil {
		return fmt.Errorf("operation %s %s: %s", op.ID, op.State, op.Error)
	}
	return fmt.Errorf("operation %s %s", op.ID, op.State)
}
