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
	"github.com/kyma-project/keb/services/orchestrator/internal/login"
	"github.com/kyma-project/keb/services/orchestrator/internal/operatorapi"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// forgetEvery is the time between two removals of old actions.
const forgetEvery = time.Hour

// gate decides who gets to the operator API, and keeps what they asked for.
type gate struct {
	guard   *access.Guard
	login   *login.Login
	actions *store.Actions
	// origins turns away what pages of other sites make browsers send.
	origins *http.CrossOriginProtection
	// clients bounds what each may ask.
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
		deps.Log.Warn("request of another site refused", "method", r.Method, "path", r.URL.Path, "origin", r.Header.Get("Origin"))
		access.Refuse(w, &access.Error{
			Status: http.StatusForbidden, Message: "a page of another site must not act here; behind a proxy set KEB_OPERATOR_PUBLIC_URL to the address in the browser",
		})
	}))
	return &gate{
		guard: access.NewGuard(auth, sessions), actions: actions, origins: origins, clients: clients, keep: cfg.KeepActions, now: deps.Now, log: deps.Log,
		login: &login.Login{Auth: auth, Sessions: sessions, PublicURL: cfg.PublicURL, Log: deps.Log},
	}, nil
}

// bounded lets each client ask only so much; refusals are answered behind observed, which counts them. A stream has a limit of its own.
func (g *gate) bounded(next http.Handler, observed func(http.Handler) http.Handler) http.Handler {
	return g.clients.Limit(next, func(r *http.Request) bool { return r.URL.Path == operatorapi.StreamPath },
		func(w http.ResponseWriter, r *http.Request, e *access.Error) {
			observed(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { access.Refuse(w, e) })).ServeHTTP(w, r)
		})
}

// forget removes old actions until ctx ends.
func (g *gate) forget(ctx context.Context) error {
	return service.Every(ctx, forgetEvery, g.log, "remove old actions", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		n, err := g.actions.Forget(ctx, g.now().Add(-g.keep), store.MaxActions)
		if n > 0 {
			g.log.Info("old actions removed", "actions", n)
		}
		return err
	})
}
