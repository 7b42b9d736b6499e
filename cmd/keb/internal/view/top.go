package view

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
)

// Top is what the operator API shows of all operations at one time.
type Top struct {
	Overview   *operator.Overview   `json:"overview"`
	Throughput *operator.Throughput `json:"throughput"`
	Errors     *operator.Errors     `json:"errors"`
	Workers    []*operator.Worker   `json:"workers"`
	Holds      []operator.Hold      `json:"holds"`
	Limits     *operator.Limits     `json:"limits"`
}

// RenderTop renders a snapshot: what starts and ends, what does not move and why, workers, holds and limits.
func RenderTop(t *Top, size Size) []string {
	width := size.Width
	if width <= 0 {
		width = 120
	}
	now := t.Overview.Time
	hour := &t.Overview.LastHour
	lines := []string{
		Time(now),
		fmt.Sprintf("last hour: %d started, %d succeeded, %d failed, %d cancelled", hour.Started, hour.Succeeded, hour.Failed, hour.Cancelled),
		"waiting: " + waitingText(t.Overview.Waiting),
	}
	section := func(head []string, rows [][]string) {
		if len(rows) > 0 {
			lines = append(lines, "")
			lines = append(lines, strings.Split(strings.TrimSuffix(Table(head, rows, width), "\n"), "\n")...)
		}
	}
	section([]string{"TYPE", "PENDING", "RUNNING", "STARTED/MIN", "SUCCEEDED/MIN", "FAILED/MIN", ""}, typeRows(t))
	section([]string{"OPERATIONS", "REASON", "FOR", "STEP", "ERROR"}, failingRows(t.Errors))
	section([]string{"FAILED IN 24H", "LAST", "STEP", "ERROR"}, failedRows(t.Errors))
	section([]string{"WORKER", "REPLICAS", "STEPS/MIN", "FAILED/MIN", "RUNNING", "WAITING", ""}, workerRows(t.Workers))
	section([]string{"HELD", "BY", "SCOPE AND REASON"}, holdRows(t.Holds))
	if t.Limits != nil {
		section([]string{"LIMIT", "COMMANDS", "RATE", "OPERATIONS", ""}, limitRows(t.Limits.Limits))
	}
	if size.Height > 0 && len(lines) > size.Height {
		lines = append(lines[:size.Height-1:size.Height-1], fmt.Sprintf("... %d more lines", len(lines)-size.Height+1))
	}
	for i, line := range lines {
		lines[i] = cut(line, width)
	}
	return lines
}

func waitingText(waiting map[operator.WaitingReason]int) string {
	var parts []string
	for _, reason := range operator.WaitingReasons() {
		if n := waiting[reason]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, words(string(reason))))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "nothing")
}

func typeRows(t *Top) [][]string {
	var rows [][]string
	for _, of := range event.OperationTypes() {
		standing := map[event.OperationState]int{}
		for _, c := range t.Overview.Operations {
			if c.Type == of {
				standing[c.State] += c.Count
			}
		}
		var sum operator.OperationCounts
		for _, b := range t.Throughput.Data {
			c := b.Types[of]
			sum.Started, sum.Succeeded, sum.Failed = sum.Started+c.Started, sum.Succeeded+c.Succeeded, sum.Failed+c.Failed
		}
		rows = append(rows, []string{
			string(of), strconv.Itoa(standing[event.Pending]), strconv.Itoa(standing[event.InProgress]),
			t.perMinute(sum.Started), t.perMinute(sum.Succeeded), t.perMinute(sum.Failed), "",
		})
	}
	return rows
}

// perMinute returns how many of n events in all buckets there were per minute. The last bucket has not ended.
func (t *Top) perMinute(n int64) string {
	if len(t.Throughput.Data) == 0 {
		return "0"
	}
	elapsed := t.Overview.Time.Sub(t.Throughput.Data[0].Time)
	return rate(float64(n) / max(elapsed, time.Second).Minutes())
}

func rate(perMinute float64) string {
	if perMinute > 0 && perMinute < 10 {
		return strconv.FormatFloat(perMinute, 'f', 1, 64)
	}
	return strconv.FormatFloat(perMinute, 'f', 0, 64)
}

// workerRows lists workers that are away first, then those that fail, then those with waiting operations. Within these groups the order does
// not change, so that a live view stays readable.
func workerRows(workers []*operator.Worker) [][]string {
	rank := func(w *operator.Worker) int {
		switch {
		case !w.Alive:
			return 0
		case w.FailuresPerMinute > 0:
			return 1
		case w.OperationsWaiting > 0:
			return 2
		}
		return 3
	}
	sorted := slices.SortedFunc(slices.Values(workers), func(a, b *operator.Worker) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Name, b.Name))
	})
	rows := make([][]string, len(sorted))
	for i, w := range sorted {
		note := ""
		switch {
		case !w.Alive:
			note = "no live replica"
		case len(w.MissingSteps) > 0:
			note = "missing: " + strings.Join(w.MissingSteps, ", ")
		}
		rows[i] = []string{
			w.Name, strconv.Itoa(w.Replicas), rate(w.StepsPerMinute), rate(w.FailuresPerMinute), strconv.Itoa(w.OperationsExecuting),
			strconv.Itoa(w.OperationsWaiting), note,
		}
	}
	return rows
}

func holdRows(holds []operator.Hold) [][]string {
	rows := make([][]string, len(holds))
	for i := range holds {
		h := &holds[i]
		rows[i] = []string{strconv.Itoa(h.Operations), h.CreatedBy, h.Scope.String() + ": " + h.Reason}
	}
	return rows
}

func limitRows(limits []operator.Limit) [][]string {
	rows := make([][]string, len(limits))
	for i := range limits {
		l := &limits[i]
		each := ""
		if l.Each != "" {
			each = "for each " + l.Each
		}
		rows[i] = []string{l.Name, Number(l.Commands), cmp.Or(l.Rate, "-"), Number(l.Operations), each}
	}
	return rows
}

// Number formats a number; 0 is "-".
func Number(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}
