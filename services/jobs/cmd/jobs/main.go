// Command jobs runs one job and exits, for a Kubernetes CronJob. The exit code is 0 for success, 1 for a failure, and 2 for a wrong call. The
// report is written to standard output, the log to standard error. The configuration is read from the environment, and flags override it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/services/jobs"
)

const exitUsage = 2

func main() {
	c, err := parse(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		help(os.Stdout, c)
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "jobs:", service.OneLine(err))
		os.Exit(exitUsage)
	}
	service.Main("jobs", func(ctx context.Context, log *slog.Logger) error { return c.run(ctx, log, os.Stdout) })
}

// call is the parsed command line.
type call struct {
	job    jobs.Job
	cfg    jobs.Config
	flags  *flag.FlagSet
	output string
}

// The formats of the report.
const (
	outputText = "text"
	outputJSON = "json"
)

// parse reads the environment and the arguments: the name of a job, and its flags.
func parse(args []string) (*call, error) {
	c := &call{}
	if len(args) == 0 {
		return c, fmt.Errorf("the name of a job is missing: use one of %s; see jobs --help", names())
	}
	if args[0] == "-h" || args[0] == "--help" || args[0] == "-help" || args[0] == "help" {
		return c, flag.ErrHelp
	}
	var err error
	if c.job, err = jobs.Find(args[0]); err != nil {
		return c, err
	}
	if err := service.LoadEnv(&c.cfg); err != nil {
		return c, err
	}
	c.flags = c.cfg.Flags(c.job)
	c.flags.StringVar(&c.cfg.BrokerURL, "broker-url", c.cfg.BrokerURL, "base `URL` of the broker (KEB_BROKER_URL)")
	c.flags.StringVar(&c.output, "output", outputText, "`format` of the report: text or json")
	if err := c.flags.Parse(args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return c, err
		}
		return c, fmt.Errorf("%w; see jobs %s --help", err, c.job)
	}
	if c.flags.NArg() > 0 {
		return c, fmt.Errorf("unexpected argument %q; see jobs %s --help", c.flags.Arg(0), c.job)
	}
	if c.output != outputText && c.output != outputJSON {
		return c, fmt.Errorf("--output %q is not a format, use %s or %s", c.output, outputText, outputJSON)
	}
	return c, c.cfg.Validate(c.job)
}

func names() string {
	all := make([]string, 0, len(jobs.All()))
	for _, job := range jobs.All() {
		all = append(all, string(job))
	}
	return strings.Join(all, ", ")
}

func help(w io.Writer, c *call) {
	if c.flags == nil {
		fmt.Fprintf(w, "usage: jobs JOB [flags]\njobs: %s\n", names())
		return
	}
	fmt.Fprintf(w, "usage: jobs %s [flags]\n", c.job)
	c.flags.SetOutput(w)
	c.flags.PrintDefaults()
}

// run prints the report even after an error, because some instances may have been processed.
func (c *call) run(ctx context.Context, log *slog.Logger, out io.Writer) error {
	report, err := jobs.Run(ctx, c.job, c.cfg, jobs.Deps{Log: log})
	if err != nil && ctx.Err() != nil {
		// Do not return the context's error, which would be treated as a success.
		err = fmt.Errorf("%s was stopped before its end", c.job)
	}
	return errors.Join(err, report.Err(), c.print(report, out))
}

func (c *call) print(report jobs.Report, out io.Writer) error {
	if c.output == outputText {
		return report.Print(out)
	}
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	return enc.Encode(report)
}
