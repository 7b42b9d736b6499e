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
	// While another process migrates, check again every second, for at most five minutes.
	lockPeriodSeconds = 1
	lockTries         = 300
)

var schemaName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,40}$`)

// Migrate updates a schema. It creates the schema, and applies the numbered goose files at the root of migrations
// ("00001_name.sql") that its version table "<schema>.schema_version" does not contain. It only migrates forward, and does not change a
// database with a newer version, so that the previous release can use it. Concurrent migrations of the same schema wait for each
// other. Statements in the files must contain the schema, because the search path is not set.
func Migrate(ctx context.Context, db *sqlx.DB, schema string, migrations fs.FS) error {
	if !schemaName.MatchString(schema) {
		return fmt.Errorf("migrate: schema name %q: want lower-case letters, digits and _", schema)
	}
	id := lockID(schema)
	err := InTx(ctx, db, func(tx *sqlx.Tx) error {
		// Two concurrent "create schema if not exists" can fail on the catalog's unique index.
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

// lockID returns the advisory lock of a schema's migrations.
func lockID(schema string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte("keb/migrate/" + schema))
	return int64(h.Sum64() >> 1) // positive, and fits into a bigint
}

// reachTimeout limits the time for which Upgrade waits for an unreachable server.
const reachTimeout = 5 * time.Minute

// Upgrade opens a database, runs migrate, and closes it. It is for commands that only migrate. It waits up to five minutes for the server,
// and does not limit migrate.
func Upgrade(ctx context.Context, cfg Config, migrate func(context.Context, *sqlx.DB) error) (err error) {
	reach, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	db, err := Open(reach, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, Close(db)) }()
	return migrate(ctx, db)
}
