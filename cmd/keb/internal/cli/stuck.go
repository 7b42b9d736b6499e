package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kyma-project/keb/cmd/keb/internal/view"
	"github.com/kyma-project/keb/libs/api/operator"
)

func newStuck(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "stuck",
		Short: "Show stuck operations, the reason, and since when",
		Long: `Show operations that fail, get no answer, have no live worker or have not started, the reason, and since when. Operations that poll are shown
once they have polled for half of their time. Operations that wait for the same reason share one line; "keb operations --waiting REASON" lists them.`,
		Annotations: map[string]string{listAnnotation: "stuck"},
		Args:        exactly(),
		RunE:        func(cmd *cobra.Command, _ []string) error { return o.stuck(cmd.Context()) },
	}
}

func (o *options) stuck(ctx context.Context) error {
	client, err := o.operatorClient()
	if err != nil {
		return err
	}
	list, raw, err := client.Stuck(ctx)
	if err != nil {
		return err
	}
	if !o.text() {
		return o.printPage(raw)
	}
	if len(list.Data) == 0 {
		_, err := fmt.Fprintln(o.Out, "no operation is stuck")
		return err
	}
	return o.printTable(page{what: "groups", count: len(list.Data)}, []string{
		"REASON", "OPERATIONS", "TYPE", "STEP", "WORKER", "SINCE", "FOR", "FIRST", "BLOCKED BY", "LAST ERROR",
	}, stuckRows(list.Data, time.Now()))
}

func stuckRows(groups []*operator.Stuck, now time.Time) [][]string {
	rows := make([][]string, len(groups))
	for i, g := range groups {
		told, first := "", ""
		if g.Error != nil {
			told = g.Error.String()
		}
		if len(g.Operations) > 0 {
			first = g.Operations[0]
		}
		rows[i] = []string{
			string(g.Reason), strconv.Itoa(g.Count), string(g.Type), g.Step, g.Worker, view.Time(g.Since), view.Duration(now.Sub(g.Since)),
			first, strings.Join(g.BlockedBy, ", "), told,
		}
	}
	return rows
}

func newWorkers(o *options) *cobra.Command {
	return &cobra.Command{
		Use:         "workers",
		Short:       "List the workers, whether they are alive, and how many operations wait for them",
		Annotations: map[string]string{listAnnotation: "workers"},
		Args:        exactly(),
		RunE:        func(cmd *cobra.Command, _ []string) error { return o.workers(cmd.Context()) },
	}
}

func (o *options) workers(ctx context.Context) error {
	client, err := o.operatorClient()
	if err != nil {
		return err
	}
	list, raw, err := client.Workers(ctx)
	if err != nil {
		return err
	}
	if !o.text() {
		return o.printPage(raw)
	}
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "WORKER\tALIVE\tREPLICAS\tVERSION\tPENDING\tSTEPS/MIN\tRETRIED/MIN\tFAILED/MIN\tWAITING\tMISSING STEPS\t")
	for i := range list.Data {
		printWorker(table, list.Data[i])
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err = o.Out.Write(trimLines(text.Bytes()))
	return err
}

func printWorker(table io.Writer, w *operator.Worker) {
	alive := "no"
	if w.Alive {
		alive = "yes"
	}
	var pending int64
	if w.Pending != nil {
		pending = *w.Pending
	}
	fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%d\t%.0f\t%.0f\t%.0f\t%d\t%s\t\n", w.Name, alive, w.Replicas, versionText(w), pending, w.StepsPerMinute,
		w.RetriesPerMinute, w.FailuresPerMinute, w.OperationsWaiting, strings.Join(w.MissingSteps, ", "))
}

// versionText returns the versions of a worker; during a rollout, with the replicas of each.
func versionText(w *operator.Worker) string {
	if len(w.VersionReplicas) < 2 {
		return w.Version
	}
	parts := make([]string, len(w.VersionReplicas))
	for i, v := range w.VersionReplicas {
		parts[i] = fmt.Sprintf("%s (%d)", v.Version, v.Replicas)
	}
	return strings.Join(parts, ", ")
}
