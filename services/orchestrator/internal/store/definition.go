package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/process"
)

// SaveDefinition stores a process definition under its hash.
func (s *Store) SaveDefinition(ctx context.Context, p *process.Process, now time.Time) error {
	_, err := s.commit.ExecContext(ctx, `
INSERT INTO orchestrator.definitions (hash, operation_type, body, created_at) VALUES ($1, $2, $3, $4) ON CONFLICT (hash) DO NOTHING`,
		p.Hash(), string(p.Operation), string(p.Canonical()), now)
	if err != nil {
		return fmt.Errorf("save the definition of %s: %w", p.Operation, err)
	}
	return nil
}

// Definition returns the process definition with a hash, or ErrNotFound.
func (s *Store) Definition(ctx context.Context, hash string) (*process.Process, error) {
	var body string
	err := s.read.GetContext(ctx, &body, `SELECT body FROM orchestrator.definitions WHERE hash = $1`, hash)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("load definition %s: %w", hash, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("load definition %s: %w", hash, err)
	}
	p, err := process.Parse([]byte(body))
	if err != nil {
		return nil, fmt.Errorf("load definition %s: %w", hash, err)
	}
	return p, nil
}

// DefinitionHashes returns the hashes of all definitions. There are few.
func (s *Store) DefinitionHashes(ctx context.Context) ([]string, error) {
	var found []string
	if err := s.read.SelectContext(ctx, &found, `SELECT hash FROM orchestrator.definitions ORDER BY hash`); err != nil {
		return nil, fmt.Errorf("list definitions: %w", err)
	}
	return found, nil
}
