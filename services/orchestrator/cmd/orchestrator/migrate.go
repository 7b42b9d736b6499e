package main

import (
	"context"
	"log/slog"

	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/services/orchestrator"
)

// migrate migrates the schema.
func migrate(ctx context.Context, log *slog.Logger) error {
	var database postgres.Address
	if err := service.LoadEnv(&database); err != nil {
		return err
	}
	if err := postgres.Upgrade(ctx, database.Pool("keb-orchestrator-migrate"), orchestrator.Migrate); err != nil {
		return err
	}
	log.Info("the schema is up to date", "schema", "orchestrator")
	return nil
}
