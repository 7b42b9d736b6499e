package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/tlsfiles"
	"github.com/kyma-project/keb/services/orchestrator"
)

// migrateConfig is what migrate reads.
type migrateConfig struct {
	DatabaseURL string          `env:"KEB_DATABASE_URL,required,notEmpty"`
	TLS         tlsfiles.Client `envPrefix:"KEB_DATABASE_"`
}

// command runs one of the commands beside the orchestrator itself: "migrate" brings the schema up to date (KEB_DATABASE_URL) and ends.
func command(ctx context.Context, name string, log *slog.Logger) error {
	if name != "migrate" {
		return fmt.Errorf("unknown command %q: there is migrate; without one the orchestrator runs", name)
	}
	var cfg migrateConfig
	if err := service.LoadEnv(&cfg); err != nil {
		return err
	}
	if err := postgres.Upgrade(ctx, postgres.Config{URL: cfg.DatabaseURL, TLS: cfg.TLS, ApplicationName: "keb-orchestrator-migrate"}, orchestrator.Migrate); err != nil {
		return err
	}
	log.Info("the schema is up to date", "schema", "orchestrator")
	return nil
}
