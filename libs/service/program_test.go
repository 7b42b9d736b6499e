package service_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/service"
)

type programConfig struct {
	Size int `env:"KEB_TEST_SIZE" envDefault:"3"`
}

func (c programConfig) Validate() error {
	if c.Size < 1 {
		return fmt.Errorf("KEB_TEST_SIZE: %d must be positive", c.Size)
	}
	return nil
}

func TestProgram_Run_StartsAndCloses(t *testing.T) {
	t.Setenv("KEB_TEST_SIZE", "7")
	var events []string
	note := func(what string) func() error {
		return func() error { events = append(events, what); return nil }
	}
	p := service.Program[programConfig]{Name: "box", Start: func(_ context.Context, cfg *programConfig, p *service.Process) error {
		p.Defer(note("database closed"))
		p.Defer(note("bus closed"))
		p.Add("part", func(context.Context) error { return note(fmt.Sprint("part of ", cfg.Size))() })
		return nil
	}}
	require.NoError(t, p.Run(t.Context(), slog.New(slog.DiscardHandler), nil, nil))
	if want := []string{"part of 7", "bus closed", "database closed"}; !slices.Equal(events, want) {
		t.Errorf("got %v, want %v", events, want)
	}
}

func TestProgram_FailedStart_ClosesWhatWasOpened(t *testing.T) {
	closed := false
	p := service.Program[programConfig]{Start: func(_ context.Context, _ *programConfig, p *service.Process) error {
		p.Defer(func() error { closed = true; return errors.New("close failed") })
		return errors.New("no database")
	}}
	err := p.Run(t.Context(), slog.New(slog.DiscardHandler), nil, nil)
	require.ErrorContains(t, err, "no database")
	require.ErrorContains(t, err, "close failed")
	if !closed {
		t.Error("a resource is still open")
	}
}

func TestProgram_CommandsAndCheckConfig(t *testing.T) {
	started := errors.New("started")
	p := service.Program[programConfig]{
		Name: "box",
		Commands: map[string]func(context.Context, *slog.Logger) error{
			"migrate": func(context.Context, *slog.Logger) error { return errors.New("migrated") },
			"catalog": func(context.Context, *slog.Logger) error { return nil },
		},
		Start: func(context.Context, *programConfig, *service.Process) error { return started },
	}
	for _, tt := range []struct {
		args, size, want, out string
	}{
		{args: "", want: "started"},
		{args: "migrate", size: "0", want: "migrated"},
		{args: "catalog"},
		{args: "-check-config", out: "the configuration is valid\n"},
		{args: "-check-config", size: "0", want: "KEB_TEST_SIZE: 0 must be positive"},
		{args: "migrat", want: `unknown command "migrat"; allowed: catalog, migrate; without a command the box runs`},
		{args: "-check-config migrate", want: `argument "migrate": -check-config cannot be combined with a command`},
		{args: "migrate -check-config", want: `argument "-check-config": migrate has no arguments; put flags before it`},
	} {
		t.Run(tt.args+tt.size, func(t *testing.T) {
			if tt.size != "" {
				t.Setenv("KEB_TEST_SIZE", tt.size)
			}
			var out bytes.Buffer
			err := p.Run(t.Context(), slog.New(slog.DiscardHandler), strings.Fields(tt.args), &out)
			if tt.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tt.want)
			}
			if out.String() != tt.out {
				t.Errorf("printed %q, want %q", out.String(), tt.out)
			}
		})
	}
}
