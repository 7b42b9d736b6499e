package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/kyma-project/keb/landscape"
	"github.com/kyma-project/keb/libs/service"
)

// newLandscape returns the command that simulates the external systems in a process of its own.
func newLandscape(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "landscape",
		Short: "Run the simulated external systems alone, at --landscape-addr",
		Long: `Run the simulated external systems alone, at --landscape-addr. keb up runs them in its own process. The variables KEB_LANDSCAPE_* set
its data folder and its delays (docs/configuration.md).`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var cfg landscape.Config
			if err := service.LoadEnv(&cfg); err != nil {
				return usageError("%v", err)
			}
			log, err := service.Logger(o.Err, "json", "info")
			if err != nil {
				return err
			}
			l, err := landscape.New(cfg, landscape.Deps{Log: log})
			if err != nil {
				return err
			}
			ln, err := service.Listen(o.landscapeAddr)
			if err != nil {
				return errors.Join(usageError("--landscape-addr, KEB_LANDSCAPE_ADDR: %v", err), l.Close())
			}
			log.Info("landscape listens", "addr", ln.Addr().String())
			// The journals are closed after the last request.
			return errors.Join(service.ServeHTTP(cmd.Context(), ln, l.Handler()), l.Close())
		},
	}
}
