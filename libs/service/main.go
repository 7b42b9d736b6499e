package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// LogConfig is how a service logs; Main reads it before anything else.
type LogConfig struct {
	// Format of a line of the log: json or text; empty is text on a terminal, else json.
	Format string `env:"KEB_LOG_FORMAT"`
	// Level from which on lines are written: debug, info, warn or error.
	Level string `env:"KEB_LOG_LEVEL" envDefault:"info"`
}

// Main is the body of a service's main function. It calls run with a context that ends at SIGINT or SIGTERM, and a logger
// to standard error set by KEB_LOG_FORMAT (json or text; by default text on a terminal, else json) and KEB_LOG_LEVEL. It
// ends the process: with 0 when run returns nil or was told to stop, else with 1 and the error in one line. A second signal ends
// it at once. The process leaves no core dump (NoDumps).
//
// Called with the one argument "healthcheck" it does not call run: it asks the process that serves at KEB_METRICS_ADDR whether it is
// ready, and ends with 0 if so. That is for containers that have nothing in them to ask with.
func Main(name string, run func(ctx context.Context, log *slog.Logger) error) {
	if len(os.Args) == 2 && os.Args[1] == healthcheckArg {
		run = func(ctx context.Context, _ *slog.Logger) error {
			return askReady(ctx, os.Getenv(metricsAddr), os.Getenv(metricsCert) != "")
		}
	}
	TuneGC()
	if err := NoDumps(); err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "%s: %s\n", name, OneLine(err)) // nowhere else to say it
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// With the first signal the default behaviour returns, for a second one.
	release := context.AfterFunc(ctx, stop)
	code := mainCode(ctx, name, os.Stderr, run)
	release()
	stop()
	os.Exit(code)
}

func mainCode(ctx context.Context, name string, stderr io.Writer, run func(context.Context, *slog.Logger) error) int {
	err := func() error {
		var cfg LogConfig
		if err := LoadEnv(&cfg); err != nil {
			return err
		}
		if cfg.Format == "" && isTerminal(stderr) {
			cfg.Format = "text"
		}
		log, err := Logger(stderr, cfg.Format, cfg.Level)
		if err != nil {
			return err
		}
		return run(ctx, log)
	}()
	if err == nil || (ctx.Err() != nil && errors.Is(err, context.Canceled)) {
		return 0
	}
	_, _ = fmt.Fprintf(stderr, "%s: %s\n", name, OneLine(err)) // nowhere else to say it
	return 1
}

// OneLine is the text of an error with joined errors behind one another.
func OneLine(err error) string {
	var parts []string
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSpace(line); line != "" {
			parts = append(parts, line)
		}
	}
	return strings.Join(parts, "; ")
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
