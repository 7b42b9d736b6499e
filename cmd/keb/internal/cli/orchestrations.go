package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kyma-project/keb/cmd/keb/internal/view"
	"github.com/kyma-project/keb/libs/api/operator"
)

// inspecting holds the flags of keb orchestrations.
type inspecting struct {
	*options
	page       operator.Page
	operations []string
	now, watch bool
}

func newOrchestrations(o *options) *cobra.Command {
	i := &inspecting{options: o}
	cmd := &cobra.Command{
		Use:     "orchestrations [ID] [operations|pause|resume|approve|cancel|retry]",
		Aliases: []string{"orchestration"},
		Short:   "List orchestrations, show one and its operations, pause, approve, cancel or retry it",
		Long: `List orchestrations, newest first. With an ID, show one orchestration. Actions:

  operations  lists its operations, or shows the one named with --operation
  pause       starts no further operation; operations in progress continue
  resume      continues a paused orchestration
  approve     starts the operations outside the canary
  cancel      cancels its pending operations; operations in progress continue
  retry       retries its failed operations, and after a cancellation the cancelled ones, or those given with --operation; with --now
              without waiting for maintenance windows`,
		Example:           "  keb orchestrations -s 'in progress'\n  keb orchestrations ID operations -s failed\n  keb orchestrations ID retry --now",
		Annotations:       map[string]string{listAnnotation: "orchestrations"},
		ValidArgsFunction: i.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			return i.run(cmd.Context(), args)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&i.page.State, "state", "s", "", "only entries in this state")
	flags.StringArrayVar(&i.operations, "operation", nil, "id of an operation; retry takes several")
	flags.BoolVarP(&i.watch, "watch", "w", false, "follow an orchestration until it has ended")
	flags.BoolVar(&i.now, "now", false, "retry at once, not in the next maintenance window")
	flags.IntVar(&i.page.Page, "page", 1, "page number, starting at 1")
	flags.IntVar(&i.page.PageSize, "page-size", 50, "entries per page")
	return cmd
}

// Values of --state.
var (
	orchestrationStates = texts(operator.OrchestrationStates())
	memberStates        = texts(operator.MemberStates())
)

// action is an action on an orchestration.
type action struct {
	run func(ctx context.Context, id string) error
	// The flags that it accepts.
	states                 []string
	operations, now, watch bool
}

func (i *inspecting) run(ctx context.Context, args []string) error {
	what, id := "list", ""
	switch len(args) {
	case 0:
	case 1:
		what, id = "show", args[0]
	case 2:
		what, id = args[1], args[0]
		if what == "ops" {
			what = "operations"
		}
	default:
		return usageError("orchestrations: unexpected argument %q; see keb orchestrations --help", args[2])
	}
	actions := map[string]action{
		"list":       {run: i.list, states: orchestrationStates},
		"show":       {run: i.show, watch: true},
		"operations": {run: i.members, states: memberStates, operations: true},
		"pause":      {run: i.change("pause")},
		"resume":     {run: i.change("resume")},
		"approve":    {run: i.change("approve")},
		"cancel":     {run: i.cancel},
		"retry":      {run: i.retry, operations: true, now: true},
	}
	a, ok := actions[what]
	if !ok || len(args) == 2 && (what == "list" || what == "show") {
		return usageError("orchestrations: unknown action %q; allowed: operations, pause, resume, approve, cancel, retry", what)
	}
	if err := i.check(what, a); err != nil {
		return err
	}
	if err := a.run(ctx, id); !errors.Is(err, operator.ErrNotFound) {
		return err
	}
	if what == "operations" && len(i.operations) > 0 {
		return fmt.Errorf("orchestration %s has no operation %s; keb orchestrations %s operations lists them", id, i.operations[0], id)
	}
	return fmt.Errorf("there is no orchestration %s; keb orchestrations lists them", id)
}

func texts[T ~string](values []T) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return out
}

