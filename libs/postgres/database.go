package postgres

import (
	"context"
	"fmt"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
)

// CreateDatabase creates a database on the server of db, as a copy of template unless template is empty.
func CreateDatabase(ctx context.Context, db *sqlx.DB, name, template string) error {
	statement := `CREATE DATABASE ` + pq.QuoteIdentifier(name)
	if template != "" {
		statement += ` TEMPLATE ` + pq.QuoteIdentifier(template)
	}
	if _, err := db.ExecContext(ctx, statement); err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	return nil
}

// DropDatabase removes a database, if it exists, and closes the connections to it.
func DropDatabase(ctx context.Context, db *sqlx.DB, name string) error {
	if _, err := db.ExecContext(ctx, `DROP DATABASE IF EXISTS `+pq.QuoteIdentifier(name)+` WITH (FORCE)`); err != nil {
		return fmt.Errorf("drop database %s: %w", name, err)
	}
	return nil
}
