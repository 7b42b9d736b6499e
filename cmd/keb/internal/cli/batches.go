package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kyma-project/keb/cmd/keb/internal/view"
	"github.com/kyma-project/keb/libs/api/operator"
)

// bulk holds the flags of keb operations that act on all operations of the filter.
type bulk struct {
	*options
	filter               *operator.Filter
	action, reason, rate string
	from                 string
	yes, detach          bool
}

func (b *bulk) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&b.action, "do", "", "act on all operations that match: "+strings.Join(texts(operator.BatchActions()), ", "))
	flags.StringVar(&b.reason, "reason", "", "why; required with --do")
	flags.StringVar(&b.rate, "rate", "", "operations per second with --do, for example 20/s; 0 for no limit (default 50/s)")
	flags.StringVar(&b.from, "from", "", "the place to retry from, with --do retry: STAGE or STAGE/STEP")
	flags.BoolVarP(&b.yes, "yes", "y", false, "with --do, do not ask")
	flags.BoolVar(&b.detach, "detach", false, "with --do, do not wait for the end of the batch")
	completeFlag(cmd, "do", texts(operator.BatchActions()))
}

// check rejects flags that do not fit together.
func (b *bulk) check(flags *pflag.FlagSet) error {
	for _, name := range []string{"page", "page-size", "sort"} {
		if b.action != "" && flags.Changed(name) {
			return usageError("--%s is not allowed with --do, which acts on all operations that match", name)
		}
	}
	switch action := operator.BatchAction(b.action); {
	case b.action == "" && (b.reason != "" || b.rate != "" || b.from != "" || b.yes || b.detach):
		return usageError("--reason, --rate, --from, --yes and --detach are only allowed with --do")
	case b.action == "":
		return nil
	case !slices.Contains(operator.BatchActions(), action):
		return usageError("--do %q is not an action; allowed: %s", b.action, strings.Join(texts(operator.BatchActions()), ", "))
	case b.filter.Query() == "":
		return usageError("--do needs a filter, for example --state failed")
	case b.reason == "" && action != operator.BatchResume:
		return usageError("--do needs --reason")
	case b.from != "" && action != operator.BatchRetry:
		return usageError("--from is only allowed with --do retry")
	case action == operator.BatchSkip && b.filter.Step == "":
		return usageError("--do skip needs --step with the name of the step")
	case b.columns != nil:
		return usageError("--output %s is not allowed with --do", outputCustom)
	case (action == operator.BatchHold || action == operator.BatchResume) && (b.rate != "" || b.detach):
		return usageError("--rate and --detach are not allowed with --do %s", b.action)
	}
	return nil
}

func (b *bulk) request() (operator.BatchRequest, error) {
	request := operator.BatchRequest{Action: operator.BatchAction(b.action), Filter: b.filter.Query(), Reason: b.reason}
	request.Stage, request.Step, _ = strings.Cut(b.from, "/")
	if request.Action == operator.BatchSkip {
		request.Step = b.filter.Step
	}
	if b.rate != "" {
		rate, err := strconv.ParseFloat(strings.TrimSuffix(b.rate, "/s"), 64)
		if err != nil || rate < 0 || math.IsNaN(rate) || math.IsInf(rate, 0) {
			return request, usageError("--rate %q: must be a number of operations per second, for example 20/s", b.rate)
		}
		request.Rate = &rate
	}
	request.By = b.author()
	return request, nil
}

// run previews the action, asks, and orders it.
func (b *bulk) run(ctx context.Context) error {
	request, err := b.request()
	if err != nil {
		return err
	}
	client, err := b.operatorClient()
	if err != nil {
		return err
	}
	preview, raw, err := client.PreviewBatch(ctx, request)
	if err != nil {
		return err
	}
	out := b.progress()
	if !b.yes {
		out = b.Err // where the question is
	}
	if _, err := io.WriteString(out, previewText(&request, preview, width(out))); err != nil {
		return err
	}
	if preview.Count == 0 && request.Action != operator.BatchHold && request.Action != operator.BatchResume {
		if b.json() {
			return printJSON(b.Out, raw)
		}
		return nil
	}
	if err := b.confirm(ctx, preview.Count); err != nil {
		return err
	}
	switch request.Action {
	case operator.BatchHold:
		return b.createHold(ctx, operator.HoldRequest{Scope: *preview.Scope, Reason: request.Reason})
	case operator.BatchResume:
		return b.release(ctx, client, preview.Holds)
	}
	request.Expected = preview.Count
	batch, answer, err := client.OrderBatch(ctx, request)
	if err != nil {
		return err
	}
	if b.detach {
		if b.json() {
			return printJSON(b.Out, answer)
		}
		_, err := fmt.Fprintf(b.Out, "batch %s: %s of %d operations; keb batch %s shows its progress\n", batch.ID, batch.Action, batch.Total, batch.ID)
		return err
	}
	return b.followBatch(ctx, client, batch.ID, true)
}

