package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kyma-project/keb/cmd/keb/internal/view"
	"github.com/kyma-project/keb/libs/api/operator"
)

// What is upgraded, as in the paths of the operator API.
const (
	upgradeKyma    = "kyma"
	upgradeCluster = "cluster"
)

func newUpgrade(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Upgrade many runtimes in one orchestration",
		Long: `Upgrade many runtimes, some in parallel. The command starts an orchestration; see keb orchestrations.

A target is a comma-separated list of conditions that must all match: all, account=REGEXP, subaccount=REGEXP,
region=REGEXP (of the hyperscaler), runtime-id=ID, plan=NAME, shoot=NAME, instance-id=ID, kyma=VERSION, kubernetes=VERSION (2.20
matches 2.20.1), failed (the last operation of the runtime failed). -t and -e may be given several times.`,
	}
	cmd.AddCommand(newUpgradeOf(o, upgradeKyma), newUpgradeOf(o, upgradeCluster))
	return cmd
}

// upgrading holds the flags of keb upgrade.
type upgrading struct {
	*options
	targets, excluded []string
	order             operator.Upgrade
	kyma              operator.KymaVersion
	kubernetes        operator.ClusterVersion
	canary            operator.Canary
	maxFailures       string
	wait              bool
}

func newUpgradeOf(o *options, what string) *cobra.Command {
	u := &upgrading{options: o}
	cmd := &cobra.Command{
		Use:  what,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return u.run(cmd.Context(), what)
		},
	}
	flags := cmd.Flags()
	if what == upgradeKyma {
		cmd.Short = "Upgrade Kyma in runtimes"
		cmd.Example = "  keb upgrade kyma -t plan=azure -e 'region=^eu' --version 2.20.1 --parallel-workers 10 --wait\n" +
			"  keb upgrade kyma -t kyma=2.19 --version 2.20.1 --canary 3 --max-failures 5%"
		flags.StringVar(&u.kyma.Version, "version", "", "version of Kyma, for example 2.20.1, PR-1234 or main-0123abcd; default: the configured version")
	} else {
		cmd.Short = "Upgrade Kubernetes and the machine image of runtimes"
		cmd.Example = "  keb upgrade cluster -t all --kubernetes-version 1.31.4 --maintenancewindow"
		flags.StringVar(&u.kubernetes.KubernetesVersion, "kubernetes-version", "", "version of Kubernetes, for example 1.31.4")
		flags.StringVar(&u.kubernetes.MachineImage, "machine-image", "", "name of the machine image, for example gardenlinux")
		flags.StringVar(&u.kubernetes.MachineImageVersion, "machine-image-version", "", "version of the machine image")
	}
	flags.StringArrayVarP(&u.targets, "target", "t", nil, "runtimes to upgrade, see keb upgrade --help")
	flags.StringArrayVarP(&u.excluded, "target-exclude", "e", nil, "runtimes to exclude")
	flags.StringVar(&u.order.Strategy.Type, "strategy", "parallel", "how to upgrade: parallel")
	flags.IntVar(&u.order.Strategy.Parallel.Workers, "parallel-workers", 1, "maximum number of upgrades in parallel")
	flags.StringVar(&u.order.Strategy.Schedule, "schedule", "immediate", "when to start: immediate, or a time such as 2026-11-21T22:00:00Z")
	flags.BoolVar(&u.order.Strategy.MaintenanceWindow, "maintenancewindow", false, "start each upgrade in the maintenance window of its runtime")
	flags.IntVar(&u.canary.Size, "canary", 0, "upgrade this number of runtimes first; see --canary-then")
	flags.StringVar(&u.canary.Then, "canary-then", operator.CanaryApproval,
		"what starts the others: approval, or success of all operations of the canary")
	completeFlag(cmd, "canary-then", []string{operator.CanaryApproval, operator.CanarySuccess})
	flags.StringVar(&u.maxFailures, "max-failures", "", "pause if more operations fail: a number, or a percentage such as 10%")
	flags.BoolVar(&u.order.Notification, "notification", false, "notify the customers")
	flags.BoolVar(&u.order.DryRun, "dry-run", false, "change nothing in the runtimes")
	flags.BoolVar(&u.wait, "wait", false, "wait until the orchestration has ended")
	return cmd
}

