package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kyma-project/keb/cmd/keb/internal/view"
	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/service"
)

// deadLetterPage is the default number of dead letters per page.
const deadLetterPage = 50

func newDeadLetters(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dead-letters",
		Short: "List, show, redrive or drop the messages that could not be handled",
		Long: `Dead letters are messages on the bus that their consumer could not read, or that failed repeatedly. They are kept for 30 days.

  list     list them, the newest first
  show     show one with its reason and its payload, without secrets
  redrive  publish the message again on its subject; a command is sent again by its operation
  drop     delete it

Without a command, they are listed.`,
		Annotations: map[string]string{listAnnotation: "dead letters"},
		Args:        exactly(),
		RunE:        func(cmd *cobra.Command, _ []string) error { return o.listDeadLetters(cmd.Context(), 0, deadLetterPage) },
	}
	cmd.AddCommand(newDeadLetterList(o), newDeadLetterShow(o),
		newDeadLetterAction(o, "redrive", "Publish messages again, and remove them from the dead letters", "redriven", (*operator.Client).RedriveDeadLetter),
		newDeadLetterAction(o, "drop", "Delete dead letters", "dropped", (*operator.Client).DropDeadLetter))
	return cmd
}

func newDeadLetterList(o *options) *cobra.Command {
	var before uint64
	var size int
	cmd := &cobra.Command{
		Use:         "list",
		Short:       "List dead letters, the newest first",
		Annotations: map[string]string{listAnnotation: "dead letters"},
		Args:        exactly(),
		RunE:        func(cmd *cobra.Command, _ []string) error { return o.listDeadLetters(cmd.Context(), before, size) },
	}
	cmd.Flags().Uint64Var(&before, "before", 0, "only dead letters that are older than this one")
	cmd.Flags().IntVar(&size, "page-size", deadLetterPage, "dead letters per page")
	return cmd
}

func (o *options) listDeadLetters(ctx context.Context, before uint64, size int) error {
	return answer(ctx, o, func(c *operator.Client, ctx context.Context) (*operator.DeadLetterList, json.RawMessage, error) {
		return c.DeadLetters(ctx, before, size)
	}, o.printDeadLetters)
}

func (o *options) printDeadLetters(list *operator.DeadLetterList) error {
	rows := make([][]string, len(list.Data))
	for i := range list.Data {
		d := &list.Data[i]
		rows[i] = []string{strconv.FormatUint(d.ID, 10), view.Time(d.Time), d.Consumer, d.Subject, dash(d.Operation), strconv.Itoa(d.Size), d.Reason}
	}
	err := o.printTable(page{what: "dead letters", count: len(list.Data), total: len(list.Data)},
		[]string{"ID", "TIME", "CONSUMER", "SUBJECT", "OPERATION", "BYTES", "REASON"}, rows)
	if err == nil && list.NextBefore > 0 {
		_, err = fmt.Fprintf(o.Out, "%d dead letters in total; see --before %d\n", list.TotalCount, list.NextBefore)
	}
	return err
}

func newDeadLetterShow(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show a dead letter with its payload, without secrets",
		Args:  exactly("the ID of a dead letter"),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := answer(cmd.Context(), o, func(c *operator.Client, ctx context.Context) (*operator.DeadLetterDetail, json.RawMessage, error) {
				return c.DeadLetter(ctx, args[0])
			}, func(d *operator.DeadLetterDetail) error {
				_, err := io.WriteString(o.Out, deadLetterText(d))
				return err
			})
			return explainDeadLetter(err, args[0])
		},
	}
}

func deadLetterText(d *operator.DeadLetterDetail) string {
	var text strings.Builder
	for _, line := range [][2]string{
		{"dead letter", strconv.FormatUint(d.ID, 10)},
		{"time", view.Time(d.Time)},
		{"stream", d.Stream},
		{"subject", d.Subject},
		{"consumer", d.Consumer},
		{"reason", d.Reason},
		{"event", d.Type + " " + d.EventID},
		{"operation", d.Operation},
		{"size", strconv.Itoa(d.Size) + " bytes"},
		{"redrive", d.Redrive},
	} {
		if value := view.OneLine(line[1]); value != "" {
			fmt.Fprintf(&text, "%-12s %s\n", line[0], value)
		}
	}
	text.WriteString("headers\n")
	for _, name := range slices.Sorted(maps.Keys(d.Headers)) {
		fmt.Fprintf(&text, "  %s: %s\n", view.OneLine(name), view.OneLine(d.Headers[name]))
	}
	title := "payload"
	if d.PayloadTruncated {
		title += " (only a part of it)"
	}
	text.WriteString(title + "\n")
	for line := range strings.Lines(d.Payload) {
		text.WriteString("  " + service.Printable(strings.TrimRight(line, "\n")) + "\n")
	}
	return text.String()
}

func newDeadLetterAction(o *options, name, short, done string, act func(c *operator.Client, ctx context.Context, id string) error) *cobra.Command {
	return &cobra.Command{
		Use:   name + " ID...",
		Short: short,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError("%s: the ID of a dead letter is missing; keb dead-letters list shows them", name)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := o.operatorClient()
			if err != nil {
				return err
			}
			results, err := []acted{}, error(nil)
			for _, id := range args {
				if err = act(client, cmd.Context(), id); err != nil {
					err = explainDeadLetter(err, id)
					break
				}
				results = append(results, acted{id, done})
				fmt.Fprintf(o.progress(), "dead letter %s %s\n", id, done)
			}
			if o.json() {
				err = errors.Join(printJSON(o.Out, map[string][]acted{"data": results}), err)
			}
			return err
		},
	}
}

func explainDeadLetter(err error, id string) error {
	if errors.Is(err, operator.ErrNotFound) {
		return fmt.Errorf("there is no dead letter %s; keb dead-letters list shows them", id)
	}
	return err
}
