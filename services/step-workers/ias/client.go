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

// serviceProvider is an application that IAS logs people in to.
type serviceProvider struct {
	// ID is a string with some versions of the service and a number with others.
	ID   json.RawMessage `json:"id"`
	Name string          `json:"display_name"`
	// User is the client id that its secrets belong to.
	User       string      `json:"userForRest"`
	Attributes []attribute `json:"assertion_attributes"`
	Secrets    []struct {
		ID string `json:"clientSecretId"`
	} `json:"clientSecrets"`
}

func (p serviceProvider) id() string { return strings.Trim(string(p.ID), `"`) }

func (p serviceProvider) hasID() bool { return p.id() != "" && p.id() != "null" }

// attribute is what a service provider gets to know of those who log in.
type attribute struct {
	Assertion string `json:"assertionAttribute"`
	User      string `json:"userAttribute"`
}

// company is all that IAS holds for us. The service gives no less.
type company struct {
	ServiceProviders  []serviceProvider `json:"service_providers"`
	IdentityProviders []struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"identity_providers"`
}

// clientSecret is what a service provider logs in with. It is secret.
type clientSecret struct {
	ID     string `json:"clientId"`
	Secret string `json:"clientSecret"`
}

// String keeps the secret out of any text.
func (clientSecret) String() string { return "[redacted]" }

// Statuses that are no error: of every call, and of deletions.
var (
	good       = []int{http.StatusOK, http.StatusCreated, http.StatusNoContent}
	goodOrGone = append(slices.Clone(good), http.StatusNotFound)
)

// organization is the only company there is.
const organization = "global"

type client struct {
	http *extclient.Client
	url  string
}

func newClient(cfg Config, deps extclient.Deps) (*client, error) {
	c, err := extclient.New(extclient.Config{
		System: component, BaseURL: cfg.URL, Timeout: cfg.Timeout, Username: cfg.Username,
		Password: cfg.Password,
	}, nil, deps)
	if err != nil {
		return nil, err
	}
	return &client{http: c, url: strings.TrimRight(cfg.URL, "/")}, nil
}

const companyRoute = "/service/company/" + organization

func (c *client) company(ctx context.Context) (company, error) {
	var got *company // an answer without a body is not one without service providers
	err := c.http.Do(ctx, extclient.Request{Method: http.MethodGet, Route: companyRoute, Sensitive: true, Accept: good}, &got)
	switch {
	case err != nil:
		return company{}, err
	case got == nil:
		return company{}, unlisted("the answer is empty")
	}
	return *got, nil
}

func unlisted(message string) error {
	return &extclient.AnswerError{System: component, Method: http.MethodGet, Route: companyRoute, Err: errors.New(message)}
}

// ofInstance lists the service providers of an instance, whatever their type.
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
			return nil, unlisted("a service provider without id")
		}
		own = append(own, p)
	}
	slices.SortFunc(own, func(a, b serviceProvider) int { return strings.Compare(a.Name, b.Name) })
	return own, nil
}

// create makes a service provider. A name can be taken twice, so look before.
func (c *client) create(ctx context.Context, name string) error {
	return c.http.Do(ctx, extclient.Request{
		Method: http.MethodPost, Route: "/service/sps", Form: url.Values{"sp_name": {name}, "company_id": {organization}}, Accept: good,
	}, nil)
}

// put changes the service provider of that id; an empty id means that the body tells it.
func (c *client) put(ctx context.Context, route, id string, body, into any, sensitive bool) error {
	var params []string
	if id != "" {
		params = []string{id}
	}
	return c.http.Do(ctx, extclient.Request{Method: http.MethodPut, Route: route, Params: params, Body: body, Sensitive: sensitive, Accept: good}, into)
}

// setRedirect makes a service provider one for OpenID Connect that comes back to a URI.
func (c *client) setRedirect(ctx context.Context, id, host, uri string) error {
	return c.put(ctx, "/service/sps/{id}", id, map[string]any{
		"ssoType": "openIdConnect", "sp_name": host,
		"openId_connect_configuration": map[string]any{"redirect_uris": []string{uri}},
	}, nil, false)
}

// setEndpoint makes a service provider one for SAML that comes back to a URI.
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

// setAttributes says what a service provider gets to know of those who log in. Attributes that it has already stay.
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

// setNameID says by what people are known to a service provider.
func (c *client) setNameID(ctx context.Context, id string) error {
	return c.put(ctx, "/service/sps/{id}", id, map[string]any{"name_id_attribute": "mail"}, nil, false)
}

// setIdentityProvider says where people log in.
func (c *client) setIdentityProvider(ctx context.Context, id, identityProvider string) error {
	return c.put(ctx, "/service/sps", "", map[string]any{
		"organization": organization, "id": id, "default_auth_idp": c.url + "/service/idp/" + url.PathEscape(identityProvider),
	}, nil, false)
}

// setGroups lets only members of some groups log in.
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

// removeSecrets takes the client secrets of a service provider away; ones that are gone are no error.
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
		Accept: goodOrGone,
	}, nil)
}

// newSecret makes a client secret. It is told this once.
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

// remove deletes a service provider; one that is gone is no error.
func (c *client) remove(ctx context.Context, id string) error {
	return c.http.Do(ctx, extclient.Request{
		Method: http.MethodPut, Route: "/service/sps/delete", Query: url.Values{"sp_id": {id}},
		Accept: goodOrGone,
	}, nil)
}