func (u *upgrading) run(ctx context.Context, what string) error {
	if err := u.complete(what); err != nil {
		return err
	}
	client, err := u.operatorClient()
	if err != nil {
		return err
	}
	id, raw, err := client.Upgrade(ctx, what, &u.order)
	if err != nil {
		return err
	}
	if u.wait {
		if _, err := fmt.Fprintf(u.progress(), "orchestration %s accepted\n", id); err != nil {
			return err
		}
		return u.follow(ctx, client, id, true)
	}
	if u.json() {
		return printJSON(u.Out, raw)
	}
	_, err = fmt.Fprintf(u.Out, "orchestration %s accepted; follow it: keb orchestrations %s\n", id, id)
	return err
}

// complete builds the order from the flags.
func (u *upgrading) complete(what string) (err error) {
	if len(u.targets) == 0 {
		return usageError("upgrade %s needs -t TARGET, for example -t all; see keb upgrade --help", what)
	}
	if u.order.Targets.Include, err = parseTargets("--target", u.targets); err != nil {
		return err
	}
	if u.order.Targets.Exclude, err = parseTargets("--target-exclude", u.excluded); err != nil {
		return err
	}
	for _, t := range u.order.Targets.Exclude {
		if t.Target != "" {
			return usageError("--target-exclude: the condition all is only allowed in --target")
		}
	}
	if n := u.order.Strategy.Parallel.Workers; n < 1 {
		return usageError("--parallel-workers %d must be at least 1", n)
	}
	if err := u.completeCanary(); err != nil {
		return err
	}
	if what == upgradeKyma && u.kyma != (operator.KymaVersion{}) {
		u.order.Kyma = &u.kyma
	}
	if what == upgradeCluster && u.kubernetes != (operator.ClusterVersion{}) {
		u.order.Kubernetes = &u.kubernetes
	}
	return nil
}

func (u *upgrading) completeCanary() error {
	switch {
	case u.canary.Size < 0:
		return usageError("--canary %d must be at least 1", u.canary.Size)
	case u.canary.Then != operator.CanaryApproval && u.canary.Then != operator.CanarySuccess:
		return usageError("--canary-then %q: allowed: %s, %s", u.canary.Then, operator.CanaryApproval, operator.CanarySuccess)
	case u.canary.Size == 0 && u.canary.Then != operator.CanaryApproval:
		return usageError("--canary-then needs --canary with the number of runtimes")
	case u.canary.Size > 0:
		u.order.Strategy.Canary = &u.canary
	}
	u.order.Strategy.MaxFailures = operator.MaxFailures(u.maxFailures)
	if _, _, err := u.order.Strategy.MaxFailures.Limit(0); err != nil {
		return usageError("--max-failures %s", err)
	}
	return nil
}

func parseTargets(flag string, specifiers []string) ([]operator.Target, error) {
	var targets []operator.Target
	for _, specifier := range specifiers {
		t, err := parseTarget(specifier)
		if err != nil {
			return nil, usageError("%s %q: %s", flag, specifier, err)
		}
		targets = append(targets, t)
	}
	return targets, nil
}

