package ias

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// Component is the Kyma component with the overrides.
const Component = "monitoring"

// application is a part of Kyma 1 with logins.
type application struct {
	// title and host are parts of its names: "SKR <title> (instanceID: ...)" and <host>.<domain of the runtime>.
	title, host string
	// path is the path that IAS redirects to after a login.
	path string
	// groups are the groups whose members may log in.
	groups []string
	// oidc is true for an application with OpenID Connect and a client secret, and false for one with SAML.
	oidc bool
}

var (
	dex     = application{"Dex", "dex", "/callback", []string{"runtimeOperator", "runtimeAdmin"}, false}
	grafana = application{"Grafana", "grafana", "/login/generic_oauth", []string{"skr-monitoring-admin", "skr-monitoring-viewer"}, true}
)

// provider returns the name of the application's service provider.
func (a application) provider(instanceID string) string {
	return "SKR " + a.title + " (instanceID: " + instanceID + ")"
}

// registration creates the service providers of Dex and Grafana for the instance, and the client secret of Grafana. IAS returns a
// secret only once, so every run replaces the previous secrets.
func (s *shared) registration(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	if _, err := s.register(ctx, op, dex, log); err != nil {
		return op, s.cfg.RegistrationInterval, fmt.Errorf("dex: %w", err)
	}
	got, err := s.register(ctx, op, grafana, log)
	if err != nil {
		return op, s.cfg.RegistrationInterval, fmt.Errorf("grafana: %w", err)
	}
	op.SetOverrides(Component, []worker.Override{
		{Key: "grafana.env.GF_AUTH_GENERIC_OAUTH_CLIENT_ID", Value: got.ID, Secret: true},
		{Key: "grafana.env.GF_AUTH_GENERIC_OAUTH_CLIENT_SECRET", Value: got.Secret, Secret: true},
	})
	return op, 0, nil
}

// register creates and configures the service provider of an application, and returns its new client secret if it has one.
func (s *shared) register(ctx context.Context, op worker.Operation, app application, log *slog.Logger) (clientSecret, error) {
	name := app.provider(op.InstanceID)
	p, idp, err := s.find(ctx, name)
	if err != nil {
		return clientSecret{}, fmt.Errorf("look up the service provider: %w", err)
	}
	if p == nil {
		if err := s.ias.create(ctx, name); err != nil {
			return clientSecret{}, fmt.Errorf("create the service provider: %w", err)
		}
		// The answer to the creation does not contain the id.
		if p, idp, err = s.find(ctx, name); err != nil {
			return clientSecret{}, fmt.Errorf("look up the service provider: %w", err)
		}
		if p == nil {
			return clientSecret{}, listError("the list does not contain the new service provider")
		}
		log.Info("service provider created", "service_provider_id", p.id())
	}
	host := app.host + "." + op.Runtime.ShootDomain
	uri := "https://" + host + app.path
	calls := []call{
		{"set its attributes", func() error { return s.ias.setAttributes(ctx, *p) }},
		{"set its name id", func() error { return s.ias.setNameID(ctx, p.id()) }},
		{"set its identity provider", func() error { return s.ias.setIdentityProvider(ctx, p.id(), idp) }},
		{"set its groups", func() error { return s.ias.setGroups(ctx, p.id(), app.groups) }},
	}
	if app.oidc {
		calls = append(calls,
			call{"set its redirect URI", func() error { return s.ias.setRedirect(ctx, p.id(), host, uri) }},
			call{"remove its secrets", func() error { return s.ias.removeSecrets(ctx, *p) }})
	} else {
		calls = append(calls, call{"set its endpoint", func() error { return s.ias.setEndpoint(ctx, p.id(), host, uri) }})
	}
	for _, c := range calls {
		if err := c.do(); err != nil {
			return clientSecret{}, fmt.Errorf("%s: %w", c.what, err)
		}
	}
	if !app.oidc {
		return clientSecret{}, nil
	}
	got, err := s.ias.newSecret(ctx, p.id())
	if err != nil {
		return clientSecret{}, fmt.Errorf("create a secret: %w", err)
	}
	return got, nil
}

// call is one of the calls that configure a service provider.
type call struct {
	what string
	do   func() error
}

// find returns the service provider with that name, or nil, and the id of the identity provider.
func (s *shared) find(ctx context.Context, name string) (*serviceProvider, string, error) {
	company, err := s.ias.company(ctx)
	if err != nil {
		return nil, "", err
	}
	idp := ""
	for _, p := range company.IdentityProviders {
		if p.Name == s.cfg.IdentityProvider {
			idp = p.ID
			break
		}
	}
	if idp == "" {
		return nil, "", &worker.Error{Component: component, Message: fmt.Sprintf(
			"KEB_IAS_IDENTITY_PROVIDER: IAS has no identity provider named %q", s.cfg.IdentityProvider)}
	}
	for _, p := range company.ServiceProviders {
		if p.Name != name {
			continue
		}
		if !p.hasID() {
			return nil, "", listError("a service provider without id")
		}
		return &p, idp, nil
	}
	return nil, idp, nil
}
