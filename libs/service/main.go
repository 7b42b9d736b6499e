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
	"unicode"
)

// LogConfig configures the logs of a service. Main reads it first.
type LogConfig struct {
	// Format is json or text; empty means text on a terminal, otherwise json.
	Format string `env:"KEB_LOG_FORMAT"`
	// Level is the minimum level: debug, info, warn or error.
	Level string `env:"KEB_LOG_LEVEL" envDefault:"info"`
}

// Main is the body of a service's main function. It calls run with a context that ends on SIGINT or SIGTERM, and a logger
// to standard error that is configured by LogConfig. It
// exits with 0 if run returns nil or was stopped by a signal, otherwise with 1 and the error in one line. A second signal exits
// immediately. The process leaves no core dump (NoDumps).
//
// With the only argument "healthcheck" it does not call run. Instead it exits with 0 if the process that serves KEB_METRICS_ADDR
// is ready. That is the health check of containers without a shell or an HTTP client.
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
	// Restore the default behaviour for a second signal.
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

// OneLine returns the text of an error in one line without control characters, with "; " between joined errors.
func OneLine(err error) string {
	var parts []string
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSpace(line); line != "" {
			parts = append(parts, line)
		}
	}
	return strings.ReplaceAll(Printable(strings.Join(parts, "; ")), "\t", " ")
}

// Printable returns a text without control characters except line breaks and tabs, and without characters that change the direction of text
// or separate lines: texts of other systems must not control the terminal.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			return -1
		}
		return r
	}, text)
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
