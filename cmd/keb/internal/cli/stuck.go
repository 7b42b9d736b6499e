package cli

import (
	"fmt"
	"strconv"
	"strings"
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
		RunE: func(cmd *cobra.Command, _ []string) error {
			return answer(cmd.Context(), o, (*operator.Client).Stuck, o.printStuck)
		},
	}
}

func (o *options) printStuck(list *operator.List[*operator.Stuck]) error {
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
		worker := g.Worker
		if g.Version != "" {
			worker += " " + view.OneLine(g.Version)
		}
		rows[i] = []string{
			string(g.Reason), strconv.Itoa(g.Count), string(g.Type), g.Step, worker, view.Time(g.Since), view.Duration(now.Sub(g.Since)),
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
		RunE: func(cmd *cobra.Command, _ []string) error {
			return answer(cmd.Context(), o, (*operator.Client).Workers, o.printWorkers)
		},
	}
}

func (o *options) printWorkers(list *operator.List[*operator.Worker]) error {
	rows := make([][]string, len(list.Data))
	for i, w := range list.Data {
		alive, pending := "no", int64(0)
		if w.Alive {
			alive = "yes"
		}
		if w.Pending != nil {
			pending = *w.Pending
		}
		rows[i] = []string{
			w.Name, alive, strconv.Itoa(w.Replicas), versionText(w), strconv.FormatInt(pending, 10), perMinute(w.StepsPerMinute),
			perMinute(w.RetriesPerMinute), perMinute(w.FailuresPerMinute), strconv.Itoa(w.OperationsWaiting), strings.Join(w.MissingSteps, ", "),
		}
	}
	return o.printTable(page{what: "workers", count: len(rows), total: len(rows)}, []string{
		"WORKER", "ALIVE", "REPLICAS", "VERSION", "PENDING", "STEPS/MIN", "RETRIED/MIN", "FAILED/MIN", "WAITING", "MISSING STEPS",
	}, rows)
}

func perMinute(rate float64) string { return strconv.FormatFloat(rate, 'f', 0, 64) }

// versionText returns the versions of a worker; during a rollout, with the replicas of each.
func versionText(w *operator.Worker) string {
	var parts []string
	for _, v := range w.VersionReplicas {
		part := fmt.Sprintf("%s (%d)", v.Version, v.Replicas)
		if len(w.VersionReplicas) < 2 {
			part = v.Version
		}
		parts = append(parts, part)
	}
	for i := range w.Ramps {
		parts = append(parts, "ramp "+view.OneLine(w.Ramps[i].String()))
	}
	return strings.Join(parts, ", ")
}
