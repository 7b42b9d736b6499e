package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/overlay"
)

// maxOverlayVersions is the number of versions of the overlays that are kept.
const maxOverlayVersions = 500

const (
	overlaysSQL = `
SELECT version, action, name, restored, changed_by, changed_at, overlays FROM orchestrator.overlay_versions`
	// listOverlaysSQL leaves out the contents: a version has up to 50 overlays of 64 KiB.
	listOverlaysSQL = `
SELECT version, action, name, restored, changed_by, changed_at,
    COALESCE((SELECT jsonb_agg(o - 'content' ORDER BY n) FROM jsonb_array_elements(overlays) WITH ORDINALITY AS e(o, n)), '[]')
FROM orchestrator.overlay_versions ORDER BY version DESC LIMIT $1 OFFSET $2`
	addOverlaysSQL = `
WITH forgotten AS (DELETE FROM orchestrator.overlay_versions WHERE version <= $1::bigint - $8::bigint)
INSERT INTO orchestrator.overlay_versions (version, action, name, restored, changed_by, changed_at, overlays)
VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (version) DO NOTHING`
	// The table has one row for each type of operation.
	currentDefinitionsSQL = `
SELECT d.body FROM orchestrator.current_definitions c JOIN orchestrator.definitions d ON d.hash = c.hash`
	saveCurrentDefinitionsSQL = `
INSERT INTO orchestrator.current_definitions (operation_type, hash, since)
SELECT v.operation_type, v.hash, $3 FROM unnest($1::text[], $2::text[]) AS v(operation_type, hash)
ON CONFLICT (operation_type) DO UPDATE SET hash = excluded.hash, since = excluded.since WHERE current_definitions.hash <> excluded.hash`
)

// Overlays returns the newest version of the applied overlays; the zero value if none was applied yet.
func (s *Store) Overlays(ctx context.Context) (overlay.Version, error) {
	v, err := scanOverlays(s.commit.QueryRowContext(ctx, overlaysSQL+` ORDER BY version DESC LIMIT 1`))
	if errors.Is(err, sql.ErrNoRows) {
		return overlay.Version{}, nil
	}
	return v, err
}

// OverlaysAt returns a version of the applied overlays; the zero value for version 0. The error is overlay.ErrNotFound if there is no such version.
func (s *Store) OverlaysAt(ctx context.Context, version int64) (overlay.Version, error) {
	if version == 0 {
		return overlay.Version{}, nil
	}
	v, err := scanOverlays(s.read.QueryRowContext(ctx, overlaysSQL+` WHERE version = $1`, version))
	if errors.Is(err, sql.ErrNoRows) {
		return overlay.Version{}, fmt.Errorf("version %d of the overlays: %w", version, overlay.ErrNotFound)
	}
	return v, err
}

// OverlayVersions returns versions of the applied overlays, newest first and without the contents, and their total number.
func (s *Store) OverlayVersions(ctx context.Context, limit, offset int) (found []overlay.Version, total int, err error) {
	if err := s.read.GetContext(ctx, &total, `SELECT count(*) FROM orchestrator.overlay_versions`); err != nil {
		return nil, 0, fmt.Errorf("count versions of overlays: %w", err)
	}
	rows, err := s.read.QueryContext(ctx, listOverlaysSQL, limit, offset)
	if err != nil {
		return nil, 0, fmt.Errorf("list versions of overlays: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		v, err := scanOverlays(rows)
		if err != nil {
			return nil, 0, err
		}
		found = append(found, v)
	}
	if err := rows.Err(); err != nil {
		return nil, 0, fmt.Errorf("list versions of overlays: %w", err)
	}
	return found, total, nil
}

func scanOverlays(row interface{ Scan(into ...any) error }) (v overlay.Version, err error) {
	var overlays []byte
	err = row.Scan(&v.Number, &v.Action, &v.Name, &v.Restored, &v.By, &v.At, &overlays)
	if err == nil {
		err = json.Unmarshal(overlays, &v.Overlays)
	}
	if err != nil {
		return overlay.Version{}, fmt.Errorf("read overlays: %w", err)
	}
	v.At = v.At.UTC()
	return v, nil
}

// AddOverlays adds a version of the applied overlays, and deletes the oldest ones if there are too many. The error is overlay.ErrConflict if the
// version already exists.
func (s *Store) AddOverlays(ctx context.Context, v *overlay.Version) error {
	overlays := v.Overlays
	if overlays == nil {
		overlays = []overlay.Overlay{}
	}
	text, err := json.Marshal(overlays)
	if err != nil {
		return fmt.Errorf("write overlays: %w", err)
	}
	result, err := s.commit.ExecContext(ctx, addOverlaysSQL, v.Number, string(v.Action), v.Name, v.Restored, clean(v.By), v.At, string(text), maxOverlayVersions)
	if err != nil {
		return fmt.Errorf("write overlays: %w", err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return fmt.Errorf("write overlays: %w", err)
	}
	if n == 0 {
		return overlay.ErrConflict
	}
	return nil
}

// CurrentDefinitions returns the definitions that an orchestrator used last for new operations; none before the first one has started.
func (s *Store) CurrentDefinitions(ctx context.Context) (process.Set, error) {
	var bodies []string
	if err := s.read.SelectContext(ctx, &bodies, currentDefinitionsSQL); err != nil {
		return nil, fmt.Errorf("read the current definitions: %w", err)
	}
	set := process.Set{}
	for _, body := range bodies {
		p, err := process.Parse([]byte(body))
		if err != nil {
			return nil, fmt.Errorf("read the current definitions: %w", err)
		}
		set[p.Operation] = p
	}
	return set, nil
}

// SaveCurrentDefinitions records which definitions new operations use.
func (s *Store) SaveCurrentDefinitions(ctx context.Context, current process.Set, now time.Time) error {
	var types, hashes array
	for _, t := range event.OperationTypes() {
		if p := current[t]; p != nil {
			types.text(string(t))
			hashes.text(p.Hash())
		}
	}
	if _, err := s.commit.ExecContext(ctx, saveCurrentDefinitionsSQL, &types, &hashes, now); err != nil {
		return fmt.Errorf("save the current definitions: %w", err)
	}
	return nil
}
