package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/services/orchestrator"
)

// patience is how long a command waits for a database that does not answer yet.
const patience = 5 * time.Minute

// command runs one of the commands beside the orchestrator itself: "migrate" brings the schema up to date (KEB_DATABASE_URL) and ends.
func command(ctx context.Context, name string, log *slog.Logger) (err error) {
	if name != "migrate" {
		return fmt.Errorf("unknown command %q: there is migrate; without one the orchestrator runs", name)
	}
	var cfg struct {
		DatabaseURL string `env:"KEB_DATABASE_URL,required,notEmpty"`
	}
	if err := service.LoadEnv(&cfg); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	db, err := postgres.Open(ctx, postgres.Config{URL: cfg.DatabaseURL, ApplicationName: "keb-orchestrator-migrate"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, postgres.Close(db)) }()
	if err := orchestrator.Migrate(ctx, db); err != nil {
		return err
	}
	log.Info("the schema is up to date", "schema", "orchestrator")
	return nil
}
