package eventhubs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
)

// The routes of the Azure Resource Manager.
const (
	groupsRoute    = "/subscriptions/{subscription}/resourcegroups"
	groupRoute     = groupsRoute + "/{group}"
	namespaceRoute = groupRoute + "/providers/Microsoft.EventHub/namespaces/{namespace}"
	keysRoute      = namespaceRoute + "/authorizationRules/RootManageSharedAccessKey/listKeys"
)

// The versions of the APIs, and the resource of tokens (docs/contracts/event-hubs.md).
const (
	groupsVersion    = "2019-05-01"
	eventHubsVersion = "2017-04-01"
	tokenVersion     = "1.0"
	managementAPI    = "https://management.azure.com/"
)

// The states of objects in Azure.
const (
	stateSucceeded = "Succeeded"
	stateDeleting  = "Deleting"
	stateFailed    = "Failed"
)

// tagInstance is the tag with the instance id. The steps find the objects of an instance by it.
const tagInstance = "InstanceID"

// resource contains the fields of a resource group or a namespace that the steps need.
type resource struct {
	Name       string            `json:"name"`
	Location   string            `json:"location"`
	Tags       map[string]string `json:"tags"`
	Properties struct {
		State string `json:"provisioningState"`
	} `json:"properties"`
}

type client struct {
	http         *extclient.Client
	subscription string
}

func newClient(cfg Config, deps extclient.Deps) (*client, error) {
	tokens := extclient.ClientCredentials(extclient.TokenConfig{
		URL:      strings.TrimRight(cfg.LoginURL, "/") + "/" + url.PathEscape(cfg.TenantID) + "/oauth2/token?" + version(tokenVersion).Encode(),
		ClientID: cfg.ClientID, ClientSecret: cfg.ClientSecret, Params: url.Values{"resource": {managementAPI}},
	}, deps)
	c, err := extclient.New(extclient.Config{System: component, BaseURL: cfg.URL, Timeout: cfg.Timeout}, tokens, deps)
	return &client{http: c, subscription: cfg.SubscriptionID}, err
}

func version(v string) url.Values { return url.Values{"api-version": {v}} }

// groupOf returns the resource group with the tag of an instance, or nil. More than one group is an error.
func (c *client) groupOf(ctx context.Context, instanceID string) (*resource, error) {
	query := version(groupsVersion)
	query.Set("$filter", "tagName eq '"+tagInstance+"' and tagValue eq '"+strings.ReplaceAll(instanceID, "'", "''")+"'")
	var groups []resource
	// A page may be empty although another one follows.
	for req := (extclient.Request{Method: http.MethodGet, Route: groupsRoute, Params: []string{c.subscription}, Query: query}); ; {
		var got struct {
			Value    *[]resource `json:"value"`
			NextLink string      `json:"nextLink"`
		}
		if err := c.http.Do(ctx, req, &got); err != nil {
			return nil, err
		}
		if got.Value == nil {
			return nil, &extclient.AnswerError{System: component, Method: http.MethodGet, Route: groupsRoute, Err: errors.New("value is missing")}
		}
		groups = append(groups, *got.Value...)
		if n := len(groups); n > 1 {
			return nil, &extclient.AnswerError{
				System: component, Method: http.MethodGet, Route: groupsRoute, Err: fmt.Errorf("%d resource groups have the tag of the instance, want at most 1", n),
			}
		}
		if got.NextLink == "" {
			break
		}
		req = extclient.Request{Method: http.MethodGet, Route: groupsRoute, Link: got.NextLink}
	}
	for _, g := range groups {
		// Check the tag again: otherwise a server that ignores the filter could cause the deletion of another group.
		if g.Tags[tagInstance] == instanceID && g.Name != "" {
			return &g, nil
		}
	}
	return nil, nil
}

// createGroup creates a resource group. It does not change an existing group of that name.
func (c *client) createGroup(ctx context.Context, name, location string, tags map[string]string) error {
	return c.http.Do(ctx, extclient.Request{
		Method: http.MethodPut, Route: groupRoute, Params: []string{c.subscription, name}, Query: version(groupsVersion),
		Body: map[string]any{"location": location, "tags": tags},
	}, nil)
}

// deleteGroup starts the deletion of a resource group with its content. It returns the delay before the next check, which is 0 if Azure
// requests none, and reports whether the group is already gone.
func (c *client) deleteGroup(ctx context.Context, name string) (after time.Duration, gone bool, err error) {
	err = c.http.Do(ctx, extclient.Request{
		Method: http.MethodDelete, Route: groupRoute, Params: []string{c.subscription, name}, Query: version(groupsVersion),
		Accept: []int{http.StatusOK, http.StatusAccepted, http.StatusNoContent, http.StatusNotFound},
		Answered: func(status int, header http.Header) {
			after, gone = extclient.RetryAfter(header), status == http.StatusNotFound
		},
	}, nil)
	return after, gone, err
}

// namespace returns the Event Hubs namespace of that name, or nil.
func (c *client) namespace(ctx context.Context, group, name string) (*resource, error) {
	var got resource
	err := c.http.Do(ctx, extclient.Request{
		Method: http.MethodGet, Route: namespaceRoute, Params: []string{c.subscription, group, name}, Query: version(eventHubsVersion),
	}, &got)
	if extclient.IsStatus(err, http.StatusNotFound) {
		return nil, nil
	}
	if err == nil && got.Properties.State == "" {
		err = &extclient.AnswerError{System: component, Method: http.MethodGet, Route: namespaceRoute, Err: errors.New("provisioningState is missing")}
	}
	return &got, err
}

// createNamespace starts the creation of a namespace with a location and tags.
func (c *client) createNamespace(ctx context.Context, group, name, location string, tags map[string]string) (*resource, error) {
	var got resource
	err := c.http.Do(ctx, extclient.Request{
		Method: http.MethodPut, Route: namespaceRoute, Params: []string{c.subscription, group, name}, Query: version(eventHubsVersion),
		Body: map[string]any{"location": location, "tags": tags},
	}, &got)
	return &got, err
}

// connectionString returns the secret key of a namespace, with its address.
func (c *client) connectionString(ctx context.Context, group, name string) (string, error) {
	var got struct {
		ConnectionString string `json:"primaryConnectionString"`
	}
	err := c.http.Do(ctx, extclient.Request{
		Method: http.MethodPost, Route: keysRoute, Params: []string{c.subscription, group, name}, Query: version(eventHubsVersion), Sensitive: true,
	}, &got)
	if err == nil && got.ConnectionString == "" {
		err = &extclient.AnswerError{System: component, Method: http.MethodPost, Route: keysRoute, Err: errors.New("primaryConnectionString is missing")}
	}
	return got.ConnectionString, err
}
