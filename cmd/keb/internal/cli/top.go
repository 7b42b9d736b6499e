package cli

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kyma-project/keb/cmd/keb/internal/view"
	"github.com/kyma-project/keb/libs/api/operator"
)

func newTop(o *options) *cobra.Command {
	var every time.Duration
	var once bool
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show what starts, ends and fails, with workers, holds and limits",
		Long: `Show how many operations start and end per minute, what fails by error, the workers, holds and limits. On a terminal the view is live, and
Ctrl-C ends it; otherwise one snapshot is printed. Rates are those of the last one to two minutes.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every < 100*time.Millisecond {
				return usageError("--every must be at least 100ms")
			}
			client, err := o.operatorClient()
			if err != nil {
				return err
			}
			size, isTerminal := terminal(o.Out)
			if once || !isTerminal || o.json() {
				return o.snapshot(cmd.Context(), client)
			}
			err = followTop(cmd.Context(), client, &view.Terminal{Out: o.Out, Size: size}, every)
			if errors.Is(err, context.Canceled) {
				return nil // Ctrl-C is the way to end it
			}
			return err
		},
	}
	cmd.Flags().DurationVar(&every, "every", time.Second, "interval between two requests")
	cmd.Flags().BoolVar(&once, "once", false, "print one snapshot, also on a terminal")
	return cmd
}

func (o *options) snapshot(ctx context.Context, client *operator.Client) error {
	top, err := readTop(ctx, client)
	if err != nil {
		return err
	}
	if o.json() {
		return printJSON(o.Out, top)
	}
	_, err = io.WriteString(o.Out, strings.Join(view.RenderTop(top, view.Size{}), "\n")+"\n")
	return err
}

// followTop shows snapshots until ctx ends. After a temporary error the server may be restarting.
func followTop(ctx context.Context, client *operator.Client, screen *view.Terminal, every time.Duration) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	answered, lost := false, false
	for {
		top, err := readTop(ctx, client)
		switch {
		case err == nil:
			answered, lost = true, false
			size := screen.Size()
			size.Height = max(2, size.Height-1) // the cursor stays in the line below
			err = screen.Draw(view.RenderTop(top, size))
		case ctx.Err() != nil:
			return ctx.Err()
		case !answered || !operator.Temporary(err):
		case lost:
			err = nil
		default:
			lost = true
			err = screen.Lost(err, time.Now())
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

func readTop(ctx context.Context, client *operator.Client) (*view.Top, error) {
	var top view.Top
	for _, read := range []func() error{
		func() (err error) { top.Overview, _, err = client.Overview(ctx); return err },
		func() (err error) { top.Throughput, _, err = client.Throughput(ctx, 1); return err },
		func() (err error) { top.Errors, _, err = client.Errors(ctx); return err },
		func() error {
			list, _, err := client.Workers(ctx)
			if err == nil {
				top.Workers = list.Data
			}
			return err
		},
		func() error {
			list, _, err := client.Holds(ctx)
			if err == nil {
				top.Holds = list.Data
			}
			return err
		},
		func() (err error) { top.Limits, _, err = client.Limits(ctx); return err },
	} {
		if err := read(); err != nil {
			return nil, err
		}
	}
	return &top, nil
}
