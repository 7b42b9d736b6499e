package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"github.com/kyma-project/keb/libs/osb/osbclient"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/tlsfiles"
	"github.com/kyma-project/keb/services/broker"
)

// migrate updates the schema.
func migrate(ctx context.Context, log *slog.Logger) error {
	var database postgres.Address
	if err := service.LoadEnv(&database); err != nil {
		return err
	}
	if err := postgres.Upgrade(ctx, database.Pool("keb-broker-migrate"), broker.Migrate); err != nil {
		return err
	}
	log.Info("the schema is up to date", "schema", "broker")
	return nil
}

type catalogConfig struct {
	URL      string `env:"KEB_BROKER_URL" envDefault:"http://127.0.0.1:8080"`
	User     string `env:"KEB_OSB_USER"`
	Password string `env:"KEB_OSB_PASSWORD"`
	// TLS holds the files for an https URL.
	TLS tlsfiles.Client `envPrefix:"KEB_BROKER_"`
}

// catalog reads the catalog of a broker and prints its plans.
func catalog(ctx context.Context, out io.Writer) error {
	var cfg catalogConfig
	if err := service.LoadEnv(&cfg); err != nil {
		return err
	}
	transport, err := cfg.TLS.Transport("KEB_BROKER_")
	if err != nil {
		return err
	}
	defer transport.CloseIdleConnections()
	client, err := osbclient.New(osbclient.Config{BaseURL: cfg.URL, User: cfg.User, Password: cfg.Password}, &http.Client{Transport: transport})
	if err != nil {
		return fmt.Errorf("KEB_BROKER_URL: %w", err)
	}
	read, err := client.Catalog(ctx)
	if err != nil {
		return err
	}
	var plans []string
	for _, s := range read.Services {
		for _, p := range s.Plans {
			plans = append(plans, p.Name)
		}
	}
	if len(plans) == 0 {
		return errors.New("the catalog has no plans")
	}
	_, err = fmt.Fprintln(out, "plans:", strings.Join(plans, ", "))
	return err
}
