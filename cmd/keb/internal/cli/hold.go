package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kyma-project/keb/cmd/keb/internal/view"
	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
)

func newHold(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "hold", Aliases: []string{"holds"}, Short: "Pause operations: create, list and release holds"}
	cmd.AddCommand(newHoldCreate(o), newHoldList(o), newHoldRelease(o))
	return cmd
}

func newHoldCreate(o *options) *cobra.Command {
	var request operator.HoldRequest
	var kind, orders, until string
	cmd := &cobra.Command{
		Use:   "create --reason TEXT",
		Short: "Hold the operations in a scope",
		Long: `Hold the operations in a scope: they do not start, and send no command. Commands in flight finish. All flags of the scope that are given
must match. A scope with --step, --worker or --system holds an operation when it reaches such a step.

With --orders reject the broker also rejects new orders in the scope with 422 and the reason: provisionings, updates and bindings,
or with --type only provisionings or only updates. It never rejects a deprovisioning. Role: operator.`,
		Example: "  keb hold create --worker edp --reason 'EDP is being migrated' --until 2h\n  keb hold create --plan azure --type provision --reason 'no capacity'\n" +
			"  keb hold create --global-account 4b3... --type provision --orders reject --reason 'contact support'",
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			request.Scope.Type, request.Orders = event.OperationType(kind), operator.Orders(orders)
			switch {
			case request.Scope == (operator.HoldScope{}):
				return usageError("hold create needs a scope, for example --worker; see %s --help", cmd.CommandPath())
			case request.Reason == "":
				return usageError("hold create needs --reason")
			}
			if until != "" {
				at, err := parseTime(until, fromNow)
				if err != nil {
					return usageError("--until %q: %s", until, err)
				}
				request.Until = &at
			}
			return o.createHold(cmd.Context(), request)
		},
	}
	flags, s := cmd.Flags(), &request.Scope
	addScopeFlags(flags, s, &kind)
	flags.StringVar(&s.Step, "step", "", "name of a step")
	flags.StringVar(&s.Worker, "worker", "", "name of a worker")
	flags.StringVar(&s.System, "system", "", "name of an external system: the steps that call it (docs/steps.md)")
	flags.StringVar(&request.Reason, "reason", "", "why (required)")
	flags.StringVar(&orders, "orders", "", "what happens to new orders in the scope: wait (default) or reject")
	flags.StringVar(&until, "until", "", "when the hold ends by itself: a time such as 2026-11-21T22:00:00Z, or a duration such as 2h")
	return cmd
}

// addScopeFlags adds the flags that select operations, whatever their step is.
func addScopeFlags(flags *pflag.FlagSet, s *operator.HoldScope, kind *string) {
	flags.StringVar(&s.Operation, "operation", "", "id of an operation")
	flags.StringVar(&s.Instance, "instance", "", "id of an instance")
	flags.StringVar(&s.GlobalAccount, "global-account", "", "id of a global account")
	flags.StringVar(&s.Plan, "plan", "", "name or id of a plan")
	flags.StringVar(&s.Region, "region", "", "region of the hyperscaler")
	flags.StringVar(kind, "type", "", "type of the operations, for example provision")
}

func (o *options) createHold(ctx context.Context, request operator.HoldRequest) error {
	request.By = o.author()
	return answer(ctx, o, func(c *operator.Client, ctx context.Context) (*operator.Hold, json.RawMessage, error) {
		return c.CreateHold(ctx, request)
	}, func(h *operator.Hold) error {
		_, err := fmt.Fprintf(o.Out, "hold %s: %s\n", h.ID, view.OneLine(h.Scope.String()))
		return err
	})
}

func newHoldList(o *options) *cobra.Command {
	return &cobra.Command{
		Use:         "list",
		Short:       "List the holds, with the number of operations that each holds",
		Annotations: map[string]string{listAnnotation: "holds"},
		Args:        exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return answer(cmd.Context(), o, (*operator.Client).Holds, o.printHolds)
		},
	}
}

func (o *options) printHolds(list *operator.List[operator.Hold]) error {
	if len(list.Data) == 0 {
		_, err := fmt.Fprintln(o.Out, "there are no holds")
		return err
	}
	rows := make([][]string, len(list.Data))
	for i := range list.Data {
		h, until := &list.Data[i], "released"
		if h.Until != nil {
			until = view.Time(*h.Until)
		}
		rows[i] = []string{
			h.ID, h.Scope.String(), string(h.Orders), strconv.Itoa(h.Operations), view.Time(h.CreatedAt), h.CreatedBy, until, h.Reason,
		}
	}
	return o.printTable(page{what: "holds", count: len(rows), total: len(rows)},
		[]string{"HOLD", "SCOPE", "ORDERS", "OPERATIONS", "CREATED", "BY", "UNTIL", "REASON"}, rows)
}

func newHoldRelease(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "release ID",
		Short: "Release a hold; the operations that no other hold contains continue",
		Args:  exactly("the id of a hold"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := o.operatorClient()
			if err != nil {
				return err
			}
			switch err := client.ReleaseHold(cmd.Context(), args[0]); {
			case errors.Is(err, operator.ErrNotFound):
				return fmt.Errorf("there is no hold %s; keb hold list shows them", args[0])
			case err != nil:
				return err
			}
			return o.done(acted{args[0], "released"}, "hold %s released\n", args[0])
		},
	}
}
