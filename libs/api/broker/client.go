package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/kyma-project/keb/libs/api/operator"
)

// ErrNotFound is returned when the requested object does not exist.
var ErrNotFound = errors.New("not found")

const (
	requestTimeout = 30 * time.Second
	maxAnswer      = 64 << 20
	// pageSize is the largest page that the broker returns.
	pageSize = 100
)

// Config is the address of the broker and the caller's credentials.
type Config struct {
	// Address is "host:port" or a URL.
	Address string
	// Token is an access token. If it is empty, User and Password of the OSB API are used.
	Token, User, Password string
	// Transport replaces http.DefaultTransport if it is not nil.
	Transport http.RoundTripper
}

// Client calls one broker. It is safe for concurrent use.
type Client struct {
	cfg  Config
	base string
	http *http.Client
}

// New returns a client.
func New(cfg Config) (*Client, error) {
	base, err := operator.BaseURL(cfg.Address)
	if err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	return &Client{cfg: cfg, base: base, http: &http.Client{Timeout: requestTimeout, CheckRedirect: operator.NoRedirect, Transport: cfg.Transport}}, nil
}

// Runtimes is ReadRuntimes over the network.
func (c *Client) Runtimes(ctx context.Context, query url.Values, seen func(got, total int) error) ([]json.RawMessage, error) {
	all, err := ReadRuntimes(query, func(q url.Values) (json.RawMessage, error) {
		return c.get(ctx, "/runtimes?"+q.Encode(), "application/json")
	}, seen)
	if err != nil {
		return nil, fmt.Errorf("list runtimes: %w", err)
	}
	return all, nil
}

// ReadRuntimes returns all runtimes that the query selects, each once, as the broker encodes them. It reads the list in parts with get, each after
// the last runtime of the part before, so that a runtime that leaves the list hides no other one. If seen is not nil, it is called after each part
// with the number of runtimes so far and the total.
func ReadRuntimes(query url.Values, get func(query url.Values) (json.RawMessage, error), seen func(got, total int) error) ([]json.RawMessage, error) {
	q := url.Values{}
	maps.Copy(q, query)
	q.Set("page_size", strconv.Itoa(pageSize))
	all := []json.RawMessage{}
	known := map[string]bool{}
	for {
		var answer struct {
			Data       []json.RawMessage `json:"data"`
			TotalCount int               `json:"totalCount"`
		}
		raw, err := get(q)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(raw, &answer); err != nil {
			return nil, fmt.Errorf("the answer is not that of a broker: %w", err)
		}
		var last struct {
			InstanceID string `json:"instanceID"`
			Status     struct {
				CreatedAt string `json:"createdAt"`
			} `json:"status"`
		}
		before := len(all)
		for _, one := range answer.Data {
			if err := json.Unmarshal(one, &last); err != nil {
				return nil, fmt.Errorf("the answer is not that of a broker: %w", err)
			}
			if !known[last.InstanceID] { // an instance that was ordered again meanwhile moves to the end
				known[last.InstanceID] = true
				all = append(all, one)
			}
		}
		if seen != nil {
			if err := seen(len(all), answer.TotalCount); err != nil {
				return nil, err
			}
		}
		switch {
		case len(answer.Data) < pageSize:
			return all, nil
		case len(all) == before:
			return nil, errors.New("the broker repeats a part of the list")
		}
		q.Set("after", last.Status.CreatedAt+","+last.InstanceID)
	}
}

// Kubeconfig returns the kubeconfig of an instance as YAML. It contains no secret: the user logs in by OIDC. The error is ErrNotFound if
// there is none.
func (c *Client) Kubeconfig(ctx context.Context, instance string) ([]byte, error) {
	raw, err := c.get(ctx, "/kubeconfig/"+url.PathEscape(instance), "application/yaml")
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of instance %s: %w", instance, err)
	}
	return raw, nil
}

func (c *Client) get(ctx context.Context, path, accept string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", accept)
	if c.cfg.Token != "" {
		request.Header.Set("Authorization", "Bearer "+c.cfg.Token)
	} else {
		request.SetBasicAuth(c.cfg.User, c.cfg.Password)
	}
	response, err := c.http.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, &operator.UnreachableError{Address: c.base, Err: err}
	}
	defer func() { _ = response.Body.Close() }()
	if err := operator.Redirected(response); err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, &operator.UnreachableError{Address: c.base, Err: err}
	}
	switch response.StatusCode {
	case http.StatusOK:
		return raw, nil
	case http.StatusNotFound:
		return nil, ErrNotFound
	case http.StatusUnauthorized:
		if c.cfg.Token != "" {
			return nil, errors.New("the broker rejected the access token of KEB_TOKEN or --token-file; to use the user and password of the OSB API, set no token")
		}
		return nil, errors.New("the broker rejected the credentials; set KEB_TOKEN, or KEB_OSB_USER and KEB_OSB_PASSWORD")
	default:
		return nil, fmt.Errorf("the broker answers %d: %s", response.StatusCode, operator.ErrorText(raw))
	}
}
