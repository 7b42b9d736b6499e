// Package cis is the client of the cloud inventory's events, in their v2 flavour (facts/keb.md 5.7).
package cis

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/services/jobs/internal/retry"
)

// pageSize is how many events are read at once.
const pageSize = 150

// maxPages bounds a list that never ends.
const maxPages = 100_000

// Config says where the inventory is.
type Config struct {
	// URL is what stands before /events/v1.
	URL string
	// TokenURL, ClientID and ClientSecret are for the OAuth2 client credentials grant.
	TokenURL, ClientID, ClientSecret string
	// Timeout is the deadline of one request.
	Timeout time.Duration
	// Retry is for calls that may work later.
	Retry retry.Policy
	// Pause is the time between two pages, which the inventory wants.
	Pause time.Duration
}

// Client asks one inventory.
type Client struct {
	cfg Config
	api *extclient.Client
}

// New builds a client. It returns an error that names the field for a configuration that cannot work; it calls nobody.
func New(cfg Config, deps extclient.Deps) (*Client, error) {
	if err := extclient.CheckURL("token URL of cis", cfg.TokenURL); err != nil {
		return nil, err
	}
	tokens := extclient.ClientCredentials(extclient.TokenConfig{
		URL: cfg.TokenURL, ClientID: cfg.ClientID, ClientSecret: cfg.ClientSecret,
	}, deps)
	api, err := extclient.New(extclient.Config{System: "cis", BaseURL: cfg.URL, Timeout: cfg.Timeout}, tokens, deps)
	if err != nil {
		return nil, err
	}
	return &Client{cfg: cfg, api: api}, nil
}

type page struct {
	TotalPages int `json:"totalPages"`
	Events     []struct {
		EntityID  string `json:"entityId"`
		EventType string `json:"eventType"`
	} `json:"events"`
}

const deletion = "Subaccount_Deletion"

// DeletedSubaccounts are the ids of all sub-accounts of which the inventory knows that they were deleted, each once, the first one to
// be deleted first.
func (c *Client) DeletedSubaccounts(ctx context.Context) ([]string, error) {
	var gone []string
	seen := map[string]bool{}
	for n := range maxPages {
		p, err := c.page(ctx, n)
		if err != nil {
			return nil, fmt.Errorf("read page %d of the deleted sub-accounts: %w", n, err)
		}
		for _, e := range p.Events {
			// An event of another kind must not cost a sub-account its runtimes.
			if e.EventType == deletion && e.EntityID != "" && !seen[e.EntityID] {
				seen[e.EntityID] = true
				gone = append(gone, e.EntityID)
			}
		}
		// Events are sorted by age, so what is added meanwhile is at the end, and the newest answer says where that is.
		if n+1 >= p.TotalPages {
			return gone, nil
		}
		if !retry.Wait(ctx, c.cfg.Pause) {
			return nil, fmt.Errorf("read the deleted sub-accounts: %w", ctx.Err())
		}
	}
	return nil, fmt.Errorf("read the deleted sub-accounts: there are more than %d pages", maxPages)
}

func (c *Client) page(ctx context.Context, n int) (page, error) {
	var p page
	err := retry.Do(ctx, c.cfg.Retry, func(ctx context.Context) error {
		return c.api.Do(ctx, extclient.Request{
			Method: http.MethodGet, Route: "/events/v1/events/central", Accept: []int{http.StatusOK},
			Query: url.Values{
				"eventType": {deletion}, "pageSize": {strconv.Itoa(pageSize)}, "pageNum": {strconv.Itoa(n)},
				"sortField": {"creationTime"}, "sortOrder": {"ASC"},
			},
		}, &p)
	})
	return p, err
}