// width returns the width of a terminal, or 0.
func width(out io.Writer) int {
	if size, ok := terminal(out); ok {
		return size().Width
	}
	return 0
}

// release releases the holds with the scope of the filter.
func (b *bulk) release(ctx context.Context, client *operator.Client, holds []operator.Hold) error {
	for i := range holds {
		if err := client.ReleaseHold(ctx, holds[i].ID); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(b.progress(), "hold %s released\n", holds[i].ID); err != nil {
			return err
		}
	}
	if b.json() {
		return printJSON(b.Out, map[string][]operator.Hold{"released": append([]operator.Hold{}, holds...)})
	}
	return nil
}

// confirm asks for the number of operations on a terminal. Elsewhere it requires --yes.
func (b *bulk) confirm(ctx context.Context, count int) error {
	if b.yes {
		return nil
	}
	if _, ok := terminal(b.Err); !ok {
		return usageError("nothing was done; add --yes to %s these operations", b.action)
	}
	return confirmCount(ctx, b.In, b.Err, b.action, count)
}

// confirmCount asks to type a number. An interruption ends it.
func confirmCount(ctx context.Context, in io.Reader, out io.Writer, action string, count int) error {
	if _, err := fmt.Fprintf(out, "Type %d to %s these operations: ", count, action); err != nil {
		return err
	}
	line, err := readLine(ctx, in)
	if err != nil {
		return fmt.Errorf("read the confirmation: %w", err)
	}
	if line != strconv.Itoa(count) {
		return errors.New("not confirmed; nothing was done")
	}
	return nil
}