// check rejects flags that the action does not use, and unknown states.
func (i *inspecting) check(what string, a action) error {
	switch i.page.State {
	case "in-progress", "in_progress":
		i.page.State = operator.StateInProgress
	}
	if state, ok := operator.Spelled(i.page.State, a.states); ok {
		i.page.State = state
	}
	switch {
	case i.page.State != "" && a.states == nil:
		return usageError("--state is not allowed with orchestrations %s", what)
	case i.page.State != "" && !slices.Contains(a.states, i.page.State):
		return usageError("--state %q is not a state; allowed: %s", i.page.State, strings.Join(a.states, ", "))
	case len(i.operations) > 0 && !a.operations:
		return usageError("--operation is only allowed with operations and retry")
	case len(i.operations) > 1 && what == "operations":
		return usageError("--operation is only allowed once with operations")
	case i.now && !a.now:
		return usageError("--now is only allowed with retry")
	case i.watch && !a.watch:
		return usageError("--watch needs the id of an orchestration: keb orchestrations ID --watch")
	case i.columns != nil && (a.states == nil || len(i.operations) > 0):
		return usageError("--output %s is only allowed for lists, not with orchestrations %s", outputCustom, what)
	case i.page.Page < 1:
		return usageError("--page must be at least 1, not %d", i.page.Page)
	case i.page.PageSize < 1:
		return usageError("--page-size must be at least 1")
	}
	return nil
}

func (i *inspecting) list(ctx context.Context, _ string) error {
	return answer(ctx, i.options, func(c *operator.Client, ctx context.Context) (*operator.List[operator.Orchestration], json.RawMessage, error) {
		return c.Orchestrations(ctx, i.page)
	}, i.printList)
}

func (i *inspecting) printList(list *operator.List[operator.Orchestration]) error {
	rows := make([][]string, len(list.Data))
	for k := range list.Data {
		o := &list.Data[k]
		p := &o.Progress
		rows[k] = []string{
			o.OrchestrationID, dryRun(string(o.Type), o.Parameters.DryRun), o.Status(), fmt.Sprintf("%d/%d", p.Ended, p.Total), strconv.Itoa(p.Failed),
			strconv.Itoa(p.InProgress), remaining(p), view.Duration(time.Since(o.CreatedAt)), o.Description,
		}
	}
	return i.printTable(page{"orchestrations", i.page.Page, i.page.PageSize, list.Count, list.TotalCount},
		[]string{"ORCHESTRATION", "TYPE", "STATE", "ENDED", "FAILED", "RUNNING", "LEFT", "AGE", "DESCRIPTION"}, rows)
}

// remaining returns the estimated time until the end, or nothing.
func remaining(p *operator.Progress) string {
	if p.EstimatedEnd == nil {
		return ""
	}
	return "~" + view.Duration(max(0, time.Until(*p.EstimatedEnd)).Round(time.Second))
}

func (i *inspecting) show(ctx context.Context, id string) error {
	if i.watch {
		client, err := i.operatorClient()
		if err != nil {
			return err
		}
		return i.follow(ctx, client, id, false)
	}
	return answer(ctx, i.options, func(c *operator.Client, ctx context.Context) (*operator.Orchestration, json.RawMessage, error) {
		return c.Orchestration(ctx, id)
	}, i.print)
}

func (i *inspecting) print(o *operator.Orchestration) error {
	p := &o.Parameters
	lines := [][2]string{
		{"orchestration", o.OrchestrationID},
		{"type", string(o.Type)},
		{"state", o.Status()},
		{"description", view.OneLine(o.Description)},
	}
	if p.DryRun {
		lines = append(lines, [2]string{"dry run", "yes: nothing is changed in the runtimes"})
	}
	lines = append(lines, versionLines(p.Kyma, p.Kubernetes)...)
	if p.Kyma == nil && p.Kubernetes == nil {
		lines = append(lines, [2]string{"version", "as configured"})
	}
	lines = append(lines, [][2]string{
		{"targets", targetsText(p.Targets.Include)},
		{"excluded", targetsText(p.Targets.Exclude)},
		{"strategy", strategyText(&p.Strategy)},
		{"created", view.Time(o.CreatedAt)},
	}...)
	if o.StartedAt != nil {
		lines = append(lines, [2]string{"started", view.Time(*o.StartedAt)})
	}
	lines = append(lines, [2]string{"updated", view.Time(o.UpdatedAt)}, [2]string{"operations", o.OperationStats.String()})
	if o.Progress.EstimatedEnd != nil {
		lines = append(lines, [2]string{
			"rate", fmt.Sprintf("%.3g operations per minute, end at about %s", o.Progress.PerMinute, view.Time(*o.Progress.EstimatedEnd)),
		})
	}
	if o.Pause != nil {
		lines = append(lines, [2]string{"paused", "since " + view.Time(o.Pause.Since) + "; " + nextAction(o)})
	}
	for k := range o.Failures {
		f := &o.Failures[k]
		lines = append(lines, [2]string{"failures", fmt.Sprintf("%d × %s (for example operation %s)", f.Count, short(view.OneLine(f.Error), maxFailure), f.OperationID)})
	}
	return i.lines(lines)
}

