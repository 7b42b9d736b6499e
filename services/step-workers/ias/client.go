package ias

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/kyma-project/keb/libs/extclient"
)

// serviceProvider is an application that uses IAS for its logins.
type serviceProvider struct {
	// ID is a string with some versions of the service and a number with others.
	ID   json.RawMessage `json:"id"`
	Name string          `json:"display_name"`
	// User is the client id of its secrets.
	User       string      `json:"userForRest"`
	Attributes []attribute `json:"assertion_attributes"`
	Secrets    []struct {
		ID string `json:"clientSecretId"`
	} `json:"clientSecrets"`
}

func (p serviceProvider) id() string { return strings.Trim(string(p.ID), `"`) }

func (p serviceProvider) hasID() bool { return p.id() != "" && p.id() != "null" }

// attribute is a user attribute that a service provider receives.
type attribute struct {
	Assertion string `json:"assertionAttribute"`
	User      string `json:"userAttribute"`
}

// company contains all objects of our account in IAS. The service has no smaller query.
type company struct {
	ServiceProviders  []serviceProvider `json:"service_providers"`
	IdentityProviders []struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"identity_providers"`
}

// clientSecret is the client id and secret of a service provider.
type clientSecret struct {
	ID     string `json:"clientId"`
	Secret string `json:"clientSecret"`
}

// String keeps the secret out of logs and errors.
func (clientSecret) String() string { return "[redacted]" }

// The successful statuses of every call, and of deletions.
var (
	accepted       = []int{http.StatusOK, http.StatusCreated, http.StatusNoContent}
	acceptedOrGone = append(slices.Clone(accepted), http.StatusNotFound)
)

// organization is the name of the only company in IAS.
const organization = "global"

// maxCompany is the maximum size in bytes of the answer with all objects of our account.
const maxCompany = 64 << 20

type client struct {
	http *extclient.Client
	url  string
}

func newClient(cfg Config, deps extclient.Deps) (*client, error) {
	c, err := extclient.New(extclient.Config{
		System: component, BaseURL: cfg.URL, Timeout: cfg.Timeout, Username: cfg.Username,
		Password: cfg.Password, MaxAnswer: maxCompany,
	}, nil, deps)
	return &client{http: c, url: strings.TrimRight(cfg.URL, "/")}, err
}

const companyRoute = "/service/company/" + organization

func (c *client) company(ctx context.Context) (company, error) {
	var got *company // an empty answer must not be mistaken for one without service providers
	err := c.http.Do(ctx, extclient.Request{Method: http.MethodGet, Route: companyRoute, Sensitive: true, Accept: accepted}, &got)
	switch {
	case err != nil:
		return company{}, err
	case got == nil:
		return company{}, listError("the answer is empty")
	}
	return *got, nil
}

func listError(message string) error {
	return &extclient.AnswerError{System: component, Method: http.MethodGet, Route: companyRoute, Err: errors.New(message)}
}

// ofInstance returns the service providers of an instance, of all types.
func (c *client) ofInstance(ctx context.Context, instanceID string) ([]serviceProvider, error) {
	got, err := c.company(ctx)
	if err != nil {
		return nil, err
	}
	var own []serviceProvider
	for _, p := range got.ServiceProviders {
		if !strings.HasPrefix(p.Name, "SKR ") || !strings.HasSuffix(p.Name, " (instanceID: "+instanceID+")") {
			continue
		}
		if !p.hasID() {
			return nil, listError("a service provider without id")
		}
		own = append(own, p)
	}
	slices.SortFunc(own, func(a, b serviceProvider) int { return strings.Compare(a.Name, b.Name) })
	return own, nil
}

// create creates a service provider. IAS permits duplicate names, so the caller checks for an existing one first.
func (c *client) create(ctx context.Context, name string) error {
	return c.http.Do(ctx, extclient.Request{
		Method: http.MethodPost, Route: "/service/sps", Form: url.Values{"sp_name": {name}, "company_id": {organization}}, Accept: accepted,
	}, nil)
}

// put changes the service provider with that id; if id is empty, the body contains it.
func (c *client) put(ctx context.Context, route, id string, body, into any, sensitive bool) error {
	var params []string
	if id != "" {
		params = []string{id}
	}
	return c.http.Do(ctx, extclient.Request{Method: http.MethodPut, Route: route, Params: params, Body: body, Sensitive: sensitive, Accept: accepted}, into)
}

// setRedirect configures a service provider for OpenID Connect with a redirect URI.
func (c *client) setRedirect(ctx context.Context, id, host, uri string) error {
	return c.put(ctx, "/service/sps/{id}", id, map[string]any{
		"ssoType": "openIdConnect", "sp_name": host,
		"openId_connect_configuration": map[string]any{"redirect_uris": []string{uri}},
	}, nil, false)
}

// setEndpoint configures a service provider for SAML with an endpoint.
func (c *client) setEndpoint(ctx context.Context, id, host, uri string) error {
	type endpoint struct {
		Location  string `json:"location"`
		IsDefault bool   `json:"isDefault"`
		Index     int    `json:"index"`
	}
	return c.put(ctx, "/service/sps/{id}", id, map[string]any{
		"sp_name": host, "acs_endpoints": []endpoint{{Location: uri, IsDefault: true}},
	}, nil, false)
}

// setAttributes adds the user attributes that a service provider receives. It keeps the existing attributes.
func (c *client) setAttributes(ctx context.Context, p serviceProvider) error {
	attributes := slices.Clone(p.Attributes)
	for _, want := range []attribute{
		{"first_name", "firstName"}, {"last_name", "lastName"}, {"email", "mail"}, {"groups", "companyGroups"},
	} {
		if !slices.ContainsFunc(attributes, func(a attribute) bool { return a.Assertion == want.Assertion }) {
			attributes = append(attributes, want)
		}
	}
	return c.put(ctx, "/service/sps/{id}", p.id(), map[string]any{"assertion_attributes": attributes}, nil, false)
}

// setNameID selects the user attribute that identifies a user.
func (c *client) setNameID(ctx context.Context, id string) error {
	return c.put(ctx, "/service/sps/{id}", id, map[string]any{"name_id_attribute": "mail"}, nil, false)
}

// setIdentityProvider selects the identity provider for logins.
func (c *client) setIdentityProvider(ctx context.Context, id, identityProvider string) error {
	return c.put(ctx, "/service/sps", "", map[string]any{
		"organization": organization, "id": id, "default_auth_idp": c.url + "/service/idp/" + url.PathEscape(identityProvider),
	}, nil, false)
}

// setGroups permits logins only for members of the given groups.
func (c *client) setGroups(ctx context.Context, id string, names []string) error {
	type rule struct {
		Action string `json:"action"`
		Group  string `json:"group"`
		Type   string `json:"group_type"`
	}
	rules := make([]rule, len(names))
	for i, name := range names {
		rules[i] = rule{"Allow", name, "Cloud"}
	}
	return c.put(ctx, "/service/sps/{id}/rba", id, map[string]any{
		"service_provider": map[string]any{"rba_config": map[string]any{"rba_rules": rules, "default_action": "Deny"}},
	}, nil, false)
}

// removeSecrets removes the client secrets of a service provider. Missing secrets are no error.
func (c *client) removeSecrets(ctx context.Context, p serviceProvider) error {
	if len(p.Secrets) == 0 {
		return nil
	}
	ids := make([]string, len(p.Secrets))
	for i, secret := range p.Secrets {
		ids[i] = secret.ID
	}
	return c.http.Do(ctx, extclient.Request{
		Method: http.MethodDelete, Route: "/service/sps/clientSecret", Body: map[string]any{"clientId": p.User, "clientSecretsIds": ids},
		Accept: acceptedOrGone,
	}, nil)
}

// newSecret creates a client secret. IAS returns it only once.
func (c *client) newSecret(ctx context.Context, id string) (clientSecret, error) {
	var got clientSecret
	const route = "/service/sps"
	err := c.put(ctx, route, "", map[string]any{
		"organization": organization, "id": id,
		"rest_api_client_secret": map[string]any{"description": "SAP Kyma Runtime Secret", "scopes": []string{"ManageApp", "ManageUsers", "OAuth"}},
	}, &got, true)
	if err == nil && (got.ID == "" || got.Secret == "") {
		err = &extclient.AnswerError{System: component, Method: http.MethodPut, Route: route, Err: errors.New("clientId or clientSecret is missing")}
	}
	return got, err
}

// remove deletes a service provider, and reports whether it existed. A missing service provider is no error.
func (c *client) remove(ctx context.Context, id string) (existed bool, err error) {
	err = c.http.Do(ctx, extclient.Request{
		Method: http.MethodPut, Route: "/service/sps/delete", Query: url.Values{"sp_id": {id}},
		Accept:   acceptedOrGone,
		Answered: func(status int, _ http.Header) { existed = status != http.StatusNotFound },
	}, nil)
	return existed, err
}
