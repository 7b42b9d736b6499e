//go:build linux

package installation

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
)

// Row is the result of one fault.
type Row struct {
	Fault                       string
	Rounds                      int // of a soak
	Accepted, Succeeded, Failed int
	Lost, Doubled, Missing      int
	Replaced                    int // objects that a repeated step has removed and created anew
	Late                        int // objects that a deprovisioned runtime has at the end of the phase; Settle checks that they go
	Refusals                    string
	Stall, Progress, Slowest    time.Duration
	Provisioning                time.Duration // the median of accepted provisionings
	// Redelivered counts deliveries of commands, results and requests to handlers that were not the first one. What a process that was killed
	// has counted is lost.
	Redelivered                   int
	SentAgain, Dead, Exits, Binds int
}

// Table prints the rows.
func Table(out io.Writer, rows []Row) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "FAULT\tACCEPTED\tSUCCEEDED\tFAILED\tLOST\tDOUBLED\tMISSING\tREPLACED\tLATE\tLONGEST STALL\tFIRST PROGRESS\tSLOWEST\tREDELIVERED\tSENT AGAIN\tDEAD\tEXITS\tBINDINGS\tREQUESTS REFUSED")
	if len(rows) > 1 {
		rows = append(slices.Clone(rows), sum(rows))
	}
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.1f s\t%.1f s\t%.1f s\t%d\t%d\t%d\t%d\t%d\t%s\n", r.Fault, r.Accepted, r.Succeeded, r.Failed, r.Lost, r.Doubled,
			r.Missing, r.Replaced, r.Late, r.Stall.Seconds(), r.Progress.Seconds(), r.Slowest.Seconds(), r.Redelivered, r.SentAgain, r.Dead, r.Exits, r.Binds, r.Refusals)
	}
	_ = w.Flush() // to a terminal or a file
}

func sum(rows []Row) Row {
	s := Row{Fault: "all", Refusals: "-"}
	for _, r := range rows {
		s.Add(r)
	}
	return s
}

// Add adds the numbers of another row. Durations are the longest ones.
func (r *Row) Add(other Row) {
	r.Accepted += other.Accepted
	r.Succeeded += other.Succeeded
	r.Failed += other.Failed
	r.Lost += other.Lost
	r.Doubled += other.Doubled
	r.Missing += other.Missing
	r.Replaced += other.Replaced
	r.Late += other.Late
	r.Stall, r.Progress, r.Slowest = max(r.Stall, other.Stall), max(r.Progress, other.Progress), max(r.Slowest, other.Slowest)
	r.Provisioning = max(r.Provisioning, other.Provisioning)
	r.Redelivered += other.Redelivered
	r.SentAgain += other.SentAgain
	r.Dead += other.Dead
	r.Exits += other.Exits
	r.Binds += other.Binds
}

// watch observes the progress of operations in the database, without a proxy.
type watch struct {
	w    *World
	load *Load
	stop context.CancelFunc
	done sync.WaitGroup

	mu       sync.Mutex
	cursors  int64
	moved    time.Time // the last progress, or the last time without waiting operations
	stall    time.Duration
	healed   time.Time
	progress time.Duration // from the end of the fault
	again    map[string]float64
	total    float64
}

func newWatch(ctx context.Context, w *World, l *Load, stalls bool) *watch {
	ctx, stop := context.WithCancel(ctx)
	v := &watch{w: w, load: l, stop: stop, moved: time.Now(), again: map[string]float64{}}
	addresses := map[string]string{}
	for _, name := range w.Names("orchestrator-") {
		addresses[name] = w.Addr[name]
	}
	if stalls {
		v.done.Go(func() { v.every(ctx, 100*time.Millisecond, v.look) })
	}
	v.done.Go(func() {
		v.every(ctx, time.Second, func(ctx context.Context) {
			for name, addr := range addresses {
				v.scrape(ctx, name, addr)
			}
		})
	})
	return v
}

