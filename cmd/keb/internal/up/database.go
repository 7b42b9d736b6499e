package up

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/postgres/pglocal"
)

const (
	database       = "keb"
	connectTimeout = 15 * time.Second
	fetchTimeout   = 5 * time.Minute
	stopTimeout    = 30 * time.Second
)

// startDatabase returns the address of the database, and the server if keb up started it.
func (s *system) startDatabase(ctx context.Context) (string, *pglocal.Server, error) {
	if !s.ownsDatabase() {
		return s.Orchestrator.Database.URL, nil, reach(ctx, s.Orchestrator.Database)
	}
	// Durable, because the database is the only copy of the state and must survive a power failure.
	local := pglocal.Config{DataDir: filepath.Join(s.cfg.DataDir, "postgres"), Durable: true, Log: s.Log.With("component", "postgres")}
	srv, err := pglocal.Start(ctx, local)
	// A KEB_POSTGRES_BIN without a server is an error of the user, not a reason to download one.
	if errors.Is(err, pglocal.ErrNoBinaries) {
		s.tell("No Postgres found on this machine: downloading it once.")
		if local.BinDir, err = fetch(ctx, s.cfg.DataDir); err == nil {
			srv, err = pglocal.Start(ctx, local)
		}
	}
	if err != nil {
		return "", nil, fmt.Errorf("%w (see %s; or give the address of a Postgres in KEB_DATABASE_URL)", err, filepath.Join(s.cfg.DataDir, "keb.log"))
	}
	if err := srv.EnsureDatabase(ctx, database); err != nil {
		return "", nil, errors.Join(fmt.Errorf("create the database: %w", err), stopDatabase(srv))
	}
	return srv.URL(database), srv, nil
}

// fetch downloads the server binaries. Its error lists the alternatives.
func fetch(ctx context.Context, dataDir string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	bin, err := pglocal.FetchBinaries(ctx, pglocal.FetchConfig{Dir: filepath.Join(dataDir, "postgres-server")})
	if err != nil {
		return "", fmt.Errorf("no Postgres: install it (Debian and Ubuntu: apt-get install postgresql), or set KEB_POSTGRES_BIN, or allow the download: %w", err)
	}
	return bin, nil
}

// reach waits a few seconds until an external database is available.
func reach(ctx context.Context, at postgres.Address) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	db, err := postgres.Open(ctx, at.Pool("keb-up"))
	if err != nil {
		return fmt.Errorf("the Postgres of KEB_DATABASE_URL cannot be used: %w", err)
	}
	return postgres.Close(db)
}

func stopDatabase(srv *pglocal.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return srv.Stop(ctx)
}
