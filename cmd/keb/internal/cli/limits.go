package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kyma-project/keb/cmd/keb/internal/view"
	"github.com/kyma-project/keb/libs/api/operator"
)

func newLimits(o *options) *cobra.Command {
	limits := &cobra.Command{
		Use:   "limits",
		Short: "Show and change the limits on concurrency and rate",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return answer(cmd.Context(), o, (*operator.Client).Limits, o.printLimits)
		},
	}
	var dryRun bool
	apply := &cobra.Command{
		Use:   "apply FILE",
		Short: "Replace the limits with those in a file",
		Long: `Replace the limits with those in a file; FILE - reads the standard input. The file is checked, and the changes are printed. All
orchestrators apply it within a second. docs/operator.md describes the format. Role: operator.`,
		Example: "  keb limits apply limits.yaml --dry-run\n  keb limits apply limits.yaml",
		Args:    exactly("a file with limits"),
		RunE:    func(cmd *cobra.Command, args []string) error { return o.applyLimits(cmd.Context(), args[0], dryRun) },
	}
	apply.Flags().BoolVar(&dryRun, "dry-run", false, "check the file and print the changes, without applying them")
	document := &cobra.Command{
		Use:   "document",
		Short: "Print the document with the limits, as it was applied",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return answer(cmd.Context(), o, (*operator.Client).Limits, func(limits *operator.Limits) error {
				_, err := io.WriteString(o.Out, limits.Document)
				return err
			})
		},
	}
	limits.AddCommand(apply, document)
	return limits
}

func (o *options) applyLimits(ctx context.Context, file string, dryRun bool) error {
	document, err := o.readFile(file)
	if err != nil {
		return err
	}
	request := operator.LimitsRequest{Document: string(document), DryRun: dryRun}
	request.By = o.author()
	return answer(ctx, o, func(c *operator.Client, ctx context.Context) (*operator.LimitsAnswer, json.RawMessage, error) {
		return c.ApplyLimits(ctx, request)
	}, func(applied *operator.LimitsAnswer) error {
		var text bytes.Buffer
		for _, line := range applied.Changes {
			fmt.Fprintln(&text, view.OneLine(line))
		}
		switch {
		case len(applied.Changes) == 0:
			fmt.Fprintln(&text, "no change")
		case dryRun:
			fmt.Fprintln(&text, "not applied (--dry-run)")
		default:
			fmt.Fprintf(&text, "applied as version %d\n", applied.Version)
		}
		_, err := io.Copy(o.Out, &text)
		return err
	})
}

// readFile reads a file, or the standard input if its name is "-".
func (o *options) readFile(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(o.In)
	}
	return os.ReadFile(name)
}

func (o *options) printLimits(limits *operator.Limits) error {
	var text bytes.Buffer
	if len(limits.Limits) == 0 {
		fmt.Fprintln(&text, "there are no limits")
	} else {
		var rows [][]string
		for i := range limits.Limits {
			rows = append(rows, limitRows(&limits.Limits[i])...)
		}
		text.WriteString(view.Table([]string{"LIMIT", "SCOPE", "EACH", "RATE", "COMMANDS", "OPERATIONS", "WAITING"}, rows, 0))
	}
	for _, account := range slices.Sorted(maps.Keys(limits.Weights)) {
		fmt.Fprintf(&text, "weight of %s: %g\n", view.OneLine(account), limits.Weights[account])
	}
	if limits.AppliedAt != nil {
		fmt.Fprintf(&text, "version %d, applied by %s at %s\n", limits.Version, view.OneLine(limits.AppliedBy), view.Time(*limits.AppliedAt))
	}
	_, err := io.Copy(o.Out, &text)
	return err
}

// scopeText returns a scope as text, for example "plan azure, worker ias or edp".
func scopeText(scope map[string][]string) string {
	var parts []string
	for _, member := range slices.Sorted(maps.Keys(scope)) {
		parts = append(parts, member+" "+strings.Join(scope[member], " or "))
	}
	if len(parts) == 0 {
		return "everything"
	}
	return strings.Join(parts, ", ")
}

// limitRows returns the rows of a limit. One with each has a row with its bounds, and one with the use of each value; others have one row.
func limitRows(l *operator.Limit) [][]string {
	var commands, operations operator.LimitUse
	for _, u := range l.Use {
		commands.InUse, commands.Waiting = commands.InUse+u.InUse, commands.Waiting+u.Waiting
	}
	for _, u := range l.OperationUse {
		operations.InUse, operations.Waiting = operations.InUse+u.InUse, operations.Waiting+u.Waiting
	}
	waiting := commands.Waiting + operations.Waiting
	if l.Each == "" {
		return [][]string{{
			l.Name, scopeText(l.Scope), "-", dash(l.Rate), usedOf(commands.InUse, l.Commands), usedOf(operations.InUse, l.Operations), view.Number(waiting),
		}}
	}
	rows := [][]string{{l.Name, scopeText(l.Scope), l.Each, dash(l.Rate), view.Number(l.Commands), view.Number(l.Operations), view.Number(waiting)}}
	for _, u := range l.Use {
		rows = append(rows, []string{"", "", u.Value, "", view.Number(u.InUse), "", view.Number(u.Waiting)})
	}
	for _, u := range l.OperationUse {
		rows = append(rows, []string{"", "", u.Value, "", "", view.Number(u.InUse), view.Number(u.Waiting)})
	}
	return rows
}

func usedOf(used, most int) string {
	if most == 0 {
		return view.Number(used)
	}
	return fmt.Sprintf("%d/%d", used, most)
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
