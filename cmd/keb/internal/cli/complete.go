package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/kyma-project/keb/libs/api/operator"
)

// The shell waits for completions, so requests have a short timeout, and an error yields no completions.
const (
	completeTimeout = 2 * time.Second
	completeAtMost  = 50
)

// completeFlag offers fixed values for a flag that the command has.
func completeFlag(cmd *cobra.Command, flag string, values []string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// completeOperation offers the ids of the newest operations with a description.
func (o *options) completeOperation(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return o.offer(cmd, func(ctx context.Context, client *operator.Client) []cobra.Completion {
		list, _, err := client.Operations(ctx, operator.Filter{PageSize: completeAtMost})
		if err != nil {
			return nil
		}
		offers := make([]cobra.Completion, 0, len(list.Data))
		for i := range list.Data {
			op := &list.Data[i]
			offers = append(offers, cobra.CompletionWithDesc(op.ID, string(op.Type)+" "+string(op.State)))
		}
		return offers
	})
}

func (o *options) offer(
	cmd *cobra.Command, find func(ctx context.Context, client *operator.Client) []cobra.Completion,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
	defer cancel()
	if o.readToken() != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	client, err := o.operatorClient()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return find(ctx, client), cobra.ShellCompDirectiveNoFileComp
}

// complete offers an operation, and then its actions.
func (a *acting) complete(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 1 {
		return []cobra.Completion{actionCancel, actionRetry, actionSkip}, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeOperation(cmd, args, typed)
}

// complete offers an orchestration, and then its actions.
func (i *inspecting) complete(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return i.offer(cmd, func(ctx context.Context, client *operator.Client) []cobra.Completion {
			list, _, err := client.Orchestrations(ctx, operator.Page{PageSize: completeAtMost})
			if err != nil {
				return nil
			}
			offers := make([]cobra.Completion, 0, len(list.Data))
			for k := range list.Data {
				offers = append(offers, cobra.CompletionWithDesc(list.Data[k].OrchestrationID, string(list.Data[k].Type)+" "+string(list.Data[k].State)))
			}
			return offers
		})
	case 1:
		return []cobra.Completion{"operations", "cancel", "retry"}, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}
