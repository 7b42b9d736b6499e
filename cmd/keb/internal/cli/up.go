package cli

import (
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kyma-project/keb/cmd/keb/internal/up"
)

func newUp(o *options) *cobra.Command {
	cfg := up.Config{Jobs: up.DefaultJobTimes()}
	times := jobTimes(&cfg.Jobs)
	noDemo := false
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run the whole system in this process: NATS, Postgres, landscape, broker, orchestrator and workers",
		Long: `Run the whole system in this process: NATS, Postgres, the simulated landscape, broker, orchestrator and all step workers.
It listens on loopback addresses only, keeps everything in the data folder, provisions a sample runtime, and stays up until
it is stopped. Killed and started again, it goes on where it was.

The parts read the variables of their own processes (docs/configuration.md); a flag overrides its variable.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			demo, err := demoFromEnv()
			if err != nil {
				return err
			}
			if err := times.fromEnv(cmd); err != nil {
				return err
			}
			if o.tls.Enabled() {
				transport, err := o.transport()
				if err != nil {
					return err
				}
				cfg.Transport = transport
			}
			cfg.Environment = upEnvironment(cmd)
			cfg.DataDir, cfg.Token = o.dataDir, o.token
			cfg.Demo, cfg.Program = demo && !noDemo, program()
			return up.Run(cmd.Context(), cfg, o.Out, o.Err)
		},
	}
	flags := cmd.Flags()
	// The default is not read from the variable, because --help would print a password in the address.
	flags.String("database-url", "", "address of an existing Postgres database (KEB_DATABASE_URL)")
	flags.String("nats-addr", "127.0.0.1:4222", "address of NATS, for workers in other processes; port 0 selects a free one (KEB_NATS_URL)")
	flags.BoolVar(&cfg.Fast, "fast", false, "shorten the waits that no variable sets: simulated clusters are ready immediately, steps poll every 100 ms")
	flags.BoolVar(&noDemo, "no-demo", false, "do not provision a sample runtime (DEMO=0)")
	flags.BoolVarP(&cfg.Verbose, "verbose", "v", false, "also print the log of <data folder>/keb.log")
	times.register(cmd)
	flags.StringSlice("overlays", overlayDirs(), "folders with process overlays, applied in order (KEB_OVERLAYS)")
	flags.String("maintenance-policy", env("KEB_MAINTENANCE_POLICY", ""), "file with the maintenance windows of runtimes (KEB_MAINTENANCE_POLICY)")
	flags.String("access-tokens-file", env("KEB_ACCESS_TOKENS_FILE", ""),
		"file with the access tokens of the operator API; without it access control is off (KEB_ACCESS_TOKENS_FILE)")
	return cmd
}

// upFlags maps flags of keb up to their variables.
var upFlags = map[string]string{
	"osb-addr": "KEB_OSB_ADDR", "operator-addr": "KEB_OPERATOR_ADDR", "landscape-addr": "KEB_LANDSCAPE_ADDR", "user": "KEB_OSB_USER",
	"nats-addr": "KEB_NATS_URL", "database-url": "KEB_DATABASE_URL", "overlays": "KEB_OVERLAYS",
	"maintenance-policy": "KEB_MAINTENANCE_POLICY", "access-tokens-file": "KEB_ACCESS_TOKENS_FILE",
}

// upEnvironment returns the environment of the process, in which the given flags of keb up replace their variables.
func upEnvironment(cmd *cobra.Command) map[string]string {
	environment := map[string]string{}
	for _, variable := range os.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		environment[name] = value
	}
	for flag, variable := range upFlags {
		f := cmd.Flags().Lookup(flag)
		if !f.Changed {
			continue
		}
		value := f.Value.String()
		switch flag {
		case "nats-addr":
			value = "nats://" + value
		case "overlays":
			folders, _ := cmd.Flags().GetStringSlice(flag) // the flag exists
			value = strings.Join(folders, ",")
		}
		environment[variable] = value
		delete(environment, variable+"_FILE")
	}
	return environment
}

// demoFromEnv reads DEMO; 0 and false disable the sample.
func demoFromEnv() (bool, error) {
	value := os.Getenv("DEMO")
	if value == "" {
		return true, nil
	}
	demo, err := strconv.ParseBool(value)
	if err != nil {
		return false, usageError("DEMO=%q is neither 0 nor 1", value)
	}
	return demo, nil
}

// program returns how to call this program, for hints. go run executes a temporary file, so its path is no hint.
func program() string {
	if strings.Contains(os.Args[0], "go-build") {
		return "go run ./cmd/keb"
	}
	return os.Args[0]
}
