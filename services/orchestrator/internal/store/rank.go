package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
)

const (
	// rankLocks is the first key of the advisory locks on ranks; the second is the rank.
	rankLocks = 1801806450
	// releaseTimeout bounds the release of a rank. The lock ends with its connection at the latest.
	releaseTimeout = time.Second
)

var errNoRank = errors.New("all ranks are taken")

// ranksSQL returns the ranks that are held, separated by commas.
const ranksSQL = `SELECT COALESCE(string_agg(objid::text, ','), '') FROM pg_locks WHERE locktype = 'advisory' AND classid = 1801806450
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

// ranksEvery is the shortest time between two reads of the ranks: a sweep is more frequent under load, and the view of all locks is expensive.
const ranksEvery = 900 * time.Millisecond

// Lease is a rank of this process. It ends with its connection to Postgres, which it keeps open. Its methods must not be called concurrently.
type Lease struct {
	store *Store
	rank  int
	conn  *sqlx.Conn // nil without a rank or a connection
}

// Rank acquires the lowest free rank from 1 to ranks. After an error the lease has the rank 0; it is never nil.
func (s *Store) Rank(ctx context.Context, ranks int) (*Lease, error) {
	s.ranksDue.CompareAndSwap(0, 1)
	l := &Lease{store: s}
	conn, err := s.read.Connx(ctx)
	if err != nil {
		return l, fmt.Errorf("take a rank: %w", err)
	}
	var free []int
	if err := conn.SelectContext(ctx, &free, `SELECT r FROM generate_series(1, $2) AS r WHERE pg_try_advisory_lock($1, r) LIMIT 1`, rankLocks, ranks); err != nil {
		return l, errors.Join(fmt.Errorf("take a rank: %w", err), conn.Close())
	}
	if len(free) == 0 {
		return l, errors.Join(errNoRank, conn.Close())
	}
	l.rank, l.conn = free[0], conn
	return l, nil
}

// Rank returns the rank; 0 means none. Another process may have the same rank if the connection was lost and Renew has not been called since.
func (l *Lease) Rank() int { return l.rank }

// Renew acquires the rank again after the loss of its connection. It fails if another process has it.
func (l *Lease) Renew(ctx context.Context) error {
	if l.conn != nil {
		_ = l.conn.Raw(func(any) error { return driver.ErrBadConn }) // the pool must not use it again
		_ = l.conn.Close()
		l.conn = nil
	}
	conn, err := l.store.read.Connx(ctx)
	if err != nil {
		return fmt.Errorf("renew rank %d: %w", l.rank, err)
	}
	var taken bool
	err = conn.GetContext(ctx, &taken, `SELECT pg_try_advisory_lock($1, $2)`, rankLocks, l.rank)
	if err == nil && !taken {
		err = errNoRank
	}
	if err != nil {
		return errors.Join(fmt.Errorf("renew rank %d: %w", l.rank, err), conn.Close())
	}
	l.conn = conn
	return nil
}

// parseRanks parses the result of ranksSQL.
func parseRanks(list string) ([]int, error) {
	ranks := []int{}
	for text := range strings.FieldsFuncSeq(list, func(r rune) bool { return r == ',' }) {
		rank, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("read the ranks of orchestrators: %w", err)
		}
		ranks = append(ranks, rank)
	}
	slices.Sort(ranks)
	return ranks, nil
}

// Release releases the rank and its connection.
func (l *Lease) Release(ctx context.Context) {
	if l.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	_, _ = l.conn.ExecContext(ctx, `SELECT pg_advisory_unlock($1, $2)`, rankLocks, l.rank) // best effort
	_ = l.conn.Close()
	l.conn = nil
}
