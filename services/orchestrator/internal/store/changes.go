package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
)

// ErrMarker means that a text is not a valid Marker of this database.
var ErrMarker = errors.New("is no marker of this database")

// Marker is a point in the history of the database: a transaction snapshot and its time. It needs no writes and no column.
type Marker struct {
	at       time.Time
	snapshot string
	// xmin is the oldest transaction that may still run.
	xmin int64
}

// maxMarker is the maximum size of the text of a marker, which lists the running transactions.
const maxMarker = 4000

// String returns the text form, for ParseMarker.
func (m Marker) String() string { return strconv.FormatInt(m.at.UnixMilli(), 10) + "." + m.snapshot }

// At returns the time of the marker.
func (m Marker) At() time.Time { return m.at }

// ParseMarker parses a marker; the error wraps ErrMarker.
func ParseMarker(text string) (Marker, error) {
	ms, snapshot, _ := strings.Cut(text, ".")
	at, err := strconv.ParseInt(ms, 10, 64)
	if err != nil || at < 0 || len(text) > maxMarker {
		return Marker{}, fmt.Errorf("%.50q: %w", text, ErrMarker)
	}
	m, err := newMarker(time.UnixMilli(at).UTC(), snapshot)
	if err != nil {
		return Marker{}, fmt.Errorf("%.50q: %w", text, err)
	}
	return m, nil
}

// newMarker parses a snapshot of Postgres: xmin, xmax, and the comma-separated running transactions between them.
func newMarker(at time.Time, snapshot string) (Marker, error) {
	parts := strings.Split(snapshot, ":")
	if len(parts) != 3 {
		return Marker{}, ErrMarker
	}
	xmin, err1 := strconv.ParseInt(parts[0], 10, 64)
	xmax, err2 := strconv.ParseInt(parts[1], 10, 64)
	if err := errors.Join(err1, err2); err != nil || xmin < 1 || xmax < xmin {
		return Marker{}, ErrMarker
	}
	if parts[2] != "" {
		last := xmin - 1
		for id := range strings.SplitSeq(parts[2], ",") {
			n, err := strconv.ParseInt(id, 10, 64)
			if err != nil || n <= last || n >= xmax {
				return Marker{}, ErrMarker
			}
			last = n
		}
	}
	return Marker{at: at, snapshot: snapshot, xmin: xmin}, nil
}

// Version is the version of the row of an operation.
type Version struct {
	ID      string
	Version int
}

const (
	markSQL = `SELECT now(), pg_current_snapshot()::text, pg_snapshot_xmax(pg_current_snapshot())::text::bigint`
	// sinceSQL selects rows that were written after a marker. A row holds the lower 32 bits of the transaction that wrote it last (xmin).
	// The age excludes transactions before the marker. For the others the full number is derived from the current one ($2), and the
	// snapshot of the marker ($3) decides whether the transaction was visible.
	sinceSQL = `age(o.xmin) <= age($1::text::xid) AND NOT pg_visible_in_snapshot((
    CASE WHEN ($2 & ~4294967295::bigint) + o.xmin::text::bigint > $2 + 2147483648::bigint
        THEN ($2 & ~4294967295::bigint) + o.xmin::text::bigint - 4294967296::bigint
        ELSE ($2 & ~4294967295::bigint) + o.xmin::text::bigint END)::text::xid8, $3::text::pg_snapshot)`
	// changedSQL relies on operations_unfinished and operations_finished, because finished rows do not change. It reads all unfinished
	// rows.
	changedSQL = `
SELECT o.id::text, o.version FROM orchestrator.operations o WHERE o.state IN ('pending', 'in progress') AND ` + sinceSQL + `
UNION ALL
SELECT o.id::text, o.version FROM orchestrator.operations o
WHERE o.finished_at >= $4 AND o.state IN ('succeeded', 'failed', 'cancelled') AND ` + sinceSQL + `
LIMIT $5`
	// skew covers the clock difference between database and orchestrators, and the duration of a commit.
	skew = 2 * time.Minute
)

// Mark returns the current marker.
func (s *Store) Mark(ctx context.Context) (Marker, error) {
	m, _, err := s.mark(ctx, s.read)
	return m, err
}

func (s *Store) mark(ctx context.Context, q sqlx.QueryerContext) (m Marker, xmax int64, err error) {
	var at time.Time
	var snapshot string
	if err := q.QueryRowxContext(ctx, markSQL).Scan(&at, &snapshot, &xmax); err != nil {
		return m, 0, fmt.Errorf("mark: %w", err)
	}
	if m, err = newMarker(at.UTC(), snapshot); err != nil {
		return m, 0, fmt.Errorf("mark: snapshot %.50q: %w", snapshot, err)
	}
	return m, xmax, nil
}

// Changed returns up to limit operations that were added or changed since a marker, and the marker for the next call. The error wraps
// ErrMarker if the marker lies in the future.
func (s *Store) Changed(ctx context.Context, since Marker, limit int) (changed []Version, next Marker, err error) {
	// These are two statements: a commit between them is found by this call and by the next one.
	next, xmax, err := s.mark(ctx, s.read)
	if err != nil {
		return nil, next, err
	}
	if since.xmin > xmax {
		return nil, next, fmt.Errorf("find changed operations: %w", ErrMarker)
	}
	changed, err = collect(ctx, s.read, "find changed operations", changedSQL, changedArgs(since, xmax, limit), func(rows *sql.Rows, v *Version) error {
		return rows.Scan(&v.ID, &v.Version)
	})
	return changed, next, err
}

func changedArgs(since Marker, xmax int64, limit int) []any {
	return []any{strconv.FormatInt(since.xmin&0xffffffff, 10), xmax, since.snapshot, since.at.Add(-skew), limit}
}