// maxFailure limits the error of a group of failures.
const maxFailure = 300

func short(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}

// nextAction names the command that continues a paused orchestration.
func nextAction(o *operator.Orchestration) string {
	if o.Pause.Reason == operator.PausedForApproval {
		return "keb orchestrations " + o.OrchestrationID + " approve starts the others"
	}
	return "keb orchestrations " + o.OrchestrationID + " resume continues it"
}

// versionLines returns the versions to install.
func versionLines(kyma *operator.KymaVersion, cluster *operator.ClusterVersion) [][2]string {
	var lines [][2]string
	if kyma != nil {
		lines = append(lines, [2]string{"version", cmp.Or(kyma.Version, "as configured")})
	}
	if cluster != nil {
		lines = append(lines, [2]string{"kubernetesVersion", cluster.KubernetesVersion}, [2]string{"machineImage", cluster.MachineImage},
			[2]string{"machineImageVersion", cluster.MachineImageVersion})
	}
	return lines
}

// targetsText returns targets in the form of the flag --target, separated by semicolons.
func targetsText(targets []operator.Target) string {
	texts := make([]string, len(targets))
	for i, t := range targets {
		var conditions []string
		if t.Target != "" {
			conditions = append(conditions, t.Target)
		}
		for _, c := range []struct{ key, value string }{
			{"account", t.GlobalAccount},
			{"subaccount", t.SubAccount},
			{"region", t.Region},
			{"runtime-id", t.RuntimeID},
			{"plan", t.PlanName},
			{"shoot", t.Shoot},
			{"instance-id", t.InstanceID},
			{"kyma", t.KymaVersion},
			{"kubernetes", t.KubernetesVersion},
		} {
			if c.value != "" {
				conditions = append(conditions, c.key+"="+c.value)
			}
		}
		if t.Failed {
			conditions = append(conditions, "failed")
		}
		texts[i] = strings.Join(conditions, ",")
	}
	return view.OneLine(strings.Join(texts, "; "))
}

func strategyText(s *operator.Strategy) string {
	if s.Type == "" {
		return ""
	}
	text := fmt.Sprintf("%s, %d in parallel, %s", s.Type, s.Parallel.Workers, s.Schedule)
	if s.MaintenanceWindow {
		text += ", in maintenance windows"
	}
	if c := s.Canary; c != nil {
		text += fmt.Sprintf(", canary of %d, then %s", c.Size, c.Then)
	}
	if s.MaxFailures != "" {
		text += fmt.Sprintf(", pause after more than %s failures", s.MaxFailures)
	}
	return text
}

