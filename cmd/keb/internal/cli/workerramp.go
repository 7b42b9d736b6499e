package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kyma-project/keb/cmd/keb/internal/view"
	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
)

func newWorkerRamp(o *options) *cobra.Command {
	var request operator.RampRequest
	var off bool
	cmd := &cobra.Command{
		Use:   "ramp WORKER [VERSION PERCENT]",
		Short: "Send a share of the operations to another version of a worker, or end that",
		Long: `Send a share of the operations that start from now on to the replicas of a worker that run with KEB_WORKER_RAMPED=true and have the version.
An operation keeps its version. Raise or lower the share with another ramp of the same version. With --off all ramps and pins of the
worker end: within a second every new command, and every command that is sent again, goes to the other replicas. Role: operator.`,
		Example: "  keb worker ramp hello-world 1.1.0 10% --reason 'first day of 1.1.0'\n  keb worker ramp hello-world --off",
		Args: func(cmd *cobra.Command, args []string) error {
			if off {
				return exactly("the name of a worker")(cmd, args)
			}
			return exactly("the name of a worker", "a version", "a percentage")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if off {
				return o.removeRamps(cmd.Context(), args[0])
			}
			percent, err := strconv.Atoi(strings.TrimSuffix(args[2], "%"))
			if err != nil || percent < 1 || percent > 100 {
				return usageError("percentage %q: must be 1%% to 100%%", args[2])
			}
			if request.Reason == "" {
				return usageError("worker ramp needs --reason")
			}
			request.Version, request.Percent = args[1], percent
			return o.createRamp(cmd.Context(), args[0], request)
		},
	}
	cmd.Flags().BoolVar(&off, "off", false, "end all ramps and pins of the worker")
	cmd.Flags().StringVar(&request.Reason, "reason", "", "why (required)")
	return cmd
}

func newWorkerPin(o *options) *cobra.Command {
	var request operator.RampRequest
	var kind string
	cmd := &cobra.Command{
		Use:   "pin WORKER VERSION --reason TEXT",
		Short: "Send the operations in a scope to another version of a worker",
		Long: `Send all operations in a scope to the replicas of a worker that run with KEB_WORKER_RAMPED=true and have the version. All flags of the scope
that are given must match. Operations that start from now on are sent there; with --operation also one that has started. keb worker ramp
WORKER --off ends it. Role: operator.`,
		Example: "  keb worker pin hello-world 1.1.0 --operation 019aa7a0-5e0a-7c1c-9d43-0c5f0a4d3b11 --reason 'try the fix'",
		Args:    exactly("the name of a worker", "a version"),
		RunE: func(cmd *cobra.Command, args []string) error {
			request.Scope.Type = event.OperationType(kind)
			switch {
			case request.Scope == (operator.HoldScope{}):
				return usageError("worker pin needs a scope, for example --operation; see %s --help", cmd.CommandPath())
			case request.Reason == "":
				return usageError("worker pin needs --reason")
			}
			request.Version, request.Percent = args[1], 100
			return o.createRamp(cmd.Context(), args[0], request)
		},
	}
	addScopeFlags(cmd.Flags(), &request.Scope, &kind)
	cmd.Flags().StringVar(&request.Reason, "reason", "", "why (required)")
	return cmd
}

func (o *options) createRamp(ctx context.Context, worker string, request operator.RampRequest) error {
	client, err := o.operatorClient()
	if err != nil {
		return err
	}
	request.By = o.author()
	r, raw, err := client.CreateRamp(ctx, worker, request)
	if err != nil {
		return err
	}
	if o.json() {
		return printJSON(o.Out, raw)
	}
	_, err = fmt.Fprintf(o.Out, "worker %s: %s\n", view.OneLine(worker), view.OneLine(r.String()))
	return err
}

func (o *options) removeRamps(ctx context.Context, worker string) error {
	client, err := o.operatorClient()
	if err != nil {
		return err
	}
	switch err := client.RemoveRamps(ctx, worker); {
	case errors.Is(err, operator.ErrNotFound):
		return fmt.Errorf("worker %s has no ramp; keb workers shows them", worker)
	case err != nil:
		return err
	}
	return o.done(acted{worker, "no ramp"}, "worker %s: no ramp\n", view.OneLine(worker))
}
