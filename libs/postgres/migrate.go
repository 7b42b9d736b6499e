package postgres

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"log/slog"
	"regexp"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

const (
	versionTable = "schema_version"
	// Another process may be migrating for a while; look again every second, for five minutes at most.
	lockPeriodSeconds = 1
	lockTries         = 300
)

var schemaName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,40}$`)

// Migrate brings a schema up to date: it creates the schema, and applies those of the numbered goose files at the root of
// migrations ("00001_name.sql") that its version table "<schema>.schema_version" does not list yet. It only goes forward, and a
// database that is ahead of the files is left as it is, so that the previous release runs on it. Processes that migrate
// the same schema at once wait for each other. Statements in the files must name the schema, the search path is not set.
func Migrate(ctx context.Context, db *sqlx.DB, schema string, migrations fs.FS) error {
	if !schemaName.MatchString(schema) {
		return fmt.Errorf("migrate: schema name %q: want lower-case letters, digits and _", schema)
	}
	id := lockID(schema)
	err := InTx(ctx, db, func(tx *sqlx.Tx) error {
		// Two "create schema if not exists" at once can fail on the catalog's unique index.
		if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock($1)`, id); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `CREATE SCHEMA IF NOT EXISTS `+schema)
		return err
	})
	if err != nil {
		return fmt.Errorf("migrate %s: create schema: %w", schema, err)
	}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockID(id), lock.WithLockTimeout(lockPeriodSeconds, lockTries))
	if err != nil {
		return fmt.Errorf("migrate %s: %w", schema, err)
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db.DB, migrations,
		goose.WithTableName(schema+"."+versionTable),
		goose.WithSessionLocker(locker),
		goose.WithDisableGlobalRegistry(true),
		goose.WithSlog(slog.New(slog.DiscardHandler)),
	)
	if err != nil {
		return fmt.Errorf("migrate %s: read migrations: %w", schema, err)
	}
	if _, err := provider.Up(ctx); err != nil {
		if partial, ok := errors.AsType[*goose.PartialError](err); ok && partial.Failed != nil {
			return fmt.Errorf("migrate %s: %s: %w", schema, partial.Failed.Source.Path, partial.Err)
		}
		return fmt.Errorf("migrate %s: %w", schema, err)
	}
	return nil
}

// lockID is the advisory lock of one schema's migrations.
func lockID(schema string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte("keb/migrate/" + schema))
	return int64(h.Sum64() >> 1) // positive, fits bigint
}

// patience is how long Upgrade waits for a server that does not answer yet.
const patience = 5 * time.Minute

// Upgrade opens a database, runs migrate, and closes it. It is for commands that do only this, and waits up to five minutes for the server.
func Upgrade(ctx context.Context, cfg Config, migrate func(context.Context, *sqlx.DB) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	db, err := Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, Close(db)) }()
	return migrate(ctx, db)
}