func (v *watch) every(ctx context.Context, d time.Duration, do func(context.Context)) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		do(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look reads the sum of the cursors, which increases with each transition of an operation.
func (v *watch) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var cursors int64
	err := v.w.DB.GetContext(ctx, &cursors, `SELECT COALESCE(sum(cursor), 0) FROM orchestrator.operations`)
	now := time.Now()
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case err == nil && cursors != v.cursors:
		if !v.healed.IsZero() && v.progress == 0 {
			v.progress = now.Sub(v.healed)
		}
		v.cursors, v.moved = cursors, now
	case v.load.waiting.Load() == 0:
		v.moved = now
	}
	v.stall = max(v.stall, now.Sub(v.moved))
}

// scrape adds the number of commands that were sent again, across restarts of the counters.
func (v *watch) scrape(ctx context.Context, name, addr string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	value, err := metric(ctx, addr, "keb_commands_sent_again_total")
	if err != nil {
		return // the process is down
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if before, known := v.again[name]; known && value >= before {
		v.total += value - before
	} else if known {
		v.total += value
	}
	v.again[name] = value
}

// redelivered returns the number of redelivered messages that each process has counted. It leaves out processes without an answer, and without the
// metric: they have consumed nothing.
func (w *World) redelivered(ctx context.Context) map[string]int {
	counts := map[string]int{}
	for _, name := range w.Names("orchestrator-", "worker-") {
		asking, cancel := context.WithTimeout(ctx, 5*time.Second)
		if n, err := metric(asking, w.Addr[name], "keb_bus_redelivered_total"); err == nil {
			counts[name] = int(n)
		}
		cancel()
	}
	return counts
}

// redeliveredSince returns the number of messages that were redelivered since an earlier answer of redelivered.
func (w *World) redeliveredSince(ctx context.Context, before map[string]int) (n int) {
	for name, after := range w.redelivered(ctx) {
		if after < before[name] {
			n += after // it was restarted
		} else {
			n += after - before[name]
		}
	}
	return n
}

// metric returns the sum of all series of a metric. The context must have a deadline.
func metric(ctx context.Context, addr, name string) (sum float64, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request) //nolint:forbidigo // the context has a deadline
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	series, lines := 0, bufio.NewScanner(response.Body)
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), name)
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		n, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("metric %s: %w", name, err)
		}
		series, sum = series+1, sum+n
	}
	if err := lines.Err(); err != nil || series == 0 {
		return 0, errors.Join(fmt.Errorf("there is no metric %s", name), err)
	}
	return sum, nil
}

// heal marks the end of the fault.
func (v *watch) heal() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.healed, v.progress = time.Now(), 0
}

// end stops the observation and fills in the row.
func (v *watch) end(ctx context.Context, r *Row) {
	for name, addr := range v.w.Addr {
		if strings.HasPrefix(name, "orchestrator-") {
			v.scrape(ctx, name, addr)
		}
	}
	v.stop()
	v.done.Wait()
	r.Stall, r.Progress, r.SentAgain = v.stall, v.progress, int(v.total)
}

// dead is the number of dead letters in a stream that may be created again.
type dead struct {
	stream time.Time
	n      int
}

// since returns the number of new dead letters.
func (d dead) since(before dead) int {
	if d.stream.Equal(before.stream) {
		return d.n - before.n
	}
	return d.n
}

// deadLetters counts the dead letters.
func (w *World) deadLetters(ctx context.Context) dead {
	w.T.Helper()
	s, err := w.JS.Stream(ctx, string(event.StreamDead))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return dead{}
	}
	require.NoError(w.T, err, "count the dead letters")
	found := dead{stream: s.CachedInfo().Created, n: int(s.CachedInfo().State.Msgs)}
	if w.Foreign != nil {
		found.n = w.own(ctx, s)
	}
	return found
}

// own counts the dead letters that Foreign does not report.
func (w *World) own(ctx context.Context, s jetstream.Stream) (n int) {
	w.T.Helper()
	c, err := s.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{HeadersOnly: true})
	require.NoError(w.T, err, "read the dead letters")
	for {
		batch, err := c.FetchNoWait(1000)
		require.NoError(w.T, err, "read the dead letters")
		read := 0
		for m := range batch.Messages() {
			read++
			if !w.Foreign(m.Headers()) {
				n++
			}
		}
		require.NoError(w.T, batch.Error(), "read the dead letters")
		if read == 0 {
			return n
		}
	}
}
