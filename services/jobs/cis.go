package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
)

// The versions of the inventory's API.
const (
	cisV1 = "v1.0"
	cisV2 = "v2.0"
)

// eventsPage and eventsPageV1 are the numbers of events in one page.
const (
	eventsPage   = 150
	eventsPageV1 = 1000
)

// maxPages limits the length of the list.
const maxPages = 100_000

// inventory is a client of the cloud inventory's events, of both versions (docs/contracts/cis.md).
type inventory struct {
	cfg   Config
	retry extclient.Retry
	api   *extclient.Client
}

func newInventory(cfg Config, retry extclient.Retry, deps extclient.Deps) (*inventory, error) {
	tokens := extclient.ClientCredentials(extclient.TokenConfig{
		URL: cfg.CISTokenURL, ClientID: cfg.CISClientID, ClientSecret: cfg.CISClientSecret,
	}, deps)
	api, err := extclient.New(extclient.Config{System: "cis", BaseURL: cfg.CISURL, Timeout: cfg.RequestTimeout}, tokens, deps)
	return &inventory{cfg: cfg, retry: retry, api: api}, err
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

// deletedSubaccounts returns the ids of all deleted sub-accounts without duplicates, in the order of their deletion.
func (c *inventory) deletedSubaccounts(ctx context.Context) ([]string, error) {
	var gone []string
	seen := map[string]bool{}
	read := c.page
	if c.cfg.CISVersion == cisV1 {
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
		if !extclient.Wait(ctx, cmp.Or(c.cfg.CISPause, 200*time.Millisecond)) {
			return nil, fmt.Errorf("read the deleted sub-accounts: %w", ctx.Err())
		}
	}
	return nil, fmt.Errorf("read the deleted sub-accounts: there are more than %d pages", maxPages)
}

// page reads page n of version 2, counted from 0.
func (c *inventory) page(ctx context.Context, n int) (page, error) {
	var got struct {
		TotalPages int `json:"totalPages"`
		Events     []struct {
			EntityID  string `json:"entityId"`
			EventType string `json:"eventType"`
		} `json:"events"`
	}
	err := c.get(ctx, "/events/v1/events/central", url.Values{
		"eventType": {deletion}, "pageSize": {strconv.Itoa(eventsPage)}, "pageNum": {strconv.Itoa(n)},
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

// pageV1 reads page n of version 1, which counts its pages from 1.
func (c *inventory) pageV1(ctx context.Context, n int) (page, error) {
	var got struct {
		TotalPages int `json:"totalPages"`
		Events     []struct {
			Type      string          `json:"type"`
			EventData json.RawMessage `json:"eventData"`
		} `json:"events"`
	}
	err := c.get(ctx, "/public/rest/v2/events", url.Values{
		"ts": {"1"}, "type": {deletionV1}, "resultsPerPage": {strconv.Itoa(eventsPageV1)}, "page": {strconv.Itoa(n + 1)},
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

// subaccountOf decodes the data of an event of version 1: an object, or a string that contains an object.
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

func (c *inventory) get(ctx context.Context, route string, query url.Values, into any) error {
	return c.retry.Do(ctx, func(ctx context.Context) error {
		return c.api.Do(ctx, extclient.Request{
			Method: http.MethodGet, Route: route, Accept: []int{http.StatusOK}, Query: query,
		}, into)
	})
}
