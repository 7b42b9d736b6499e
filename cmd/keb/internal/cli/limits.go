package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kyma-project/keb/cmd/keb/internal/view"
	"github.com/kyma-project/keb/libs/api/operator"
)

func newLimits(o *options) *cobra.Command {
	limits := &cobra.Command{
		Use:   "limits",
		Short: "Show and change the limits on concurrency and rate",
		Args:  exactly(),
		RunE:  func(cmd *cobra.Command, _ []string) error { return o.showLimits(cmd.Context()) },
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
		RunE:  func(cmd *cobra.Command, _ []string) error { return o.printLimits(cmd.Context()) },
	}
	limits.AddCommand(apply, document)
	return limits
}

func (o *options) applyLimits(ctx context.Context, file string, dryRun bool) error {
	read := func() ([]byte, error) { return os.ReadFile(file) }
	if file == "-" {
		read = func() ([]byte, error) { return io.ReadAll(o.In) }
	}
	document, err := read()
	if err != nil {
		return err
	}
	client, err := o.operatorClient()
	if err != nil {
		return err
	}
	request := operator.LimitsRequest{Document: string(document), DryRun: dryRun}
	request.By = o.author()
	answer, raw, err := client.ApplyLimits(ctx, request)
	if err != nil {
		return err
	}
	if o.json() {
		return printJSON(o.Out, raw)
	}
	var text bytes.Buffer
	for _, line := range answer.Changes {
		fmt.Fprintln(&text, flat(line))
	}
	switch {
	case len(answer.Changes) == 0:
		fmt.Fprintln(&text, "no change")
	case dryRun:
		fmt.Fprintln(&text, "not applied (--dry-run)")
	default:
		fmt.Fprintf(&text, "applied as version %d\n", answer.Version)
	}
	_, err = io.Copy(o.Out, &text)
	return err
}

func (o *options) printLimits(ctx context.Context) error {
	client, err := o.operatorClient()
	if err != nil {
		return err
	}
	limits, raw, err := client.Limits(ctx)
	if err != nil {
		return err
	}
	if o.json() {
		return printJSON(o.Out, raw)
	}
	_, err = io.WriteString(o.Out, limits.Document)
	return err
}

func (o *options) showLimits(ctx context.Context) error {
	client, err := o.operatorClient()
	if err != nil {
		return err
	}
	limits, raw, err := client.Limits(ctx)
	if err != nil {
		return err
	}
	if o.json() {
		return printJSON(o.Out, raw)
	}
	var text bytes.Buffer
	if len(limits.Limits) == 0 {
		fmt.Fprintln(&text, "there are no limits")
	} else {
		table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "LIMIT\tSCOPE\tEACH\tRATE\tCOMMANDS\tOPERATIONS\tWAITING\t")
		for i := range limits.Limits {
			limitRows(table, &limits.Limits[i])
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	for _, account := range slices.Sorted(maps.Keys(limits.Weights)) {
		fmt.Fprintf(&text, "weight of %s: %g\n", flat(account), limits.Weights[account])
	}
	if limits.AppliedAt != nil {
		fmt.Fprintf(&text, "version %d, applied by %s at %s\n", limits.Version, flat(limits.AppliedBy), view.Time(*limits.AppliedAt))
	}
	_, err = io.Copy(o.Out, &text)
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

// limitRows prints a limit. One with each has a row with its bounds, and one with the use of each value; the other rows have both.
func limitRows(w io.Writer, l *operator.Limit) {
	row := func(name, scope, each, rate, commands, operations string, waiting int) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", name, scope, each, rate, commands, operations, number(waiting))
	}
	var commands, operations operator.LimitUse
	for _, u := range l.Use {
		commands.InUse, commands.Waiting = commands.InUse+u.InUse, commands.Waiting+u.Waiting
	}
	for _, u := range l.OperationUse {
		operations.InUse, operations.Waiting = operations.InUse+u.InUse, operations.Waiting+u.Waiting
	}
	waiting := commands.Waiting + operations.Waiting
	if l.Each == "" {
		row(l.Name, flat(scopeText(l.Scope)), "-", dash(l.Rate), usedOf(commands.InUse, l.Commands), usedOf(operations.InUse, l.Operations), waiting)
		return
	}
	row(l.Name, flat(scopeText(l.Scope)), l.Each, dash(l.Rate), number(l.Commands), number(l.Operations), waiting)
	for _, u := range l.Use {
		row("", "", flat(u.Value), "", number(u.InUse), "", u.Waiting)
	}
	for _, u := range l.OperationUse {
		row("", "", flat(u.Value), "", "", number(u.InUse), u.Waiting)
	}
}

func usedOf(used, most int) string {
	if most == 0 {
		return number(used)
	}
	return fmt.Sprintf("%d/%d", used, most)
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func number(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}
