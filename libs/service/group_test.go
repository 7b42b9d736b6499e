package service

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

func untilStopped(ended chan<- string, name string) func(context.Context) error {
	return func(ctx context.Context) error {
		<-ctx.Done()
		ended <- name
		return ctx.Err()
	}
}

func TestGroup_FirstError_StopsAndIsReturned(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	ended := make(chan string, 2)
	g := NewGroup(nil)
	g.Add("api", untilStopped(ended, "api"))
	g.Add("sweep", func(context.Context) error { return broken })
	g.Add("console", untilStopped(ended, "console"))
	err := g.Run(t.Context())
	if !errors.Is(err, broken) || err.Error() != "sweep: broken" {
		t.Errorf("got %v, want the error of the part that failed, with its name, alone", err)
	}
	if len(ended) != 2 {
		t.Errorf("%d of the other parts had ended before Run returned, want 2", len(ended))
	}
}

func TestGroup_PartReturns_StopsOthers(t *testing.T) {
	t.Parallel()
	ended := make(chan string, 1)
	g := NewGroup(nil)
	g.Add("done", func(context.Context) error { return nil })
	g.Add("other", untilStopped(ended, "other"))
	if err := g.Run(t.Context()); err != nil {
		t.Errorf("got %v, want nil", err)
	}
}

func TestGroup_ContextEnds_Stops(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan string, 1)
	g := NewGroup(nil)
	g.Add("first", untilStopped(ended, "first"))
	g.Add("late", func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		return fmt.Errorf("flush: %w", errors.ErrUnsupported)
	})
	err := g.Run(ctx)
	if !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got %v, want the error of the stopped part", err)
	}
	if errors.Is(err, context.Canceled) {
		t.Errorf("got %v: being stopped is not an error", err)
	}
}
