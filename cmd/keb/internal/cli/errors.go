package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kyma-project/keb/cmd/keb/internal/view"
	"github.com/kyma-project/keb/libs/api/operator"
)

func newErrors(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "errors",
		Short: "Show what operations fail with and stand still for, grouped by error",
		Long: `Show operations that fail, get no answer, have no live worker, or are held or limited, grouped by error, and the operations that failed in
the last 24 hours. Errors that differ only in names, IDs, times and numbers are one group.

"keb operations --error KEY" lists the operations of a group, and with --do acts on all of them.`,
		Example: "  keb errors\n  keb operations --waiting failing --error 3f2a9c0d1b4e5f60\n" +
			"  keb operations --state failed --error 3f2a9c0d1b4e5f60 --finished-since 24h --do retry --reason 'EDP works again'",
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return answer(cmd.Context(), o, (*operator.Client).Errors, o.printErrors)
		},
	}
}

func (o *options) printErrors(found *operator.Errors) error {
	if age := found.Time.Sub(found.CountedAt); age > time.Minute {
		fmt.Fprintf(o.Out, "not up to date: counted %s ago\n", view.Duration(age))
	}
	if err := o.errorTable("now", "no operation fails or stands still", &found.Now); err != nil {
		return err
	}
	if calm := view.CalmText(found.Calm); calm != "" {
		fmt.Fprintln(o.Out, "\nno action needed: "+calm)
	}
	fmt.Fprintln(o.Out)
	return o.errorTable("failed since "+view.Time(found.FailedSince), "no operation has failed in the last 24 hours", &found.Failed)
}

// errorTable prints groups below a title.
func (o *options) errorTable(title, none string, groups *operator.ErrorGroups) error {
	if groups.Operations == 0 {
		_, err := fmt.Fprintln(o.Out, none)
		return err
	}
	fmt.Fprintf(o.Out, "%s: %d operations\n", title, groups.Operations)
	if err := o.printTable(page{what: "groups", count: len(groups.Groups), total: len(groups.Groups)}, view.ErrorHead(), view.ErrorRows(groups.Groups)); err != nil {
		return err
	}
	if others := groups.Others; others != nil {
		_, err := fmt.Fprintf(o.Out, "and %d operations with %d other errors\n", others.Operations, others.Errors)
		return err
	}
	return nil
}
