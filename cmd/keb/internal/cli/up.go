package cli

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kyma-project/keb/cmd/keb/internal/up"
	"github.com/kyma-project/keb/libs/event"
)

func newUp(o *options) *cobra.Command {
	cfg := up.Config{Jobs: up.DefaultJobTimes()}
	times := jobTimes(&cfg.Jobs)
	noDemo := false
	var overlays []string
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run the whole system in this process: NATS, Postgres, landscape, broker, orchestrator and workers",
		Long: `Run the whole system in this process: NATS, Postgres, the simulated landscape, broker, orchestrator and all step workers.
It listens on loopback addresses only, keeps everything in the data folder, provisions a sample runtime, and stays up until
it is stopped. Killed and started again, it goes on where it was.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Checked here, so that a problem does not wait for Postgres to start.
			if _, err := loadProcesses(overlays); err != nil {
				return err
			}
			demo, err := demoFromEnv()
			if err != nil {
				return err
			}
			if err := times.fromEnv(cmd); err != nil {
				return err
			}
			if cfg.Admission, err = admissionFromEnv(); err != nil {
				return err
			}
			if cfg.Bindings, err = bindingsFromEnv(); err != nil {
				return err
			}
			cfg.OSBAddr, cfg.OperatorAddr, cfg.LandscapeAddr = o.osbAddr, o.operatorAddr, o.landscapeAddr
			cfg.DataDir, cfg.User, cfg.Password, cfg.Token = o.dataDir, o.user, o.password, o.token
			cfg.Overlays = overlays
			cfg.Demo, cfg.Program = demo && !noDemo, program()
			return up.Run(cmd.Context(), cfg, o.Out, o.Err)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&cfg.DatabaseURL, "database-url", "", "address of a Postgres database to use instead of an own server (KEB_DATABASE_URL)")
	flags.BoolVar(&cfg.Fast, "fast", false, "take the waits out: the cluster of the landscape is there at once, polls are short")
	flags.BoolVar(&noDemo, "no-demo", false, "do not provision a sample runtime (DEMO=0)")
	flags.BoolVarP(&cfg.Verbose, "verbose", "v", false, "also print the log, which is in <data folder>/keb.log")
	times.register(cmd)
	flags.StringSliceVar(&overlays, "overlays", overlayDirs(), "folders with process overlays, applied in order (KEB_OVERLAYS)")
	flags.StringVar(&cfg.MaintenancePolicy, "maintenance-policy", env("KEB_MAINTENANCE_POLICY", ""),
		"file that says when runtimes may be upgraded (KEB_MAINTENANCE_POLICY)")
	flags.StringVar(&cfg.AccessTokensFile, "access-tokens-file", env("KEB_ACCESS_TOKENS_FILE", ""),
		"file that says who may use the operator API, by access tokens; nobody is asked without one (KEB_ACCESS_TOKENS_FILE)")
	// The address may hold a password, which --help must not print as a default.
	cmd.PreRun = func(*cobra.Command, []string) {
		if cfg.DatabaseURL == "" {
			cfg.DatabaseURL = os.Getenv("KEB_DATABASE_URL")
		}
	}
	return cmd
}

// demoFromEnv reads DEMO: 0 or false means no sample.
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

// admissionFromEnv reads KEB_ADMISSION as the orchestrator does: "provision:500,update:100".
func admissionFromEnv() (map[event.OperationType]int, error) {
	admission := map[event.OperationType]int{}
	for part := range strings.SplitSeq(os.Getenv("KEB_ADMISSION"), ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, count, _ := strings.Cut(part, ":")
		n, err := strconv.Atoi(count)
		if err != nil || n < 0 || !slices.Contains(event.OperationTypes(), event.OperationType(name)) {
			return nil, usageError("KEB_ADMISSION: %q is not TYPE:NUMBER, for example provision:500; types: %q", part, event.OperationTypes())
		}
		admission[event.OperationType(name)] = n
	}
	return admission, nil
}

// bindingsFromEnv reads KEB_LANDSCAPE_BINDINGS as the landscape does; 0 means its default.
func bindingsFromEnv() (int, error) {
	value := os.Getenv("KEB_LANDSCAPE_BINDINGS")
	if value == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 0 {
		return 0, usageError("KEB_LANDSCAPE_BINDINGS: %q is not a number from 0", value)
	}
	return n, nil
}

// program is how this program was called, for hints: go run builds it somewhere that is gone afterwards.
func program() string {
	if strings.Contains(os.Args[0], "go-build") {
		return "go run ./cmd/keb"
	}
	return os.Args[0]
}