// readLine reads a line and trims it. An interruption ends it.
func readLine(ctx context.Context, in io.Reader) (string, error) {
	var line string
	var err error
	read := make(chan struct{})
	// A terminal cannot be closed to end a read, so after an interruption the goroutine ends with the process.
	go func() {
		defer close(read)
		line, err = bufio.NewReader(in).ReadString('\n')
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case <-read:
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return strings.TrimSpace(line), nil
}

// previewText describes what an action would do.
func previewText(request *operator.BatchRequest, p *operator.BatchPreview, width int) string {
	var text bytes.Buffer
	fmt.Fprintf(&text, "%d operations match", p.Count)
	if p.Scope != nil {
		fmt.Fprintf(&text, "; scope of the hold: %s", view.OneLine(p.Scope.String()))
	}
	text.WriteString("\n")
	for i := range p.Holds {
		fmt.Fprintf(&text, "  hold %s by %s: %s\n", p.Holds[i].ID, view.OneLine(p.Holds[i].CreatedBy), view.OneLine(p.Holds[i].Reason))
	}
	if len(p.Sample) == 0 {
		return text.String()
	}
	impossible := 0
	rows := make([][]string, len(p.Sample))
	for i := range p.Sample {
		s := &p.Sample[i]
		told := where(&s.Operation)
		if s.Problem != "" {
			impossible++
			told = string(request.Action) + " is not possible: " + s.Problem
		}
		rows[i] = []string{s.Operation.ID, string(s.Operation.Type), string(s.Operation.State), s.Operation.Plan, s.Operation.InstanceID, told}
	}
	text.WriteString(view.Table([]string{"OPERATION", "TYPE", "STATE", "PLAN", "INSTANCE", "WHERE"}, rows, width))
	if p.Count > len(p.Sample) {
		fmt.Fprintf(&text, "and %d more\n", p.Count-len(p.Sample))
	}
	if impossible > 0 {
		fmt.Fprintf(&text, "%d of these %d would be skipped\n", impossible, len(p.Sample))
	}
	again := map[string]int{}
	for i := range p.Sample {
		for _, step := range p.Sample[i].Steps {
			if step.Plan == "again" {
				again[step.Stage+"/"+step.Step]++
			}
		}
	}
	if len(again) > 0 {
		var steps []string
		for _, step := range slices.SortedFunc(maps.Keys(again), func(a, b string) int { return cmp.Or(again[b]-again[a], strings.Compare(a, b)) }) {
			steps = append(steps, fmt.Sprintf("%s (%d)", step, again[step]))
		}
		fmt.Fprintf(&text, "of these %d run again: %s\n", len(p.Sample), strings.Join(steps, ", "))
	}
	return text.String()
}

// followBatch shows the progress of a batch until it has ended. answered means that the operator API has answered before.
func (o *options) followBatch(ctx context.Context, client *operator.Client, id string, answered bool) error {
	bar := o.bar()
	isPaused := false
	err := o.poll(ctx, bar, answered, func() (bool, error) {
		found, raw, err := client.Batch(ctx, id)
		if err != nil {
			return false, err
		}
		if err := bar.Set(found.Total-found.Waiting, found.Total, batchText(found)); err != nil {
			return false, err
		}
		wasPaused := isPaused
		isPaused = found.State == operator.BatchPaused
		switch {
		case found.State.Final():
			return true, errors.Join(bar.Done(), o.batchEnd(found, raw))
		case isPaused && !wasPaused:
			return false, o.note(bar, "the batch is paused; keb batch resume %s continues it, keb batch cancel %s ends it", id, id)
		}
		return false, nil
	})
	if errors.Is(err, context.Canceled) {
		return errors.Join(err, o.note(bar, "the batch goes on; keb batch %s shows it, keb batch cancel %s ends it", id, id))
	}
	return err
}

func (o *options) batchEnd(b *operator.Batch, raw json.RawMessage) error {
	if o.json() {
		if err := printJSON(o.Out, raw); err != nil {
			return err
		}
	}
	switch {
	case b.State == operator.BatchCancelled:
		return fmt.Errorf("batch %s is %s", b.ID, batchText(b))
	case b.Failed > 0:
		return fmt.Errorf("batch %s: %d operations failed; keb batch %s --state failed lists them", b.ID, b.Failed, b.ID)
	case b.Skipped > 0 && !o.json():
		_, err := fmt.Fprintf(o.Out, "%d operations were skipped; keb batch %s --state skipped lists them\n", b.Skipped, b.ID)
		return err
	}
	return nil
}

func batchText(b *operator.Batch) string {
	return fmt.Sprintf("%s: %d done, %d failed, %d skipped, %d waiting", b.State, b.Done, b.Failed, b.Skipped, b.Waiting)
}

// batching holds the flags of keb batches and keb batch.
type batching struct {
	*options
	page operator.Page
}

func (b *batching) paged(cmd *cobra.Command) {
	cmd.Flags().IntVar(&b.page.Page, "page", 1, "page number, starting at 1")
	cmd.Flags().IntVar(&b.page.PageSize, "page-size", 50, "entries per page")
}

func newBatches(o *options) *cobra.Command {
	b := &batching{options: o}
	cmd := &cobra.Command{
		Use:         "batches",
		Short:       "List actions on many operations, newest first",
		Annotations: map[string]string{listAnnotation: "batches"},
		Args:        exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return answer(cmd.Context(), o, func(c *operator.Client, ctx context.Context) (*operator.List[operator.Batch], json.RawMessage, error) {
				return c.Batches(ctx, b.page)
			}, b.printList)
		},
	}
	cmd.Flags().StringVarP(&b.page.State, "state", "s", "", "only batches in this state: running, paused, finished, cancelled")
	b.paged(cmd)
	return cmd
}

