//go:build linux

package chaos

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

// row is the result of one fault.
type row struct {
	fault                         string
	accepted, succeeded, failed   int
	lost, doubled, missing        int
	refusals                      string
	stall, progress, slowest      time.Duration
	sentAgain, dead, exits, binds int
}

// table prints the rows.
func table(out io.Writer, rows []row) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "FAULT\tACCEPTED\tSUCCEEDED\tFAILED\tLOST\tDOUBLED\tMISSING\tLONGEST STALL\tFIRST PROGRESS\tSLOWEST\tSENT AGAIN\tDEAD\tEXITS\tBINDINGS\tREQUESTS REFUSED")
	if len(rows) > 1 {
		rows = append(slices.Clone(rows), sum(rows))
	}
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%.1f s\t%.1f s\t%.1f s\t%d\t%d\t%d\t%d\t%s\n", r.fault, r.accepted, r.succeeded, r.failed, r.lost, r.doubled,
			r.missing, r.stall.Seconds(), r.progress.Seconds(), r.slowest.Seconds(), r.sentAgain, r.dead, r.exits, r.binds, r.refusals)
	}
	_ = w.Flush() // to a terminal or a file
}

func sum(rows []row) row {
	s := row{fault: "all", refusals: "-"}
	for _, r := range rows {
		s.accepted += r.accepted
		s.succeeded += r.succeeded
		s.failed += r.failed
		s.lost += r.lost
		s.doubled += r.doubled
		s.missing += r.missing
		s.stall, s.progress = max(s.stall, r.stall), max(s.progress, r.progress)
		s.slowest = max(s.slowest, r.slowest)
		s.sentAgain += r.sentAgain
		s.dead += r.dead
		s.exits += r.exits
		s.binds += r.binds
	}
	return s
}

// watch observes the progress of operations in the database, without a proxy.
type watch struct {
	w    *world
	load *load
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

func newWatch(ctx context.Context, w *world, l *load) *watch {
	ctx, stop := context.WithCancel(ctx)
	v := &watch{w: w, load: l, stop: stop, moved: time.Now(), again: map[string]float64{}}
	addresses := map[string]string{}
	for _, name := range w.names("orchestrator-") {
		addresses[name] = w.addr[name]
	}
	v.done.Go(func() { v.every(ctx, 100*time.Millisecond, v.look) })
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
	err := v.w.db.GetContext(ctx, &cursors, `SELECT COALESCE(sum(cursor), 0) FROM orchestrator.operations`)
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
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", http.NoBody)
	if err != nil {
		return
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return // the process is down
	}
	defer func() { _ = response.Body.Close() }()
	value, found := 0.0, false
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "keb_commands_sent_again_total"); ok {
			if n, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64); err == nil {
				value, found = value+n, true
			}
		}
	}
	if !found {
		return
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

// heal marks the end of the fault.
func (v *watch) heal() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.healed, v.progress = time.Now(), 0
}

// end stops the observation and fills in the row.
func (v *watch) end(ctx context.Context, r *row) {
	for name, addr := range v.w.addr {
		if strings.HasPrefix(name, "orchestrator-") {
			v.scrape(ctx, name, addr)
		}
	}
	v.stop()
	v.done.Wait()
	r.stall, r.progress, r.sentAgain = v.stall, v.progress, int(v.total)
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
func (w *world) deadLetters(ctx context.Context) dead {
	w.t.Helper()
	s, err := w.js.Stream(ctx, string(event.StreamDead))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return dead{}
	}
	require.NoError(w.t, err, "count the dead letters")
	return dead{stream: s.CachedInfo().Created, n: int(s.CachedInfo().State.Msgs)}
}