func parseTarget(specifier string) (operator.Target, error) {
	var t operator.Target
	if strings.Trim(specifier, ", ") == "" {
		return t, errors.New("has no condition")
	}
	for _, condition := range splitConditions(specifier) {
		if condition == "all" {
			t.Target = "all"
			continue
		}
		if condition == "" {
			return t, errors.New("has an empty condition")
		}
		if condition == "failed" {
			t.Failed = true
			continue
		}
		key, value, _ := strings.Cut(condition, "=")
		into := map[string]*string{
			"account": &t.GlobalAccount, "subaccount": &t.SubAccount, "region": &t.Region, "runtime-id": &t.RuntimeID,
			"plan": &t.PlanName, "shoot": &t.Shoot, "instance-id": &t.InstanceID, "kyma": &t.KymaVersion, "kubernetes": &t.KubernetesVersion,
		}[key]
		switch {
		case into == nil:
			return t, fmt.Errorf("unknown condition %q; allowed: all, account=, subaccount=, region=, runtime-id=, plan=, shoot=, instance-id=, "+
				"kyma=, kubernetes=, failed", condition)
		case value == "":
			return t, fmt.Errorf("%s has no value", key)
		case *into != "":
			return t, fmt.Errorf("%s is duplicated", key)
		}
		if key == "account" || key == "subaccount" || key == "region" {
			if _, err := regexp.Compile(value); err != nil {
				return t, fmt.Errorf("%s is not a valid regular expression: %w", key, err)
			}
		}
		*into = value
	}
	return t, nil
}

// splitConditions splits at commas, except those in brackets of a regular expression, such as in "a{1,2}".
func splitConditions(specifier string) []string {
	var conditions []string
	start, depth := 0, 0
	for i, r := range specifier {
		switch r {
		case '{', '[', '(':
			depth++
		case '}', ']', ')':
			depth--
		case ',':
			if depth <= 0 {
				conditions = append(conditions, strings.TrimSpace(specifier[start:i]))
				start = i + 1
			}
		}
	}
	return append(conditions, strings.TrimSpace(specifier[start:]))
}

// followEvery is the interval between two requests for an orchestration or a batch.
const followEvery = time.Second

// follow shows the progress of an orchestration until it ends. It returns an error if the orchestration did not succeed. answered means that
// the operator API has answered before.
func (o *options) follow(ctx context.Context, client *operator.Client, id string, answered bool) error {
	bar := o.bar()
	return o.poll(ctx, bar, answered, func() (bool, error) {
		found, raw, err := client.Orchestration(ctx, id)
		if err != nil {
			return false, err
		}
		done, total := found.OperationStats.Progress()
		text := dryRun(found.Status(), found.Parameters.DryRun) + ": " + cmp.Or(found.OperationStats.String(), found.Description)
		if found.Pause != nil {
			text += "; " + nextAction(found)
		}
		if err := bar.Set(done, total, text); err != nil || !found.State.Final() {
			return false, err
		}
		return true, errors.Join(bar.Done(), o.ended(found, raw))
	})
}

// poll calls ask until it reports the end. A temporary error of the operator API is printed once, and does not end the command if the API has
// answered: it may be restarting, and what it was told to do goes on.
func (o *options) poll(ctx context.Context, bar *view.Bar, answered bool, ask func() (isEnd bool, err error)) error {
	isLost := false
	for {
		isEnd, err := ask()
		switch {
		case isEnd:
			return err
		case err == nil:
			answered, isLost = true, false
		case !answered || !operator.Temporary(err):
			return errors.Join(bar.Done(), err)
		case !isLost:
			isLost = true
			if err := o.note(bar, "%s; still trying", err); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return errors.Join(bar.Done(), ctx.Err())
		case <-time.After(followEvery):
		}
	}
}

// note prints a line about something that goes on, below the bar.
func (o *options) note(bar *view.Bar, format string, args ...any) error {
	if err := bar.Done(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(o.Err, "keb: %s\n", view.OneLine(fmt.Sprintf(format, args...)))
	return err
}

func (o *options) ended(found *operator.Orchestration, raw json.RawMessage) error {
	if o.json() {
		if err := printJSON(o.Out, raw); err != nil {
			return err
		}
	}
	if found.State == operator.StateSucceeded {
		return nil
	}
	return fmt.Errorf("orchestration %s %s: %s", found.OrchestrationID, operator.Prose(found.State), found.Description)
}
