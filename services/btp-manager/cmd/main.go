// Command btp-manager is the Kubernetes operator that provisions and deprovisions the SAP BTP service operator.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/services/btp-manager/internal/app"
	"github.com/kyma-project/keb/services/btp-manager/internal/config"
	"github.com/kyma-project/keb/services/btp-manager/internal/operand"
)

// operandImage is the variable with the operand's image, for clusters with a private registry (docs/contracts/btp-manager.md#readiness).
const operandImage = "SAP_BTP_SERVICE_OPERATOR"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Getenv, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "btp-manager:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, env func(string) string, out io.Writer) error {
	settings := config.Default()
	fs := flag.NewFlagSet("btp-manager", flag.ContinueOnError)
	fs.SetOutput(out)
	settings.Flags(fs)
	kubeconfig := fs.String("kubeconfig", "", "file that says how to reach the cluster; empty for the cluster that this runs in")
	format := fs.String("log-format", "json", "format of the log: json or text")
	level := fs.String("log-level", "info", "least level of the log: debug, info, warn or error")
	check := fs.Bool("check-config", false, "check the flags and the operand's image, then exit")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: settings are flags", fs.Arg(0))
	}
	cfg := app.Config{Settings: settings, Version: version(), Image: env(operandImage)}
	if err := app.Check(cfg, operand.Chart()); err != nil {
		return err
	}
	logger, err := service.Logger(out, *format, *level)
	if err != nil {
		return err
	}
	if *check {
		return nil
	}
	to, err := connect(*kubeconfig)
	if err != nil {
		return err
	}
	sink := logr.FromSlogHandler(logger.Handler())
	log.SetLogger(sink)
	klog.SetLogger(sink)
	a, err := app.New(cfg, app.Deps{
		REST: to, Log: sink, Chart: operand.Chart(), Metrics: metrics.Registry,
	})
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

// connect returns the configuration of the connection to the cluster: from the file, or that of a pod. The API server limits clients, so a
// limit in the client would only slow down the deprovisioning of many objects.
func connect(kubeconfig string) (*rest.Config, error) {
	cfg, err := reach(kubeconfig)
	if err != nil {
		return nil, err
	}
	cfg.UserAgent = "btp-manager"
	cfg.QPS = -1
	return cfg, nil
}

func reach(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		// BuildConfigFromFlags would do the same, but with warnings that bypass the log.
		cfg, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("without a kubeconfig: %w", err)
		}
		return cfg, nil
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return cfg, nil
}

// version returns the version of the build.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
