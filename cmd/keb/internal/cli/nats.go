package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kyma-project/keb/cmd/keb/internal/installation"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/worker"
	stepworkers "github.com/kyma-project/keb/services/step-workers"
)

func newNATS(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "nats", Short: "Configure a NATS server for KEB"}
	var more []string
	var usersOnly bool
	var encryption installation.NATSTLS
	config := &cobra.Command{
		Use:   "config",
		Short: "Print the server configuration with its users and their permissions",
		Long: `Print the server configuration with its users and their permissions.

The password of a user comes from the environment of the server: that of worker-avs from KEB_NATS_PASSWORD_WORKER_AVS. It
must begin with a letter.`,
		Args: exactly(),
		RunE: func(*cobra.Command, []string) error {
			workers, err := allWorkers(more)
			if err != nil {
				return err
			}
			conf, err := installation.RenderNATS(installation.NATSConfig{Workers: workers, Password: installation.PasswordFromEnvironment, UsersOnly: usersOnly, TLS: encryption})
			if err != nil {
				return err
			}
			_, err = o.Out.Write(conf)
			return err
		},
	}
	workerFlag(config, &more)
	config.Flags().BoolVar(&usersOnly, "users-only", false, "print only the block accounts, for a server that is configured elsewhere")
	config.Flags().StringVar(&encryption.CertFile, "tls-cert", "", "certificate file on the server's machine")
	config.Flags().StringVar(&encryption.KeyFile, "tls-key", "", "its key")
	config.Flags().StringVar(&encryption.ClientCAFile, "tls-client-ca", "", "certificate authority of the clients, which must then present a certificate")
	config.Flags().BoolVar(&encryption.First, "tls-first", false, "start connections with TLS; clients need KEB_NATS_TLS_FIRST=true")
	cmd.AddCommand(config)
	return cmd
}

func workerFlag(cmd *cobra.Command, into *[]string) {
	cmd.Flags().StringSliceVar(into, "worker", listOf(os.Getenv("KEB_WORKERS")), "names of additional workers (KEB_WORKERS)")
}

func listOf(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

// allWorkers returns the workers that come with KEB and the additional ones.
func allWorkers(more []string) ([]string, error) {
	var names []string
	for _, p := range stepworkers.Programs() {
		names = append(names, p.Name)
	}
	for _, name := range more {
		if err := worker.CheckName(name); err != nil {
			return nil, usageError("--worker: %s", err)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func newSecrets(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "secrets", Short: "Manage passwords and keys of an installation with Docker Compose"}
	var cfg installation.Config
	var more []string
	create := &cobra.Command{
		Use:   "init",
		Short: "Create missing passwords and keys, in one folder per service",
		Args:  exactly(),
		RunE: func(*cobra.Command, []string) error {
			var err error
			if cfg.Workers, err = allWorkers(more); err != nil {
				return err
			}
			if err := installation.Init(cfg); err != nil {
				return err
			}
			_, err = fmt.Fprintf(o.Out, "passwords and keys are in %s, for %s\n", cfg.Dir, strings.Join(installation.Folders(cfg), ", "))
			return err
		},
	}
	workerFlag(create, &more)
	create.Flags().StringVar(&cfg.Dir, "dir", "/secrets", "target folder")
	create.Flags().StringVar(&cfg.DatabaseHost, "database-host", "postgres:5432", "host and port of Postgres")
	create.Flags().StringVar(&cfg.Database, "database", "keb", "name of the database")
	create.Flags().BoolVar(&cfg.TLS, "tls", false, "also create certificates with a private authority, valid for a year and renewed when a third of it is left")
	create.Flags().StringSliceVar(&cfg.Writable, "writable", nil, "new volumes that other users write to")

	var dir string
	show := &cobra.Command{
		Use:   "show",
		Short: "Print the passwords and tokens for users in clear text",
		Args:  exactly(),
		RunE:  func(*cobra.Command, []string) error { return showSecrets(o, dir) },
	}
	show.Flags().StringVar(&dir, "dir", "/run/keb", "folder of the service cli")
	cmd.AddCommand(create, show)
	return cmd
}

func showSecrets(o *options, dir string) error {
	for _, shown := range []struct{ what, file string }{
		{"OSB API, user keb", installation.OSBPassword},
		{"operator API and console, token of an operator", installation.OperatorToken},
		{"operator API and console, token of a viewer", installation.ViewerToken},
		{"Grafana, user admin", installation.GrafanaPassword},
	} {
		value, err := os.ReadFile(filepath.Join(dir, shown.file))
		if err != nil {
			return fmt.Errorf("show secrets: %w", err)
		}
		if _, err := fmt.Fprintf(o.Out, "%-48s %s\n", shown.what, value); err != nil {
			return err
		}
	}
	return nil
}

func newForward(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "forward PORT=HOST:PORT...",
		Short: "Forward TCP connections to any available replica of a service",
		Args:  atLeastOne("PORT=HOST:PORT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var rules []installation.ForwardRule
			for _, arg := range args {
				rule, err := installation.ParseForwardRule(arg)
				if err != nil {
					return usageError("%s", err)
				}
				rules = append(rules, rule)
			}
			log, err := service.Logger(o.Err, "json", "info")
			if err != nil {
				return err
			}
			return installation.Forward(cmd.Context(), log, rules)
		},
	}
}

// newHealthcheck returns the health check of containers without a shell or an HTTP client.
func newHealthcheck(o *options) *cobra.Command {
	return &cobra.Command{
		Use:    "healthcheck URL...",
		Short:  "Check that all addresses answer with 200",
		Args:   atLeastOne("a URL"),
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			transport, err := o.transport()
			if err != nil {
				return err
			}
			for _, url := range args {
				if err := service.Healthcheck(cmd.Context(), url, transport); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