func (b *batching) printList(list *operator.List[operator.Batch]) error {
	rows := make([][]string, len(list.Data))
	for i := range list.Data {
		one := &list.Data[i]
		rows[i] = []string{
			one.ID, string(one.Action), string(one.State), strconv.Itoa(one.Done), strconv.Itoa(one.Failed), strconv.Itoa(one.Skipped),
			strconv.Itoa(one.Total), view.Duration(time.Since(one.CreatedAt)), one.CreatedBy, one.Reason,
		}
	}
	return b.printTable(page{"batches", b.page.Page, b.page.PageSize, list.Count, list.TotalCount},
		[]string{"BATCH", "ACTION", "STATE", "DONE", "FAILED", "SKIPPED", "TOTAL", "AGE", "BY", "REASON"}, rows)
}

func newBatch(o *options) *cobra.Command {
	b := &batching{options: o}
	watch := false
	cmd := &cobra.Command{
		Use:     "batch ID",
		Short:   "Show a batch and the results of its operations, follow it, pause, resume or cancel it",
		Example: "  keb batch ID --watch\n  keb batch ID --state failed\n  keb batch pause ID",
		Args:    exactly("the id of a batch"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := b.operatorClient()
			if err != nil {
				return err
			}
			if watch {
				return noBatch(b.followBatch(cmd.Context(), client, args[0], false), args[0])
			}
			return noBatch(b.show(cmd.Context(), client, args[0]), args[0])
		},
	}
	cmd.Flags().StringVarP(&b.page.State, "state", "s", "", "only operations in this state: waiting, done, failed, skipped")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "follow the batch until it has ended")
	b.paged(cmd)
	for _, c := range []struct{ action, short string }{
		{"pause", "Pause a batch; no further operation is changed"},
		{"resume", "Resume a paused batch"},
		{"cancel", "Cancel a batch; results stay, the other operations are not changed"},
	} {
		cmd.AddCommand(&cobra.Command{
			Use: c.action + " ID", Short: c.short, Args: exactly("the id of a batch"),
			RunE: func(cmd *cobra.Command, args []string) error { return b.change(cmd.Context(), args[0], c.action) },
		})
	}
	return cmd
}

func noBatch(err error, id string) error {
	if errors.Is(err, operator.ErrNotFound) {
		return fmt.Errorf("there is no batch %s; keb batches lists them", id)
	}
	return err
}

func (b *batching) change(ctx context.Context, id, action string) error {
	err := answer(ctx, b.options, func(c *operator.Client, ctx context.Context) (*operator.Batch, json.RawMessage, error) {
		return c.ChangeBatch(ctx, id, action)
	}, func(changed *operator.Batch) error {
		_, err := fmt.Fprintf(b.Out, "batch %s is %s\n", id, batchText(changed))
		return err
	})
	return noBatch(err, id)
}

func (b *batching) show(ctx context.Context, client *operator.Client, id string) error {
	found, raw, err := client.Batch(ctx, id)
	if err != nil {
		return err
	}
	results, rawResults, err := client.BatchResults(ctx, id, b.page)
	if err != nil {
		return err
	}
	if b.json() {
		both, err := json.Marshal(map[string]json.RawMessage{"batch": raw, "operations": rawResults})
		if err != nil {
			return err
		}
		return printJSON(b.Out, both)
	}
	rate := "no limit"
	if found.Rate > 0 {
		rate = strconv.FormatFloat(found.Rate, 'g', -1, 64) + "/s"
	}
	action := string(found.Action)
	switch {
	case found.Stage != "":
		action += " from " + operator.RetryFrom(found.Stage, found.Step)
	case found.Step != "":
		action += " " + found.Step
	}
	fmt.Fprintf(b.Out, "batch      %s\naction     %s\nfilter     %s\nreason     %s\nordered    %s by %s\nrate       %s\nstate      %s\n\n", found.ID, view.OneLine(action),
		view.OneLine(found.Filter), view.OneLine(found.Reason), view.Time(found.CreatedAt), view.OneLine(found.CreatedBy), rate, batchText(found))
	rows := make([][]string, len(results.Data))
	for i := range results.Data {
		r, at := &results.Data[i], ""
		if r.At != nil {
			at = view.Time(*r.At)
		}
		rows[i] = []string{r.OperationID, r.InstanceID, string(r.State), at, r.Error}
	}
	return b.printTable(page{"operations", b.page.Page, b.page.PageSize, results.Count, results.TotalCount},
		[]string{"OPERATION", "INSTANCE", "RESULT", "AT", "ERROR"}, rows)
}
