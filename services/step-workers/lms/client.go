package lms

import (
	"context"
	"errors"
	"net/http"

	"github.com/kyma-project/keb/libs/extclient"
)

// tenant is the body that creates a tenant (docs/contracts/lms.md).
type tenant struct {
	Name        string   `json:"name"`
	Region      string   `json:"region"`
	SAMLGroups  []string `json:"samlGroups"`
	ClusterType string   `json:"clusterType"`
	DataCenter  string   `json:"datacenter"`
	Environment string   `json:"environment"`
	Project     string   `json:"project"`
	SAMLTenant  string   `json:"samlTenant"`
	CostCenter  int      `json:"costcenter"`
	// GlobalAccountID is part of the contract, and always empty.
	GlobalAccountID string `json:"globalAccountID"`
}

// certificateRequest requests a certificate. CertID is part of the contract, and always 0.
type certificateRequest struct {
	CertID int    `json:"certId"`
	CSR    string `json:"csr"`
}

type client struct {
	http   *extclient.Client
	header http.Header
}

func newClient(cfg Config, deps extclient.Deps) (*client, error) {
	c, err := extclient.New(extclient.Config{System: component, BaseURL: cfg.URL, Timeout: cfg.Timeout}, nil, deps)
	return &client{http: c, header: http.Header{"X-Lms-Token": {cfg.Token}}}, err
}

func (c *client) get(ctx context.Context, route string, params []string, into any) error {
	return c.http.Do(ctx, extclient.Request{Method: http.MethodGet, Route: route, Params: params, Header: c.header}, into)
}

func missing(method, route, what string) error {
	return &extclient.AnswerError{System: component, Method: method, Route: route, Err: errors.New(what + " is missing")}
}

// create returns the id of the tenant with that name and region. LMS creates a missing tenant. The API has no list, so the worker assumes
// that a repeated creation returns the existing tenant.
func (c *client) create(ctx context.Context, t tenant) (string, error) {
	var got struct {
		ID string `json:"id"`
	}
	const route = "/tenants"
	err := c.http.Do(ctx, extclient.Request{Method: http.MethodPost, Route: route, Header: c.header, Body: t}, &got)
	if err == nil && got.ID == "" {
		err = missing(http.MethodPost, route, "id")
	}
	return got.ID, err
}

// ready reports whether both names of a tenant can be resolved. The state of Kibana in the answer is meaningless.
func (c *client) ready(ctx context.Context, tenantID string) (bool, error) {
	var got struct {
		Kibana        *bool `json:"kibanaDNSResolves"`
		Elasticsearch *bool `json:"elasticsearchDNSResolves"`
	}
	const route = "/tenants/{id}/status"
	if err := c.get(ctx, route, []string{tenantID}, &got); err != nil {
		return false, err
	}
	if got.Kibana == nil || got.Elasticsearch == nil {
		return false, missing(http.MethodGet, route, "kibanaDNSResolves or elasticsearchDNSResolves")
	}
	return *got.Kibana && *got.Elasticsearch, nil
}

// dns returns the domain of a tenant.
func (c *client) dns(ctx context.Context, tenantID string) (string, error) {
	var got struct {
		DNS string `json:"dns"`
	}
	const route = "/tenants/{id}"
	err := c.get(ctx, route, []string{tenantID}, &got)
	if err == nil && got.DNS == "" {
		err = missing(http.MethodGet, route, "dns")
	}
	return got.DNS, err
}

// request requests a certificate and returns its future URL.
func (c *client) request(ctx context.Context, tenantID, csr string) (string, error) {
	var got struct {
		CallbackURL string `json:"callbackUrl"`
	}
	const route = "/tenants/{id}/certs"
	err := c.http.Do(ctx, extclient.Request{
		Method: http.MethodPost, Route: route, Params: []string{tenantID}, Header: c.header, Body: certificateRequest{CSR: csr},
	}, &got)
	if err == nil && got.CallbackURL == "" {
		err = missing(http.MethodPost, route, "callbackUrl")
	}
	return got.CallbackURL, err
}

// certificate returns the signed certificate; it is empty before the signature.
func (c *client) certificate(ctx context.Context, callbackURL string) (string, error) {
	var got struct {
		Certificate string `json:"cert"`
	}
	const route = "/{callback}"
	err := c.http.Do(ctx, extclient.Request{Method: http.MethodGet, Route: route, Link: callbackURL, Header: c.header}, &got)
	if extclient.IsStatus(err, http.StatusNotFound) {
		return "", nil
	}
	if err == nil && got.Certificate == "" {
		err = missing(http.MethodGet, route, "cert")
	}
	return got.Certificate, err
}

// authority returns the certificate of the authority that signs for a tenant.
func (c *client) authority(ctx context.Context, tenantID string) (string, error) {
	var got struct {
		Certificate string `json:"cert"`
	}
	const route = "/tenants/{id}/certs/ca"
	err := c.get(ctx, route, []string{tenantID}, &got)
	if err == nil && got.Certificate == "" {
		err = missing(http.MethodGet, route, "cert")
	}
	return got.Certificate, err
}