func (i *inspecting) lines(lines [][2]string) error {
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, l := range lines {
		if l[1] != "" {
			fmt.Fprintf(table, "%s\t%s\t\n", l[0], l[1])
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := i.Out.Write(trimLines(text.Bytes()))
	return err
}

func (i *inspecting) members(ctx context.Context, id string) error {
	if len(i.operations) == 1 {
		return answer(ctx, i.options, func(c *operator.Client, ctx context.Context) (*operator.Member, json.RawMessage, error) {
			return c.Member(ctx, id, i.operations[0])
		}, i.printMember)
	}
	return answer(ctx, i.options, func(c *operator.Client, ctx context.Context) (*operator.List[operator.Member], json.RawMessage, error) {
		return c.Members(ctx, id, i.page)
	}, i.printMembers)
}

func (i *inspecting) printMembers(list *operator.List[operator.Member]) error {
	rows := make([][]string, len(list.Data))
	for k := range list.Data {
		m := &list.Data[k]
		rows[k] = []string{
			m.OperationID, dryRun(memberStatus(m), m.DryRun), m.ServicePlanName, m.InstanceID, m.ShootName, window(m), m.Description,
		}
	}
	return i.printTable(page{"operations", i.page.Page, i.page.PageSize, list.Count, list.TotalCount},
		[]string{"OPERATION", "STATE", "PLAN", "INSTANCE", "SHOOT", "WINDOW", "DESCRIPTION"}, rows)
}

// memberStatus returns the state of an operation, with a mark if it belongs to the canary.
func memberStatus(m *operator.Member) string {
	if m.Canary {
		return operator.Prose(m.State) + ", canary"
	}
	return operator.Prose(m.State)
}

// window formats the maintenance window of the operation.
func window(m *operator.Member) string {
	if m.MaintenanceWindowBegin == nil || m.MaintenanceWindowEnd == nil {
		return ""
	}
	return view.Time(*m.MaintenanceWindowBegin) + " - " + view.Time(*m.MaintenanceWindowEnd)
}

func (i *inspecting) printMember(m *operator.Member) error {
	lines := [][2]string{
		{"operation", m.OperationID},
		{"state", memberStatus(m)},
		{"description", view.OneLine(m.Description)},
		{"instance", m.InstanceID},
		{"runtime", m.RuntimeID},
		{"shoot", m.ShootName},
		{"plan", m.ServicePlanName},
		{"global account", m.GlobalAccountID},
		{"subaccount", m.SubAccountID},
		{"window", window(m)},
		{"retried as", m.RetriedAs},
	}
	if m.DryRun {
		lines = append(lines, [2]string{"dry run", "yes"})
	}
	return i.lines(append(lines, versionLines(m.KymaConfig, m.ClusterConfig)...))
}

// change pauses, resumes or approves an orchestration.
func (i *inspecting) change(action string) func(ctx context.Context, id string) error {
	return func(ctx context.Context, id string) error {
		return answer(ctx, i.options, func(c *operator.Client, ctx context.Context) (*operator.Orchestration, json.RawMessage, error) {
			return c.ChangeOrchestration(ctx, id, action)
		}, func(o *operator.Orchestration) error {
			_, err := fmt.Fprintf(i.Out, "orchestration %s is %s: %s\n", id, o.Status(), view.OneLine(o.Description))
			return err
		})
	}
}

func (i *inspecting) cancel(ctx context.Context, id string) error {
	client, err := i.operatorClient()
	if err != nil {
		return err
	}
	raw, err := client.CancelOrchestration(ctx, id)
	if err != nil {
		return err
	}
	if i.json() {
		return printJSON(i.Out, raw)
	}
	_, err = fmt.Fprintf(i.Out, "orchestration %s: pending operations are cancelled, operations in progress continue; see keb orchestrations %s\n", id, id)
	return err
}

func (i *inspecting) retry(ctx context.Context, id string) error {
	left := 0
	err := answer(ctx, i.options, func(c *operator.Client, ctx context.Context) (*operator.RetryAnswer, json.RawMessage, error) {
		retried, raw, err := c.RetryOrchestration(ctx, id, i.operations, i.now)
		if err == nil && len(i.operations) > 0 {
			left = len(retried.OldOperations) + len(retried.InvalidOperations)
		}
		return retried, raw, err
	}, func(r *operator.RetryAnswer) error { return i.printRetry(id, r) })
	if err == nil && left > 0 {
		return fmt.Errorf("%d of the %d named operations were not retried", left, len(i.operations))
	}
	return err
}

func (i *inspecting) printRetry(id string, r *operator.RetryAnswer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "orchestration %s: %s\n", id, view.OneLine(r.Msg))
	for _, part := range []struct {
		what string
		list []string
	}{
		{"retried shoots", r.RetryShoots},
		{"not retried, replaced by a newer upgrade", r.OldOperations},
		{"not retried, no failed operation of this orchestration", r.InvalidOperations},
	} {
		if len(part.list) > 0 {
			fmt.Fprintf(&text, "%s: %s\n", part.what, view.OneLine(strings.Join(part.list, ", ")))
		}
	}
	_, err := io.WriteString(i.Out, text.String())
	return err
}
