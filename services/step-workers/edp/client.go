package edp

import (
	"context"
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/kyma-project/keb/libs/extclient"
)

// entry is one entry in the metadata of a data tenant.
type entry struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// The successful statuses of every call, and of deletions.
var (
	accepted       = []int{http.StatusCreated, http.StatusNoContent}
	acceptedOrGone = []int{http.StatusCreated, http.StatusNoContent, http.StatusNotFound}
)

type client struct {
	http        *extclient.Client
	namespace   string
	environment string
}

func newClient(cfg Config, deps extclient.Deps) (*client, error) {
	tokens := extclient.ClientCredentials(extclient.TokenConfig{
		URL: cfg.TokenURL, ClientID: "edp-namespace;" + cfg.Namespace, ClientSecret: cfg.Secret,
		Scopes: []string{"edp-namespace.read", "edp-namespace.update"},
	}, deps)
	c, err := extclient.New(extclient.Config{System: "edp", BaseURL: cfg.URL, Timeout: cfg.Timeout}, tokens, deps)
	return &client{http: c, namespace: cfg.Namespace, environment: cfg.Environment}, err
}

// tenantName returns the name of a subaccount's data tenant. All calls use it, so that the worker finds and removes what it created.
func tenantName(subaccount string) string { return strings.ToLower(subaccount) }

const (
	tenantsRoute  = "/namespaces/{namespace}/dataTenants"
	tenantRoute   = tenantsRoute + "/{name}/{environment}"
	metadataRoute = tenantRoute + "/metadata"
	entryRoute    = metadataRoute + "/{key}"
)

func (c *client) params(tenant string, more ...string) []string {
	return append([]string{c.namespace, tenant, c.environment}, more...)
}

func (c *client) createTenant(ctx context.Context, tenant string) error {
	secret := base64.StdEncoding.EncodeToString([]byte(tenant + c.environment))
	return c.http.Do(ctx, extclient.Request{
		Method: http.MethodPost, Route: tenantsRoute, Params: []string{c.namespace}, Sensitive: true,
		Accept: accepted,
		Body:   map[string]string{"name": tenant, "environment": c.environment, "secret": secret},
	}, nil)
}

// deleteTenant deletes a data tenant, and reports whether it existed. A missing data tenant is no error.
func (c *client) deleteTenant(ctx context.Context, tenant string) (existed bool, err error) {
	err = c.http.Do(ctx, extclient.Request{
		Method: http.MethodDelete, Route: tenantRoute, Params: c.params(tenant),
		Accept:   acceptedOrGone,
		Answered: func(status int, _ http.Header) { existed = status != http.StatusNotFound },
	}, nil)
	return existed, err
}

func (c *client) createEntry(ctx context.Context, tenant string, e entry) error {
	return c.http.Do(ctx, extclient.Request{
		Method: http.MethodPost, Route: metadataRoute, Params: c.params(tenant), Body: e,
		Accept: accepted,
	}, nil)
}

// deleteEntry deletes one entry of the metadata. A missing entry is no error.
func (c *client) deleteEntry(ctx context.Context, tenant, key string) error {
	return c.http.Do(ctx, extclient.Request{
		Method: http.MethodDelete, Route: entryRoute, Params: c.params(tenant, key),
		Accept: acceptedOrGone,
	}, nil)
}

// remove deletes the metadata of a data tenant and then the tenant, and reports whether the tenant existed.
func (c *client) remove(ctx context.Context, tenant string) (existed bool, err error) {
	for _, key := range keys {
		if err := c.deleteEntry(ctx, tenant, key); err != nil {
			return false, err
		}
	}
	return c.deleteTenant(ctx, tenant)
}
