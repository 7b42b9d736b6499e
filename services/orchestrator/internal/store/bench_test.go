package store

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
)

// BenchmarkWrite measures one commit of a batch of results on a server without fsync: the cost of the statement for the
// database and the driver. It reports the WAL bytes per row.
func BenchmarkWrite(b *testing.B) {
	for _, size := range []int{1, 12, 120} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			s := setup(b)
			s.db.SetMaxOpenConns(1)
			changes := make([]*Change, size)
			for i := range changes {
				r := s.started(i)
				result := succeeded(r)
				result.Worker = event.Worker{Version: "1.0.0"}
				changes[i] = s.apply(r, result, epoch)
			}
			wal := func() (bytes float64) {
				require.NoError(b, s.db.Get(&bytes, `SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn`))
				return bytes
			}
			before, busy := wal(), s.serverCPU()
			b.ReportAllocs()
			for b.Loop() {
				for _, c := range changes {
					c.Row.Cursor++
					c.History[0].Cursor = c.Row.Cursor
				}
				written, err := s.Write(b.Context(), changes)
				if err != nil || len(written) != size {
					b.Fatal(len(written), err)
				}
			}
			b.ReportMetric((wal()-before)/float64(b.N*size), "WAL-B/row")
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*size), "us/row")
			b.ReportMetric(float64((s.serverCPU()-busy).Microseconds())/float64(b.N*size), "server-us/row")
		})
	}
}

// serverCPU returns the CPU time of the server process of the only connection; zero if it is not available.
func (b *bundle) serverCPU() time.Duration {
	var pid int
	require.NoError(b.t, b.db.Get(&pid, `SELECT pg_backend_pid()`))
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	var ticks int64
	for _, field := range strings.Fields(rest)[11:13] {
		n, _ := strconv.ParseInt(field, 10, 64)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
