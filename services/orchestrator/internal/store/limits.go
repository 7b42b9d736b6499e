package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/kyma-project/keb/services/orchestrator/internal/limit"
)

const (
	limitsSQL      = `SELECT version, document, applied_by, applied_at FROM orchestrator.limits`
	applyLimitsSQL = `
INSERT INTO orchestrator.limits (version, document, applied_by, applied_at) VALUES (1, $1, $2, $3)
ON CONFLICT (id) DO UPDATE SET version = limits.version + 1, document = excluded.document, applied_by = excluded.applied_by, applied_at = excluded.applied_at
RETURNING version`
)

// Limits returns the document with the limits; the zero value if none was applied yet. It uses the pool for transitions, because queries must
// not delay it.
func (s *Store) Limits(ctx context.Context) (d limit.Document, err error) {
	err = s.commit.QueryRowContext(ctx, limitsSQL).Scan(&d.Version, &d.Text, &d.AppliedBy, &d.AppliedAt)
	if errors.Is(err, sql.ErrNoRows) {
		return limit.Document{}, nil
	}
	d.AppliedAt = d.AppliedAt.UTC()
	return d, err
}

// ApplyLimits replaces the document with the limits, which must be valid, and returns its version.
func (s *Store) ApplyLimits(ctx context.Context, document, by string, at time.Time) (version int64, err error) {
	if err := s.commit.QueryRowContext(ctx, applyLimitsSQL, document, by, at).Scan(&version); err != nil {
		return 0, fmt.Errorf("write limits: %w", err)
	}
	return version, nil
}
