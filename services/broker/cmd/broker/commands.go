package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/osb/osbclient"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/services/broker"
)

// patience is how long a command waits for a server that does not answer yet.
const patience = 5 * time.Minute

// command runs one of the commands beside the broker itself, each with a part of its environment:
//
//	migrate  brings the schema up to date (KEB_DATABASE_URL) and ends
//	catalog  reads the catalog of a broker (KEB_BROKER_URL, KEB_OSB_USER, KEB_OSB_PASSWORD) and prints its plans
func command(ctx context.Context, name string, log *slog.Logger, out io.Writer) error {
	switch name {
	case "migrate":
		return migrate(ctx, log)
	case "catalog":
		return catalog(ctx, out)
	}
	return fmt.Errorf("unknown command %q: there are migrate and catalog; without one the broker runs", name)
}

func migrate(ctx context.Context, log *slog.Logger) (err error) {
	var cfg struct {
		DatabaseURL string `env:"KEB_DATABASE_URL,required,notEmpty"`
	}
	if err := service.LoadEnv(&cfg); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	db, err := postgres.Open(ctx, postgres.Config{URL: cfg.DatabaseURL, ApplicationName: "keb-broker-migrate"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, postgres.Close(db)) }()
	if err := broker.Migrate(ctx, db); err != nil {
		return err
	}
	log.Info("the schema is up to date", "schema", "broker")
	return nil
}

func catalog(ctx context.Context, out io.Writer) error {
	var cfg struct {
		URL      string `env:"KEB_BROKER_URL" envDefault:"http://127.0.0.1:8080"`
		User     string `env:"KEB_OSB_USER"`
		Password string `env:"KEB_OSB_PASSWORD"`
	}
	if err := service.LoadEnv(&cfg); err != nil {
		return err
	}
	client, err := osbclient.New(osbclient.Config{BaseURL: cfg.URL, User: cfg.User, Password: cfg.Password}, nil)
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
