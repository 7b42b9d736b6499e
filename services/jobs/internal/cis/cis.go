// Package cis is the client of the cloud inventory's events, of both versions (docs/contracts/cis.md).
package cis

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
)

// Version is a version of the inventory's API.
type Version string

// The versions.
const (
	V1 Version = "v1.0"
	V2 Version = "v2.0"
)

// Versions returns the supported versions.
func Versions() []Version { return []Version{V1, V2} }

// pageSize and pageSizeV1 are the numbers of events in one page.
const (
	pageSize   = 150
	pageSizeV1 = 1000
)

// maxPages limits the length of the list.
const maxPages = 100_000

// Config is the connection to the inventory.
type Config struct {
	// Version is V1 or V2.
	Version Version
	// URL is the URL prefix of /public/rest/v2/events of V1, and of /events/v1 of V2.
	URL string
	// TokenURL, ClientID and ClientSecret are the settings of the OAuth2 client credentials grant.
	TokenURL, ClientID, ClientSecret string
	// Timeout is the timeout of one request.
	Timeout time.Duration
	// Retry is the policy for temporary errors.
	Retry extclient.Retry
	// Pause is the pause between two pages, which the inventory requires.
	Pause time.Duration
}

// Client calls one inventory.
type Client struct {
	cfg Config
	api *extclient.Client
}

// New creates a client. For an invalid configuration it returns an error with the name of the field. It sends no request.
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

// page is one page of deleted sub-accounts.
type page struct {
	total       int
	subaccounts []string
}

const (
	deletion   = "Subaccount_Deletion"
	deletionV1 = "MASTER_SUBACCOUNT_DELETION"
)

// DeletedSubaccounts returns the ids of all deleted sub-accounts without duplicates, in the order of their deletion.
func (c *Client) DeletedSubaccounts(ctx context.Context) ([]string, error) {
	var gone []string
	seen := map[string]bool{}
	read := c.page
	if c.cfg.Version == V1 {
		read = c.pageV1
	}
	for n := range maxPages {
		p, err := read(ctx, n)
		if err != nil {
			return nil, fmt.Errorf("read page %d of the deleted sub-accounts: %w", n, err)
		}
		for _, id := range p.subaccounts {
			if id != "" && !seen[id] {
				seen[id] = true
				gone = append(gone, id)
			}
		}
		// Events are sorted by age, so new events are at the end, and the latest answer has the current number of pages.
		if n+1 >= p.total {
			return gone, nil
		}
		if !extclient.Wait(ctx, c.cfg.Pause) {
			return nil, fmt.Errorf("read the deleted sub-accounts: %w", ctx.Err())
		}
	}
	return nil, fmt.Errorf("read the deleted sub-accounts: there are more than %d pages", maxPages)
}

// page reads page n of V2, counted from 0.
func (c *Client) page(ctx context.Context, n int) (page, error) {
	var got struct {
		TotalPages int `json:"totalPages"`
		Events     []struct {
			EntityID  string `json:"entityId"`
			EventType string `json:"eventType"`
		} `json:"events"`
	}
	err := c.get(ctx, "/events/v1/events/central", url.Values{
		"eventType": {deletion}, "pageSize": {strconv.Itoa(pageSize)}, "pageNum": {strconv.Itoa(n)},
		"sortField": {"creationTime"}, "sortOrder": {"ASC"},
	}, &got)
	p := page{total: got.TotalPages}
	for _, e := range got.Events {
		// Check the type, because an event of another type must not delete the runtimes of a sub-account.
		if e.EventType == deletion {
			p.subaccounts = append(p.subaccounts, e.EntityID)
		}
	}
	return p, err
}

// pageV1 reads page n of V1, which counts its pages from 1.
func (c *Client) pageV1(ctx context.Context, n int) (page, error) {
	var got struct {
		TotalPages int `json:"totalPages"`
		Events     []struct {
			Type      string          `json:"type"`
			EventData json.RawMessage `json:"eventData"`
		} `json:"events"`
	}
	err := c.get(ctx, "/public/rest/v2/events", url.Values{
		"ts": {"1"}, "type": {deletionV1}, "resultsPerPage": {strconv.Itoa(pageSizeV1)}, "page": {strconv.Itoa(n + 1)},
	}, &got)
	if err != nil {
		return page{}, err
	}
	p := page{total: got.TotalPages}
	for _, e := range got.Events {
		if e.Type != deletionV1 {
			continue
		}
		id, err := subaccountOf(e.EventData)
		if err != nil {
			return page{}, err
		}
		p.subaccounts = append(p.subaccounts, id)
	}
	return p, nil
}

// subaccountOf decodes the data of an event of V1: an object, or a string that contains an object.
func subaccountOf(raw json.RawMessage) (string, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		raw = json.RawMessage(text)
	}
	var data struct {
		SubaccountGUID string `json:"subaccountGuid"`
	}
	if err := json.Unmarshal(raw, &data); err != nil {
		return "", fmt.Errorf("eventData is not an object with subaccountGuid: %w", err)
	}
	return data.SubaccountGUID, nil
}

func (c *Client) get(ctx context.Context, route string, query url.Values, into any) error {
	return c.cfg.Retry.Do(ctx, func(ctx context.Context) error {
		return c.api.Do(ctx, extclient.Request{
			Method: http.MethodGet, Route: route, Accept: []int{http.StatusOK}, Query: query,
		}, into)
	})
}
