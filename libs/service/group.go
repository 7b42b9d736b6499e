package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
)

// Group runs the parts of a process. If one ends, all end.
type Group struct {
	log     *slog.Logger
	members []member
}

type member struct {
	name string
	run  func(ctx context.Context) error
}

// NewGroup returns an empty group. log may be nil.
func NewGroup(log *slog.Logger) *Group {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Group{log: log}
}

// Add adds a part before Run. f blocks until its context ends and its own goroutines have ended.
func (g *Group) Add(name string, f func(ctx context.Context) error) {
	g.members = append(g.members, member{name: name, run: f})
}

// Run runs all parts and returns after all have ended. The first return of a part, with or without an error, or the end of ctx
// ends the context of the others. Run joins the errors, each with the name of its part; context.Canceled after that
// is not an error.
func (g *Group) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(g.members))
	var wg sync.WaitGroup
	for i, m := range g.members {
		wg.Go(func() {
			defer cancel()
			err := m.run(ctx)
			stopping := ctx.Err() != nil
			if stopping && errors.Is(err, context.Canceled) {
				err = nil
			}
			if err != nil {
				errs[i] = fmt.Errorf("%s: %w", m.name, err)
			}
			switch {
			case !stopping:
				g.log.Info("part ended, stopping the others", "part", m.name)
			default:
				g.log.Debug("part ended", "part", m.name)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
