package ias

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// Component is the Kyma component that gets the overrides.
const Component = "monitoring"

// groups may log in to Grafana.
var groups = []string{"skr-monitoring-admin", "skr-monitoring-viewer"}

// registration makes a service provider for Grafana of the instance, and gives Grafana its client. A client secret is told only once,
// so every run makes a new one in place of those before.
type registration struct {
	cfg Config
	ias *client
}

// Name implements worker.Step.
func (registration) Name() string { return "IAS_Registration" }

// Describe implements worker.Described.
func (registration) Describe() worker.Description {
	return worker.Description{
		Summary: "Makes and configures the service provider of the instance's Grafana, and sets the overrides with its client and secret.",
		Calls: []worker.Call{
			{System: component, Operation: "GET /service/company/global"},
			{System: component, Operation: "POST /service/sps"},
			{System: component, Operation: "PUT /service/sps/{id}"},
			{System: component, Operation: "PUT /service/sps"},
			{System: component, Operation: "PUT /service/sps/{id}/rba"},
			{System: component, Operation: "DELETE /service/sps/clientSecret"},
		},
		StageMemory: []string{"overrides:" + Component},
	}
}

// grafana is the name of the service provider of an instance's Grafana.
func grafana(instanceID string) string { return "SKR Grafana (instanceID: " + instanceID + ")" }

// Run implements worker.Step.
func (s registration) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	ordered, err := provisioner.Ordered(op)
	if err != nil {
		return worker.Fail(op, outcome.Error(component, err))
	}
	if ordered {
		return worker.Skip(op, provisioner.AlreadyOrdered)
	}
	got, err := s.register(ctx, op, log)
	if err != nil {
		return outcome.Of(op, component, s.cfg.RegistrationInterval, err)
	}
	op.SetOverrides(Component, []worker.Override{
		{Key: "grafana.env.GF_AUTH_GENERIC_OAUTH_CLIENT_ID", Value: got.ID, Secret: true},
		{Key: "grafana.env.GF_AUTH_GENERIC_OAUTH_CLIENT_SECRET", Value: got.Secret, Secret: true},
	})
	return op, 0, nil
}

// register sees to the service provider and returns its new client secret.
func (s registration) register(ctx context.Context, op worker.Operation, log *slog.Logger) (clientSecret, error) {
	p, idp, err := s.find(ctx, op)
	if err != nil {
		return clientSecret{}, fmt.Errorf("look up the service provider: %w", err)
	}
	if p == nil {
		if err := s.ias.create(ctx, grafana(op.InstanceID)); err != nil {
			return clientSecret{}, fmt.Errorf("create the service provider: %w", err)
		}
		// The answer to the creation does not tell the id.
		if p, idp, err = s.find(ctx, op); err != nil {
			return clientSecret{}, fmt.Errorf("look up the service provider: %w", err)
		}
		if p == nil {
			return clientSecret{}, unlisted("the service provider that was created is not listed")
		}
		log.Info("service provider created", "service_provider_id", p.id())
	}
	host := "grafana." + op.Runtime.ShootDomain
	for _, c := range []struct {
		what string
		do   func() error
	}{
		{"set its redirect URI", func() error { return s.ias.setRedirect(ctx, p.id(), host, "https://"+host+"/login/generic_oauth") }},
		{"set its attributes", func() error { return s.ias.setAttributes(ctx, p.id()) }},
		{"set its identity provider", func() error { return s.ias.setIdentityProvider(ctx, p.id(), idp) }},
		{"set who may log in", func() error { return s.ias.setGroups(ctx, p.id(), groups) }},
		{"remove its secrets", func() error { return s.ias.removeSecrets(ctx, *p) }},
	} {
		if err := c.do(); err != nil {
			return clientSecret{}, fmt.Errorf("%s: %w", c.what, err)
		}
	}
	got, err := s.ias.newSecret(ctx, p.id())
	if err != nil {
		return clientSecret{}, fmt.Errorf("make a secret: %w", err)
	}
	return got, nil
}

// find looks for the service provider of the instance, nil when there is none, and the id of the identity provider.
func (s registration) find(ctx context.Context, op worker.Operation) (*serviceProvider, string, error) {
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
		if p.Name != grafana(op.InstanceID) {
			continue
		}
		if !p.hasID() {
			return nil, "", unlisted("a service provider without id")
		}
		return &p, idp, nil
	}
	return nil, idp, nil
}
