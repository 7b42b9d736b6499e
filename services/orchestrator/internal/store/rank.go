package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// rankLocks is the first key of the advisory locks on ranks; the second is the rank.
	rankLocks = 0x6b656272
	// releaseTimeout bounds the release of a rank. The lock ends with its connection at the latest.
	releaseTimeout = time.Second
)

var errNoRank = errors.New("all ranks are taken")

// Rank acquires the lowest free rank from 1 to ranks. The rank is held until release is called, this process ends, or its connection is
// lost. The loss of the connection is not detected, so another orchestrator may then get the same rank. Rank keeps one connection open. After
// an error the rank is 0; release is never nil.
func (s *Store) Rank(ctx context.Context, ranks int) (rank int, release func(), err error) {
	conn, err := s.read.Connx(ctx)
	if err != nil {
		return 0, func() {}, fmt.Errorf("take a rank: %w", err)
	}
	var free []int
	if err := conn.SelectContext(ctx, &free, `SELECT r FROM generate_series(1, $2) AS r WHERE pg_try_advisory_lock($1, r) LIMIT 1`, rankLocks, ranks); err != nil {
		return 0, func() {}, errors.Join(fmt.Errorf("take a rank: %w", err), conn.Close())
	}
	if len(free) == 0 {
		return 0, func() {}, errors.Join(errNoRank, conn.Close())
	}
	return free[0], func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		_, _ = conn.ExecContext(ctx, `SELECT pg_advisory_unlock($1, $2)`, rankLocks, free[0]) // best effort
		_ = conn.Close()
	}, nil
}
