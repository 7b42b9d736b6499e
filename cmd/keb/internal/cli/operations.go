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
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kyma-project/keb/cmd/keb/internal/view"
	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/service"
)

var (
	// states are the values of --state, in the order of an operation's life.
	states = texts(operator.FilterStates())
	// types are the values of --type.
	types = texts(event.OperationTypes())
	// waitingReasons are the values of --waiting.
	waitingReasons = texts(operator.WaitingReasons())
	// sorts are the values of --sort.
	sorts = []string{"newest", "oldest", "duration", "attempts", "state"}
)

func newOperations(o *options) *cobra.Command {
	var filter operator.Filter
	var since, until, finishedSince, finishedUntil string
	b := &bulk{options: o, filter: &filter}
	cmd := &cobra.Command{
		Use:     "operations",
		Aliases: []string{"ops"},
		Short:   "List operations, newest first, or act on all that match",
		Long: `List operations, newest first. With --do, act on all operations that match the filter:

  retry   retry failed operations from their failed stage, or from --from STAGE or STAGE/STEP
  skip    skip the step in --step, where operations stand at it
  cancel  cancel operations
  hold    create a hold with the scope of the filter
  resume  release the holds with the scope of the filter

The command first shows how many operations match and some of them, and asks for confirmation. Operations for which the action is no longer
possible are skipped. retry, skip and cancel are a batch, which goes on when the command ends; see keb batches.

--filter is a condition in the language of https://google.aip.dev/160: FIELD OPERATOR VALUE, combined with AND, OR, NOT and parentheses. OR binds
tighter than AND. * in a value stands for any characters, and field:text finds a part of a text. A time is 2026-11-21T08:00:00Z, 2026-11-21, or
a duration before now such as 2h. The fields are:

` + filterHelp(),
		Example: "  keb operations --state 'in progress' --plan azure\n  keb operations --instance 0d7ee4a2-9a58-4a50-ae6b-f7f2ee8ea1d5 -o json\n" +
			"  keb operations --state failed --since 2h --do retry --reason 'EDP works again'\n" +
			"  keb operations --filter 'plan:(azure OR aws) AND duration > 20m AND NOT region = eu-*'\n" +
			"  keb operations -o custom=ID:id,STEP:step,ERROR:error.message",
		Annotations: map[string]string{listAnnotation: "operations"},
		Args:        exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkFilter(&filter); err != nil {
				return err
			}
			for _, at := range []struct {
				flag, value string
				into        *time.Time
			}{{"--since", since, &filter.Since}, {"--until", until, &filter.Until}, {"--finished-since", finishedSince, &filter.FinishedSince}, {"--finished-until", finishedUntil, &filter.FinishedUntil}} {
				if at.value == "" {
					continue
				}
				var err error
				if *at.into, err = parseTime(at.value, ago); err != nil {
					return usageError("%s %q: %s", at.flag, at.value, err)
				}
			}
			if err := b.check(cmd.Flags()); err != nil {
				return err
			}
			if b.action != "" {
				return b.run(cmd.Context())
			}
			return answer(cmd.Context(), o, func(c *operator.Client, ctx context.Context) (*operator.OperationList, json.RawMessage, error) {
				return c.Operations(ctx, filter)
			}, func(list *operator.OperationList) error {
				return o.printTable(page{"operations", filter.Page, filter.PageSize, list.Count, list.TotalCount},
					operationColumns, operationRows(list.Data, time.Now()))
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&filter.State, "state", "", "only operations in this state: "+strings.Join(states, ", "))
	flags.StringVar(&filter.Type, "type", "", "only operations of this type: "+strings.Join(types, ", "))
	flags.StringVar(&filter.Plan, "plan", "", "only operations of this plan, for example azure")
	flags.StringVar(&filter.Instance, "instance", "", "only operations of this instance")
	flags.StringVarP(&filter.Search, "search", "q", "", "only operations whose id or instance id has this prefix, or with this subaccount, global account, shoot or runtime name")
	flags.StringVar(&filter.Filter, "filter", "", "only operations that match this condition, for example 'state = failed AND error.component = edp'")
	flags.StringVar(&filter.Step, "step", "", "only operations that are currently at this step")
	flags.StringVar(&filter.Worker, "worker", "", "only operations that are currently at a step of this worker")
	flags.StringVar(&filter.System, "system", "", "only operations that are currently at a step that calls this external system")
	flags.StringVar(&filter.GlobalAccount, "global-account", "", "only operations of this global account")
	flags.StringVar(&filter.Region, "region", "", "only operations in this region of the hyperscaler")
	flags.StringVar(&filter.Waiting, "waiting", "", "only operations that wait for one of these reasons: "+strings.Join(waitingReasons, ", "))
	flags.StringVar(&filter.Orchestration, "orchestration", "", "only operations of this orchestration")
	flags.StringVar(&filter.Sort, "sort", "", "order: "+strings.Join(sorts, ", ")+" (default newest); the last three sort the newest 10,000 operations that match")
	flags.StringVar(&since, "since", "", "only operations requested since this time, such as 2026-11-21T22:00:00Z, or a duration such as 2h")
	flags.StringVar(&until, "until", "", "only operations requested until this time")
	flags.StringVar(&filter.Error, "error", "", "only operations with an error of this group; keb errors shows the keys")
	flags.StringVar(&filter.Hold, "hold", "", "only operations that this hold keeps from running")
	flags.StringVar(&filter.LimitName, "limit-name", "", "only operations whose commands wait for this limit")
	flags.StringVar(&finishedSince, "finished-since", "", "only operations that ended since this time, or within this duration")
	flags.StringVar(&finishedUntil, "finished-until", "", "only operations that ended until this time")
	flags.IntVar(&filter.Page, "page", 1, "page number, starting at 1")
	flags.IntVar(&filter.PageSize, "page-size", 50, "operations per page")
	b.register(cmd)
	completeFlag(cmd, "state", states)
	completeFlag(cmd, "sort", sorts)
	completeFlag(cmd, "type", types)
	completeFlag(cmd, "waiting", waitingReasons)
	return cmd
}

// filterHelp lists the fields of the filter language.
func filterHelp() string {
	var text strings.Builder
	for _, f := range operator.FilterFields() {
		fmt.Fprintf(&text, "  %-16s %s\n", f.Name, f.Meaning)
	}
	return strings.TrimSuffix(text.String(), "\n")
}

// checkFilter rejects values that no operation can have, so that a typing error does not look like an empty result.
func checkFilter(f *operator.Filter) error {
	// The state contains a space, which must be quoted in a shell.
	f.State = strings.NewReplacer("in-progress", string(event.InProgress), "in_progress", string(event.InProgress)).Replace(f.State)
	if unknown := other(f.State, states); unknown != "" {
		return usageError("--state %q is not a state; allowed: %s", unknown, strings.Join(states, ", "))
	}
	if unknown := other(f.Type, types); unknown != "" {
		return usageError("--type %q is not an operation type; allowed: %s", unknown, strings.Join(types, ", "))
	}
	if unknown := other(f.Waiting, waitingReasons); unknown != "" {
		return usageError("--waiting %q is not a waiting reason; allowed: %s", unknown, strings.Join(waitingReasons, ", "))
	}
	switch {
	case f.Sort != "" && !slices.Contains(sorts, f.Sort):
		return usageError("--sort %q is not an order; allowed: %s", f.Sort, strings.Join(sorts, ", "))
	case f.Page < 1:
		return usageError("--page must be at least 1, not %d", f.Page)
	case f.PageSize < 1:
		return usageError("--page-size must be at least 1")
	}
	return nil
}

// other returns the first value of a comma-separated list that is not allowed.
func other(list string, allowed []string) string {
	for value := range strings.SplitSeq(list, ",") {
		if value != "" && !slices.Contains(allowed, value) {
			return value
		}
	}
	return ""
}

// parseTime reads a time, or a duration that relative converts: ago or fromNow.
func parseTime(value string, relative func(time.Duration) time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(value); err == nil && d > 0 {
		return relative(d), nil
	}
	at, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return time.Time{}, errors.New("must be a time such as 2026-11-21T22:00:00Z, or a duration such as 2h")
	}
	return at, nil
}

func ago(d time.Duration) time.Time { return time.Now().Add(-d) }

func fromNow(d time.Duration) time.Time { return time.Now().Add(d).UTC() }

// operationColumns are the columns of operationRows.
var operationColumns = []string{"OPERATION", "TYPE", "STATE", "PLAN", "INSTANCE", "AGE", "WHERE"}

// operationRows returns the rows of a table. The last column shows what needs attention.
func operationRows(list []operator.Operation, now time.Time) [][]string {
	rows := make([][]string, len(list))
	for i := range list {
		op := &list[i]
		rows[i] = []string{op.ID, dryRun(view.Kind(op), op.DryRun), string(op.ShownState()), op.Plan, op.InstanceID, view.Duration(now.Sub(op.CreatedAt)), where(op)}
	}
	return rows
}

// dryRun marks a dry run.
func dryRun(text string, isDry bool) string {
	if isDry {
		return text + " (dry run)"
	}
	return text
}

// trimLines removes control characters, and trailing spaces from each line of a table.
func trimLines(text []byte) []byte {
	var out bytes.Buffer
	for line := range strings.Lines(service.Printable(string(text))) {
		out.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return out.Bytes()
}

// where describes the position of an operation and what it waits for or failed with.
func where(op *operator.Operation) string {
	var parts []string
	if op.Step != "" && op.State != event.Succeeded {
		parts = append(parts, op.Stage+"/"+op.Step)
	}
	if !op.Final() && op.CancelRequested != "" {
		parts = append(parts, "will be cancelled when its step answers;")
	}
	if !op.Final() && op.WaitingFor != "" {
		parts = append(parts, "waits for: "+op.WaitingFor)
	}
	if extension := op.Waiting.Extension(); extension != "" {
		parts = append(parts, extension)
	}
	if op.Progress != nil {
		parts = append(parts, "progress: "+op.Progress.String())
	}
	switch {
	case op.Cause != nil:
		parts = append(parts, "was failing at "+op.Cause.Step+": "+op.Cause.Error.String())
	case op.Error != nil && op.State != event.Succeeded && op.State != event.Cancelled:
		parts = append(parts, op.Error.String())
	case op.Final() && len(op.NotCompleted) > 0:
		parts = append(parts, "not completed: "+strings.Join(op.NotCompleted, ", "))
	}
	return strings.Join(parts, "  ")
}

// Actions on an operation.
const (
	actionCancel = "cancel"
	actionRetry  = "retry"
	actionSkip   = "skip"
)

// acting holds the flags of keb operation.
type acting struct {
	*options
	history bool
	details bool
	try     string
	step    string
	from    string
	preview bool
}

func newOperation(o *options) *cobra.Command {
	a := &acting{options: o}
	cmd := &cobra.Command{
		Use:   "operation ID [cancel|retry|skip]",
		Short: "Show one operation with its stages and steps, cancel it, retry it, or skip a step",
		Long: `Show one operation with its stages and steps, or act on it:

  cancel  cancel it when its current step answers
  retry   retry a failed operation from its failed stage, or from the stage in
          --from, whose steps then run again; with --from STAGE/STEP the steps
          before stay as they are; --preview lists what runs, and with what
  skip    skip its current step, which --step must name

The history of the operation records who did it.

--try shows what a worker was sent in one try of a step, and what it answered: the number of a line of --history, or running.`,
		Example:           "  keb operation ID --history\n  keb operation ID --try 12\n  keb operation ID --details\n  keb operation ID skip --step EDP_Registration\n  keb operation ID retry --from create_runtime --preview\n  keb operation ID retry --from create_runtime/Check_Runtime",
		ValidArgsFunction: a.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch len(args) {
			case 0:
				return usageError("operation: the id of an operation is missing; see keb operation --help")
			case 1:
				return a.show(cmd.Context(), args[0])
			case 2:
				return a.act(cmd.Context(), args[0], args[1])
			}
			return usageError("operation: unexpected argument %q; see keb operation --help", args[2])
		},
	}
	cmd.Flags().BoolVar(&a.history, "history", false, "also list all tries of the steps")
	cmd.Flags().BoolVar(&a.details, "details", false, "also show parameters, saved data of the workers, process version, trace and links")
	cmd.Flags().StringVar(&a.try, "try", "", "show what a worker was sent and what it answered in this try: a line of --history, or running")
	cmd.Flags().StringVar(&a.step, "step", "", "the step to skip")
	cmd.Flags().StringVar(&a.from, "from", "", "the place to retry from, at or before the failed step: STAGE or STAGE/STEP")
	cmd.Flags().BoolVar(&a.preview, "preview", false, "list the steps that a retry would run, and change nothing")
	return cmd
}

func (a *acting) show(ctx context.Context, id string) error {
	if err := a.onlyFlagsOf(""); err != nil {
		return err
	}
	if a.try != "" && (a.history || a.details) {
		return usageError("--try is not allowed with --history or --details")
	}
	client, err := a.operatorClient()
	if err != nil {
		return err
	}
	if a.try != "" {
		return a.showTry(ctx, client, id)
	}
	op, raw, err := client.Operation(ctx, id)
	if err != nil {
		return explainUnknown(err, id)
	}
	if a.history && op.HistoryCount > len(op.History) {
		if op.History, err = client.History(ctx, id); err != nil {
			return err
		}
		if raw, err = withMember(raw, "history", op.History); err != nil {
			return fmt.Errorf("operation %s: %w", id, err)
		}
	}
	if a.json() {
		return printJSON(a.Out, raw)
	}
	text := strings.Join(view.Render(op, time.Now(), view.Size{}), "\n") + "\n"
	if a.details {
		text += detailsText(op)
	}
	if a.history {
		text += historyText(op.History)
	}
	_, err = io.WriteString(a.Out, text)
	return err
}

func (a *acting) act(ctx context.Context, id, action string) error {
	actions := []string{actionCancel, actionRetry, actionSkip}
	switch {
	case !slices.Contains(actions, action):
		return usageError("operation: unknown action %q; allowed: %s", action, strings.Join(actions, ", "))
	case a.history || a.details || a.try != "":
		return usageError("--history, --details and --try are not allowed with an action")
	case action == actionSkip && a.step == "":
		return usageError("skip needs --step with the name of the current step; keb operation %s shows it", id)
	}
	if err := a.onlyFlagsOf(action); err != nil {
		return err
	}
	client, err := a.operatorClient()
	if err != nil {
		return err
	}
	if a.preview {
		return a.previewRetry(ctx, client, id)
	}
	if err := client.Act(ctx, id, action, a.request(a.author())); err != nil {
		return explainUnknown(err, id)
	}
	op, raw, err := client.Operation(ctx, id)
	if err != nil {
		// The action was accepted, whatever happens to this request.
		if _, err := fmt.Fprintf(a.Err, "keb: the operation cannot be read: %s\n", service.OneLine(err)); err != nil {
			return err
		}
		return a.done(acted{ID: id, Result: action + " accepted"}, "operation %s: %s accepted\n", id, action)
	}
	if a.json() {
		return printJSON(a.Out, raw)
	}
	told := op.State
	if op.CancelRequested != "" && !op.Final() {
		told += ", will be cancelled when its current step answers"
	}
	_, err = fmt.Fprintf(a.Out, "operation %s: %s accepted, state: %s\n", id, action, told)
	return err
}

// onlyFlagsOf rejects the flags of other actions.
func (a *acting) onlyFlagsOf(action string) error {
	switch {
	case action != actionSkip && a.step != "":
		return usageError("--step is only allowed with skip")
	case action != actionRetry && (a.from != "" || a.preview):
		return usageError("--from and --preview are only allowed with retry")
	}
	return nil
}

// request returns the request of an action.
func (a *acting) request(by string) operator.ActionRequest {
	request := operator.ActionRequest{By: by, Step: a.step}
	if a.from != "" {
		request.Stage, request.Step, _ = strings.Cut(a.from, "/")
	}
	return request
}

// previewRetry prints what becomes of the steps of an operation if it is retried.
func (a *acting) previewRetry(ctx context.Context, client *operator.Client, id string) error {
	stage, step, _ := strings.Cut(a.from, "/")
	preview, raw, err := client.PreviewRetry(ctx, id, stage, step)
	if err != nil {
		return explainUnknown(err, id)
	}
	if a.json() {
		return printJSON(a.Out, raw)
	}
	plans := map[string]string{"again": "runs again", "first": "runs for the first time", "unknown": "condition not known yet"}
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, s := range preview.Steps {
		plan := cmp.Or(plans[s.Plan], s.Plan)
		if s.Reason != "" {
			plan += ": " + s.Reason
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", s.Stage, s.Step, plan)
	}
	_ = table.Flush() // a bytes.Buffer does not fail
	if preview.LosesMemory {
		fmt.Fprintf(&text, "\nIf a step needs what the steps before %s put into the stage memory, the stage %s starts at its first step: the memory is deleted.\n", step, stage)
	}
	if preview.Sent != nil {
		text.WriteString("\nSENT to the first of these steps\n")
		writeSent(&text, preview.Sent)
	}
	_, err = a.Out.Write(trimLines(text.Bytes()))
	return err
}

// detailsText shows what an operation has besides its steps.
func detailsText(op *operator.OperationDetail) string {
	var text bytes.Buffer
	version := op.ProcessHash
	if op.ProcessCurrent {
		version += " (current)"
	}
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "\nprocess version:\t%s\n", version)
	if op.TraceID != "" {
		fmt.Fprintf(table, "trace:\t%s\n", op.TraceID)
	}
	for _, link := range op.Links {
		fmt.Fprintf(table, "%s:\t%s\n", link.Name, link.URL)
	}
	_ = table.Flush() // a bytes.Buffer does not fail
	writeData(&text,
		section{"parameters", op.Parameters, len(op.Parameters) > 0},
		section{"changes", op.Update, op.Update != nil},
		section{"upgrade", op.Upgrade, op.Upgrade != nil},
		section{"saved data of the workers", op.Details, len(op.Details) > 0},
	)
	return string(trimLines(text.Bytes()))
}

// section is a value that is shown as JSON under a title.
type section struct {
	title string
	value any
	shown bool
}

func writeData(text *bytes.Buffer, sections ...section) {
	for _, b := range sections {
		if !b.shown {
			continue
		}
		if value, err := json.MarshalIndent(b.value, "  ", "  "); err == nil {
			fmt.Fprintf(text, "%s:\n  %s\n", b.title, value)
		}
	}
}

// historyText lists every try in the order of cursors, which is the order in which they took effect. Tries with the same result are one
// line, at the place of the last one.
func historyText(history []operator.HistoryLine) string {
	var text bytes.Buffer
	text.WriteString("\nhistory:\n")
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, e := range history {
		finished, told, step, tries, outcome := "", e.Message, "", "", e.Outcome
		if e.Step != "" {
			step, tries = e.Stage+"/"+e.Step, fmt.Sprintf("%d.%d", e.StageAttempt, e.StepAttempt)
		}
		if !e.FinishedAt.IsZero() {
			finished = e.FinishedAt.UTC().Format("2006-01-02T15:04:05.000Z07:00")
		}
		if e.Error != nil {
			told = e.Error.String()
		}
		if e.First != nil {
			outcome += fmt.Sprintf(" (%d tries since %s)", e.Tries, view.Time(e.First.StartedAt))
			if e.Similar {
				told = "last of several: " + told
			}
		}
		fmt.Fprintf(table, "  %d\t%s\t%s\t%s\t%s\t%s\t\n", e.Cursor, finished, step, tries, outcome, view.OneLine(told))
	}
	_ = table.Flush() // a bytes.Buffer does not fail
	return string(trimLines(text.Bytes()))
}

func explainUnknown(err error, id string) error {
	if errors.Is(err, operator.ErrNotFound) {
		return fmt.Errorf("there is no operation %s; keb operations lists them", id)
	}
	return err
}

func newWatch(o *options) *cobra.Command {
	var every, await time.Duration
	cmd := &cobra.Command{
		Use:   "watch ID",
		Short: "Follow an operation until it ends",
		Long: `Follow an operation until it ends: live on a terminal, one line per change otherwise, one JSON object per change with -o json.
The exit code is 0 if the operation succeeded.`,
		Args:              exactly("the id of an operation"),
		ValidArgsFunction: o.completeOperation,
		RunE: func(cmd *cobra.Command, args []string) error {
			if every < 50*time.Millisecond {
				return usageError("--every must be at least 50ms")
			}
			client, err := o.operatorClient()
			if err != nil {
				return err
			}
			op, err := view.Follow(cmd.Context(), client, args[0], o.printer(), view.FollowConfig{Every: every, Await: await})
			if err != nil {
				return explainUnknown(err, args[0])
			}
			return outcome(op)
		},
	}
	cmd.Flags().DurationVar(&every, "every", 500*time.Millisecond, "interval between two requests")
	cmd.Flags().DurationVar(&await, "await", 5*time.Second, "how long to wait for an operation that is not known yet, for example right after it was accepted")
	return cmd
}

// outcome returns an error if the operation did not succeed.
func outcome(op *operator.OperationDetail) error {
	if op.State == event.Succeeded {
		return nil
	}
	if op.Error != nil {
		return fmt.Errorf("operation %s %s: %s", op.ID, op.State, op.Error)
	}
	return fmt.Errorf("operation %s %s", op.ID, op.State)
}
