package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/kyma-project/keb/services/orchestrator/internal/limit"
)

const (
	limitsSQL      = `SELECT version, document, applied_by, applied_at FROM orchestrator.limits`
	applyLimitsSQL = `
INSERT INTO orchestrator.limits (version, document, applied_by, applied_at, operation_scopes) VALUES (1, $1, $2, $3, $4)
ON CONFLICT (id) DO UPDATE SET version = limits.version + 1, document = excluded.document, applied_by = excluded.applied_by,
    applied_at = excluded.applied_at, operation_scopes = excluded.operation_scopes
RETURNING version`
	// boundedSQL selects the operations o in the scope of a limit on operations in progress.
	boundedSQL = `EXISTS (SELECT FROM orchestrator.limits l, jsonb_array_elements(l.operation_scopes) AS s
WHERE l.id AND COALESCE(s -> 'type' ? o.type, true) AND COALESCE(s -> 'plan' ? o.plan, true) AND COALESCE(s -> 'region' ? o.region, true)
    AND COALESCE(s -> 'globalAccount' ? o.global_account, true))`
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
	set, err := limit.Parse([]byte(document))
	if err != nil {
		return 0, fmt.Errorf("write limits: %w", err)
	}
	scopes := []limit.Scope{}
	for i := range set.Limits {
		if l := &set.Limits[i]; l.Operations > 0 {
			scopes = append(scopes, l.Scope)
		}
	}
	text, err := json.Marshal(scopes)
	if err == nil {
		err = s.commit.QueryRowContext(ctx, applyLimitsSQL, document, by, at, string(text)).Scan(&version)
	}
	if err != nil {
		return 0, fmt.Errorf("write limits: %w", err)
	}
	return version, nil
}
