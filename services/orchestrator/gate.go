package orchestrator

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/access"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/services/orchestrator/internal/console"
	"github.com/kyma-project/keb/services/orchestrator/internal/operatorapi"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// forgetEvery is the interval at which old actions are deleted.
const forgetEvery = time.Hour

// gate controls access to the operator API, and records actions.
type gate struct {
	guard   *access.Guard
	login   *console.Login
	actions *store.Actions
	batches *store.Batches
	// origins rejects requests that pages of other sites make browsers send.
	origins *http.CrossOriginProtection
	// clients limits the requests of each client.
	clients *access.Clients
	keep    time.Duration
	now     func() time.Time
	log     *slog.Logger
}

func newGate(cfg Config, deps Deps, actions *store.Actions) (*gate, error) {
	auth, err := access.New(cfg.Access, access.Deps{Log: deps.Log, Now: deps.Now})
	if err != nil {
		return nil, err
	}
	sessions, err := access.NewSessions(auth, cfg.Encrypted || strings.HasPrefix(cfg.PublicURL, "https://"))
	if err != nil {
		return nil, fmt.Errorf("access: %w", err)
	}
	clients, err := access.NewClients(cfg.Access, deps.Now)
	if err != nil {
		return nil, err
	}
	origins := http.NewCrossOriginProtection()
	if cfg.PublicURL != "" {
		if err := origins.AddTrustedOrigin(cfg.PublicURL); err != nil {
			return nil, fmt.Errorf("KEB_OPERATOR_PUBLIC_URL: %w", err)
		}
	}
	origins.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		deps.Log.Warn("request of another site rejected", "method", r.Method, "path", r.URL.Path, "origin", r.Header.Get("Origin"))
		access.Refuse(w, &access.Error{
			Status: http.StatusForbidden, Message: "requests of pages of other sites are rejected; behind a proxy set KEB_OPERATOR_PUBLIC_URL to the address in the browser",
		})
	}))
	return &gate{
		guard: access.NewGuard(auth, sessions), actions: actions, origins: origins, clients: clients, keep: cfg.KeepActions, now: deps.Now, log: deps.Log,
		login: &console.Login{Auth: auth, Sessions: sessions, PublicURL: cfg.PublicURL, Log: deps.Log},
	}, nil
}

// bounded limits the requests of each client. Rejected requests pass through observed, which counts them. Streams have a separate limit.
func (g *gate) bounded(next http.Handler, observed func(http.Handler) http.Handler) http.Handler {
	return g.clients.Limit(next, func(r *http.Request) bool { return r.URL.Path == operatorapi.StreamPath },
		func(w http.ResponseWriter, r *http.Request, e *access.Error) {
			observed(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { access.Refuse(w, e) })).ServeHTTP(w, r)
		})
}

// forget deletes old actions and batches until ctx ends.
func (g *gate) forget(ctx context.Context) error {
	return service.Every(ctx, forgetEvery, g.log, "remove old actions", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		before := g.now().Add(-g.keep)
		n, err := g.actions.Forget(ctx, before, store.MaxActions)
		if n > 0 {
			g.log.Info("old actions removed", "actions", n)
		}
		if err != nil {
			return err
		}
		if n, err = g.batches.Forget(ctx, before); n > 0 {
			g.log.Info("old batches removed", "batches", n)
		}
		return err
	})
}
