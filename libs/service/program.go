package service

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/kyma-project/keb/libs/tracing"
)

// Program is a service as a command. Main is its whole main function. C is the struct of its configuration, which LoadEnv reads and
// validates. With the flag -check-config the program exits after that.
type Program[C any] struct {
	// Name is the name of the process in errors.
	Name string
	// Commands are run instead of the service if the only argument is their name. Each reads its own variables.
	Commands map[string]func(ctx context.Context, log *slog.Logger) error
	// Arguments handles the arguments after the flags, instead of Commands.
	Arguments func(args []string) error
	// Traces creates the exporter of traces, for example otlp.New; without one the program sends none.
	Traces tracing.ExporterFunc
	// Start creates the parts of the process, which run after it has returned nil.
	Start func(ctx context.Context, cfg *C, p *Process) error
	// Check is called for -check-config with a valid configuration; nil prints that it is valid.
	Check func(ctx context.Context, cfg *C, p *Process, out io.Writer) error
}

// Main runs the program with the function Main. It does not return.
func (g Program[C]) Main() {
	Main(g.Name, func(ctx context.Context, log *slog.Logger) error { return g.Run(ctx, log, os.Args[1:], os.Stdout) })
}

// Run runs the program with arguments until ctx ends, and closes all resources.
func (g Program[C]) Run(ctx context.Context, log *slog.Logger, args []string, out io.Writer) (err error) {
	flags := flag.NewFlagSet(g.Name, flag.ContinueOnError)
	flags.SetOutput(out)
	checkOnly := flags.Bool("check-config", false, "check the configuration and exit")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if command, err := g.command(flags.Args(), *checkOnly); command != nil || err != nil {
		if err != nil {
			return err
		}
		return command(ctx, log)
	}
	cfg := new(C)
	if err := errors.Join(LoadEnv(cfg), tracing.Check()); err != nil {
		return err
	}
	traces, err := tracing.New(ctx, tracing.Config{Log: log, Exporter: g.Traces})
	if err != nil {
		return err
	}
	p := NewProcess(log, traces)
	defer func() { err = errors.Join(err, p.Close()) }()
	switch {
	case *checkOnly && g.Check != nil:
		return g.Check(ctx, cfg, p, out)
	case *checkOnly:
		_, err := fmt.Fprintln(out, "the configuration is valid")
		return err
	}
	if err := g.Start(ctx, cfg, p); err != nil {
		return err
	}
	return p.Run(ctx)
}

// command returns the command of the arguments, or nil.
func (g Program[C]) command(args []string, checkOnly bool) (func(context.Context, *slog.Logger) error, error) {
	switch {
	case g.Arguments != nil:
		return nil, g.Arguments(args)
	case len(args) == 0:
		return nil, nil
	case checkOnly:
		return nil, fmt.Errorf("argument %q: -check-config cannot be combined with a command", args[0])
	case len(args) > 1:
		return nil, fmt.Errorf("argument %q: %s has no arguments; put flags before it", args[1], args[0])
	}
	command := g.Commands[args[0]]
	if command == nil {
		names := strings.Join(slices.Sorted(maps.Keys(g.Commands)), ", ")
		return nil, fmt.Errorf("unknown command %q; allowed: %s; without a command the %s runs", args[0], names, g.Name)
	}
	return command, nil
}
