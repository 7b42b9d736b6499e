// The landscape command runs the simulated external systems as a process of their own. With the argument healthcheck it asks the
// one that runs on the same machine whether it answers.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/kyma-project/keb/landscape"
)

type config struct {
	Addr string `env:"KEB_LANDSCAPE_ADDR" envDefault:"127.0.0.1:8090"`
	landscape.Config
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	if len(os.Args) == 2 && os.Args[1] == "healthcheck" {
		err = healthcheck(ctx)
	} else {
		err = run(ctx)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "landscape:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	cfg, err := env.ParseAs[config]()
	if err != nil {
		return fmt.Errorf("read environment: %w", err)
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	l, err := landscape.New(cfg.Config, landscape.Deps{Log: log})
	if err != nil {
		return err
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.Addr)
	if err != nil {
		return errors.Join(fmt.Errorf("listen (set KEB_LANDSCAPE_ADDR to a free address): %w", err), l.Close())
	}
	log.InfoContext(ctx, "landscape listens", "addr", ln.Addr().String())
	return serve(ctx, ln, l)
}

// serve ends when ctx does; the journals are closed after the last request.
func serve(ctx context.Context, ln net.Listener, l *landscape.Landscape) error {
	server := &http.Server{Handler: l.Handler(), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	select {
	case err := <-served:
		return errors.Join(err, l.Close())
	case <-ctx.Done():
	}
	// Requests that a fault holds do not end by themselves.
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		_ = server.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return errors.Join(err, l.Close())
	}
	return l.Close()
}

// healthcheck is for a container, which has nothing else in it to ask with.
func healthcheck(ctx context.Context) error {
	cfg, err := env.ParseAs[config]()
	if err != nil {
		return fmt.Errorf("read environment: %w", err)
	}
	host, port, err := net.SplitHostPort(cfg.Addr)
	if err != nil {
		return fmt.Errorf("KEB_LANDSCAPE_ADDR: %w", err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+"/healthz", nil)
	if err != nil {
		return err
	}
	client := http.Client{Timeout: 3 * time.Second}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("healthcheck: %s", answer.Status)
	}
	return nil
}
