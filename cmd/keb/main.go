// Command keb runs the whole system in one process and talks to a running one.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/kyma-project/keb/cmd/keb/internal/cli"
	"github.com/kyma-project/keb/libs/service"
)

func main() {
	service.TuneGC()
	if err := service.NoDumps(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "keb:", err) // nowhere else to say it
		os.Exit(1)
	}
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	// After the first signal a second one ends the process at once. A closed terminal sends SIGHUP twice, by its shell and by the kernel.
	context.AfterFunc(ctx, func() {
		signal.Ignore(syscall.SIGHUP)
		stop()
	})
	os.Exit(cli.Main(ctx, os.Args[1:], cli.IO{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
