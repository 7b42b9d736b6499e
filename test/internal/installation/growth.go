//go:build linux

package installation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/require"
)

// Usage is what an installation uses at one moment, by name, for example "broker: resident MB". Values of replicas are added.
type Usage struct {
	At     time.Time
	Values map[string]float64
	// CPU has the seconds of CPU time that brokers, orchestrators, workers, NATS and Postgres have used since they started.
	CPU map[string]float64
	// DeadRows are those of all tables.
	DeadRows []DeadRows
}

// Usage measures what the installation uses. Call it while no operation runs, so that two results can be compared.
func (w *World) Usage() Usage {
	w.T.Helper()
	ctx, cancel := context.WithTimeout(w.T.Context(), time.Minute)
	defer cancel()
	u := Usage{At: time.Now(), Values: map[string]float64{}, CPU: map[string]float64{}}
	for _, name := range w.Names("broker-", "orchestrator-", "worker-", ToNATS) {
		role, _, _ := strings.Cut(name, "-")
		pid := w.Programs[name].cmd.Process.Pid
		statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		require.NoErrorf(w.T, err, "memory of %s", name)
		pages, err := strconv.ParseFloat(strings.Fields(string(statm))[1], 64)
		require.NoErrorf(w.T, err, "memory of %s", name)
		u.Values[role+": resident MB"] += pages * float64(os.Getpagesize()) / 1e6
		files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		require.NoErrorf(w.T, err, "open files of %s", name)
		u.Values[role+": open files"] += float64(len(files))
		u.CPU[role] += cpuOf(pid)
		if role != ToNATS {
			n, err := metric(ctx, w.Addr[name], "go_goroutines")
			require.NoErrorf(w.T, err, "goroutines of %s", name)
			u.Values[role+": goroutines"] += n
		}
	}
	for _, pid := range family(w.Postgres.PID()) {
		u.CPU[ToPostgres] += cpuOf(pid)
	}
	for _, name := range w.Servers {
		u.Values["nats: store MB"] += megabytes(w.T, filepath.Join(w.Dir, name))
	}
	for what, query := range map[string]string{
		"postgres: connections": `SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'`,
		"postgres: database MB": `SELECT pg_database_size(current_database()) / 1e6`,
		"postgres: dead rows":   `SELECT COALESCE(sum(n_dead_tup), 0) FROM pg_stat_user_tables`,
		"rows of operations":    `SELECT count(*) FROM orchestrator.operations`,
		"rows of the history":   `SELECT count(*) FROM orchestrator.history`,
		"rows of the archive":   `SELECT count(*) FROM orchestrator.archive`,
		"rows of the broker":    `SELECT (SELECT count(*) FROM broker.operations) + (SELECT count(*) FROM broker.tombstones) + (SELECT count(*) FROM broker.removed_bindings)`,
	} {
		var n float64
		require.NoError(w.T, w.DB.GetContext(ctx, &n, query), what)
		u.Values[what] = n
	}
	require.NoError(w.T, w.DB.SelectContext(ctx, &u.DeadRows, deadRowsSQL), "dead rows")
	return u
}

// DeadRows has the dead rows of a table, the rows changed and deleted since the start, and the number of dead rows at which autovacuum removes
// them.
type DeadRows struct {
	Table                string
	Dead, Changed, Limit float64
}

const deadRowsSQL = `SELECT relid::regclass::text AS "table", n_dead_tup AS dead, n_tup_upd + n_tup_del AS changed,
	current_setting('autovacuum_vacuum_threshold')::float + greatest(c.reltuples, 0) * COALESCE(
		(SELECT option_value FROM pg_options_to_table(c.reloptions) WHERE option_name = 'autovacuum_vacuum_scale_factor'),
		current_setting('autovacuum_vacuum_scale_factor'))::float AS "limit"
	FROM pg_stat_user_tables JOIN pg_class c ON c.oid = relid ORDER BY 1`

// NotVacuumed returns the tables with more dead rows than autovacuum may leave: between two measurements that are at least its interval apart it
// has removed all rows above the limit, except those that have died since the first.
func NotVacuumed(before, after Usage) (found []DeadRows) {
	earlier := map[string]DeadRows{}
	for _, t := range before.DeadRows {
		earlier[t.Table] = t
	}
	for _, t := range after.DeadRows {
		if e, ok := earlier[t.Table]; ok && t.Dead > max(t.Limit, e.Limit)+t.Changed-e.Changed {
			found = append(found, t)
		}
	}
	return found
}

// cpuOf returns the seconds of CPU time of a process and of its children that have ended; 0 if it has ended.
func cpuOf(pid int) (seconds float64) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	text := string(raw)
	// utime, stime, cutime and cstime, in clock ticks of 10 ms
	for _, field := range strings.Fields(text[strings.LastIndex(text, ")")+1:])[11:15] {
		ticks, _ := strconv.ParseFloat(field, 64) // the kernel writes a number
		seconds += ticks / 100
	}
	return seconds
}

func megabytes(t testing.TB, dir string) (mb float64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			mb += float64(info.Size()) / 1e6
		}
		return err
	})
	require.NoErrorf(t, err, "size of %s", dir)
	return mb
}

// Slope is how a value changes. First and Last are the medians of the first and last quarter, PerHour is the slope of the line with the least
// squares.
type Slope struct {
	Name                 string
	First, Last, PerHour float64
}

// Slopes returns the slopes by name.
func Slopes(usages []Usage) (all []Slope) {
	if len(usages) < 4 {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(usages[0].Values)) {
		s := Slope{Name: name, First: medianOf(usages[:len(usages)/4+1], name), Last: medianOf(usages[len(usages)-len(usages)/4-1:], name)}
		var meanX, meanY, xy, xx float64
		hours := func(u Usage) float64 { return u.At.Sub(usages[0].At).Hours() }
		for _, u := range usages {
			meanX += hours(u) / float64(len(usages))
			meanY += u.Values[name] / float64(len(usages))
		}
		for _, u := range usages {
			xy += (hours(u) - meanX) * (u.Values[name] - meanY)
			xx += (hours(u) - meanX) * (hours(u) - meanX)
		}
		if s.PerHour = xy / xx; xx == 0 {
			s.PerHour = 0
		}
		all = append(all, s)
	}
	return all
}

func medianOf(usages []Usage, name string) float64 {
	values := make([]float64, 0, len(usages))
	for _, u := range usages {
		values = append(values, u.Values[name])
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// Grows reports whether the last quarter is more than a tenth above the first, and by more than least.
func (s Slope) Grows(least float64) bool {
	return s.Last-s.First > least && s.Last > 1.1*s.First
}

// SlopeTable prints slopes.
func SlopeTable(out io.Writer, slopes []Slope) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WHAT\tFIRST QUARTER\tLAST QUARTER\tPER HOUR\tPER HOUR, OF THE FIRST QUARTER")
	for _, s := range slopes {
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%+.1f\t%+.1f %%\n", s.Name, s.First, s.Last, s.PerHour, 100*s.PerHour/cmp.Or(s.First, 1))
	}
	_ = w.Flush() // to a terminal or a file
}
