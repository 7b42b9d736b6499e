package store

import (
	"context"
	"encoding/json"
)

// Rejections returns the last known rejections of orders. It returns ErrNotFound if nothing was saved.
func (s *Store) Rejections(ctx context.Context) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var raw []byte
	err := s.db.GetContext(ctx, &raw, `SELECT rejections FROM broker.rejections`)
	return raw, wrap(ctx, "read rejections of orders", err)
}

// SaveRejections replaces the last known rejections of orders.
func (s *Store) SaveRejections(ctx context.Context, rejections json.RawMessage) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	_, err := s.db.ExecContext(ctx, `INSERT INTO broker.rejections (rejections) VALUES ($1::jsonb)
		ON CONFLICT (singleton) DO UPDATE SET rejections = excluded.rejections WHERE rejections.rejections <> excluded.rejections`, string(rejections))
	return wrap(ctx, "save rejections of orders", err)
}
