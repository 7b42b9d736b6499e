package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kyma-project/keb/libs/api/operator"
)

// The shell waits for completions, so requests have a short timeout, and an error yields no completions.
const (
	completeTimeout = 2 * time.Second
	completeAtMost  = 50
	// completeFrom is the number of newest operations whose instances and shoots are offered.
	completeFrom = 500
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

// finder returns values that begin with what was typed.
type finder func(ctx context.Context, typed string) []cobra.Completion

// finders are the values of flags by the name of the flag, in all commands.
func (o *options) finders() map[string]finder {
	instances := o.ofOperations(func(op *operator.Operation) (value, text string) { return op.InstanceID, op.Plan + " " + op.ShootName })
	return map[string]finder{
		"plan": o.plans, "step": o.steps, "worker": o.workerNames, "instance": instances, "instance-id": instances,
		"shoot": o.ofOperations(func(op *operator.Operation) (value, text string) { return op.ShootName, op.Plan + " " + op.RuntimeName }),
	}
}

// completeFlags offers values for the flags of a command and of its subcommands.
func (o *options) completeFlags(cmd *cobra.Command) {
	finders := o.finders()
	for _, sub := range cmd.Commands() {
		o.completeFlags(sub)
	}
	cmd.LocalNonPersistentFlags().VisitAll(func(flag *pflag.Flag) {
		find, isList := finders[flag.Name], flag.Value.Type() == "stringSlice"
		if flag.Name == "filter" {
			_ = cmd.RegisterFlagCompletionFunc(flag.Name, o.completeFilter)
			return
		}
		if flag.Name == "target" || flag.Name == "target-exclude" {
			find, isList = o.conditions, true
		}
		if find == nil {
			return
		}
		_ = cmd.RegisterFlagCompletionFunc(flag.Name, func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return o.found(cmd, find, typed, isList)
		}) // a command with a completion of its own for the flag keeps it
	})
}

// completeInstance offers the instances of the newest operations as the only argument.
func (o *options) completeInstance(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return o.found(cmd, o.finders()["instance"], typed, false)
}

// found returns the values for what was typed: in a list, those for the part after the last comma.
func (o *options) found(cmd *cobra.Command, find finder, typed string, isList bool) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
	defer cancel()
	before := ""
	if i := strings.LastIndexByte(typed, ','); isList && i >= 0 {
		before, typed = typed[:i+1], typed[i+1:]
	}
	if o.readToken() != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	directive := cobra.ShellCompDirectiveNoFileComp
	var offers []cobra.Completion
	for _, value := range find(ctx, typed) {
		if strings.HasPrefix(value, typed) {
			offers = append(offers, before+value)
		}
		if strings.HasSuffix(value, "=") {
			directive |= cobra.ShellCompDirectiveNoSpace
		}
	}
	return offers, directive
}

// conditions offers the conditions of targets, and their values.
func (o *options) conditions(ctx context.Context, typed string) []cobra.Completion {
	key, value, hasValue := strings.Cut(typed, "=")
	if !hasValue {
		return []cobra.Completion{"all", "account=", "subaccount=", "region=", "runtime-id=", "plan=", "shoot=", "instance-id=", "kyma=", "kubernetes=", "failed"}
	}
	find := o.finders()[key]
	if find == nil {
		return nil
	}
	offers := find(ctx, value)
	for i := range offers {
		offers[i] = key + "=" + offers[i]
	}
	return offers
}

// completeFilter offers the fields of the filter language, and after a field with an operator its values.
func (o *options) completeFilter(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	last := strings.LastIndexAny(typed, " (=:<>") + 1
	before, word := typed[:last], typed[last:]
	var offers []cobra.Completion
	if field := strings.TrimRight(before, " (=:!<>"); field != strings.TrimRight(before, " (") {
		field = field[strings.LastIndexAny(field, " (")+1:]
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
		defer cancel()
		for _, value := range o.filterValues(ctx, field, word) {
			offers = append(offers, before+value)
		}
		return offers, directive
	}
	for _, f := range operator.FilterFields() {
		if strings.HasPrefix(f.Name, word) {
			offers = append(offers, cobra.CompletionWithDesc(before+f.Name, f.Meaning))
		}
	}
	return offers, directive
}

// filterValues returns the values of a field that begin with what was typed.
func (o *options) filterValues(ctx context.Context, field, typed string) []cobra.Completion {
	var values []cobra.Completion
	for _, f := range operator.FilterFields() {
		if f.Name == field {
			values = append(values, f.Values...)
		}
	}
	if find := o.finders()[field]; find != nil && o.readToken() == nil {
		values = find(ctx, typed)
	}
	var offers []cobra.Completion
	for _, v := range values {
		if v = strings.ReplaceAll(v, " ", "_"); strings.HasPrefix(v, typed) {
			offers = append(offers, v)
		}
	}
	return offers
}

// plans offers the plans of the catalog.
func (o *options) plans(ctx context.Context, _ string) []cobra.Completion {
	names, err := o.planNames(ctx)
	if err != nil {
		return nil
	}
	return names
}

// planNames returns the names of the plans of the catalog.
func (o *options) planNames(ctx context.Context) ([]string, error) {
	client, err := (&ordering{options: o, region: "cf-eu10"}).client()
	if err != nil {
		return nil, err
	}
	catalog, err := client.Catalog(ctx)
	if err != nil {
		return nil, o.explain(err)
	}
	var names []string
	for _, service := range catalog.Services {
		for _, plan := range service.Plans {
			names = append(names, plan.Name)
		}
	}
	return names, nil
}

// ofOperations offers a value of each of the newest operations, with a description.
func (o *options) ofOperations(pick func(op *operator.Operation) (value, text string)) finder {
	return func(ctx context.Context, _ string) []cobra.Completion {
		client, err := o.operatorClient()
		if err != nil {
			return nil
		}
		list, _, err := client.Operations(ctx, operator.Filter{PageSize: completeFrom})
		if err != nil {
			return nil
		}
		var offers []cobra.Completion
		seen := map[string]bool{"": true}
		for i := range list.Data {
			if value, text := pick(&list.Data[i]); !seen[value] {
				seen[value] = true
				offers = append(offers, cobra.CompletionWithDesc(value, strings.TrimSpace(text)))
			}
		}
		return offers
	}
}

func (o *options) workerNames(ctx context.Context, _ string) []cobra.Completion {
	return o.ofWorkers(ctx, func(w *operator.Worker) []string { return []string{w.Name} })
}

// steps offers the steps that workers serve, or that no worker serves.
func (o *options) steps(ctx context.Context, _ string) []cobra.Completion {
	return o.ofWorkers(ctx, func(w *operator.Worker) []string { return slices.Concat(w.Steps, w.MissingSteps) })
}

func (o *options) ofWorkers(ctx context.Context, pick func(w *operator.Worker) []string) []cobra.Completion {
	client, err := o.operatorClient()
	if err != nil {
		return nil
	}
	list, _, err := client.Workers(ctx)
	if err != nil {
		return nil
	}
	var offers []cobra.Completion
	for _, w := range list.Data {
		offers = append(offers, pick(w)...)
	}
	slices.Sort(offers)
	return slices.Compact(offers)
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
		return []cobra.Completion{"operations", "pause", "resume", "approve", "cancel", "retry"}, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}
