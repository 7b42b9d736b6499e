package ias

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/services/step-workers/internal/setup"
)

// serviceProvider is an application that IAS logs people in to.
type serviceProvider struct {
	// ID is a string with some versions of the service and a number with others.
	ID   json.RawMessage `json:"id"`
	Name string          `json:"name"`
}

func (p serviceProvider) id() string { return strings.Trim(string(p.ID), `"`) }

type client struct{ http *extclient.Client }

func newClient(cfg Config, deps extclient.Deps) (*client, error) {
	c, err := extclient.New(extclient.Config{
		System: "ias", BaseURL: cfg.URL, Timeout: cfg.Timeout, Username: cfg.Username,
		Password: setup.Secret(cfg.Password, cfg.PasswordFile),
	}, nil, deps)
	if err != nil {
		return nil, err
	}
	return &client{http: c}, nil
}

// ofInstance lists the service providers of an instance, whatever their type. The service gives all of a company.
func (c *client) ofInstance(ctx context.Context, instanceID string) ([]serviceProvider, error) {
	var got struct {
		ServiceProviders []serviceProvider `json:"service_providers"`
	}
	const route = "/service/company/global"
	if err := c.http.Do(ctx, extclient.Request{Method: http.MethodGet, Route: route, Sensitive: true}, &got); err != nil {
		return nil, err
	}
	var own []serviceProvider
	for _, p := range got.ServiceProviders {
		if !strings.HasPrefix(p.Name, "SKR ") || !strings.HasSuffix(p.Name, " (instanceID: "+instanceID+")") {
			continue
		}
		if p.id() == "" || p.id() == "null" {
			return nil, &extclient.AnswerError{System: "ias", Method: http.MethodGet, Route: route, Err: errors.New("a service provider without id")}
		}
		own = append(own, p)
	}
	return own, nil
}

// remove deletes a service provider; one that is gone is no error.
func (c *client) remove(ctx context.Context, id string) error {
	return c.http.Do(ctx, extclient.Request{
		Method: http.MethodPut, Route: "/service/sps/delete", Query: url.Values{"sp_id": {id}},
		Accept: []int{http.StatusOK, http.StatusCreated, http.StatusNoContent, http.StatusNotFound},
	}, nil)
}
