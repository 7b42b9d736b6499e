// Package osbclient is a small client of the Open Service Broker API, for the
// command line and for tests. It imports the standard library only.
package osbclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/osb"
)

// Config describes the broker and the credentials.
type Config struct {
	// BaseURL is the URL before /v2, for example "http://127.0.0.1:8080/oauth/cf-eu10".
	BaseURL string
	// User and Password are for basic authentication. If Token is set, it is sent as a bearer token instead.
	User     string
	Password string
	Token    string
	// Version is the X-Broker-API-Version; empty means osb.SpecVersion.
	Version string
	// UserAgent is sent with every request; empty means that of Go's HTTP client. A broker may store the one of a deprovisioning.
	UserAgent string
	// OriginatingIdentity is sent with every request unless it is nil.
	OriginatingIdentity *osb.OriginatingIdentity
	// Timeout is the timeout of one request; zero means 30 seconds.
	Timeout time.Duration
	// PollEvery is the interval of Poll if the broker sends no Retry-After; zero means 2 seconds.
	PollEvery time.Duration
	// PollAtMost limits the interval that the broker requests; zero means no limit.
	PollAtMost time.Duration
}

// Client calls one broker. It is safe for concurrent use.
type Client struct {
	cfg  Config
	base string
	http *http.Client
}

// maxAnswer is the maximum size of an answer, in bytes.
const maxAnswer = 16 << 20

// New creates a client. A nil http.Client means the default. Every call ends after the configured timeout, and redirects are not
// followed.
func New(cfg Config, client *http.Client) (*Client, error) {
	base, err := url.Parse(cfg.BaseURL)
	if err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https") {
		return nil, fmt.Errorf("osb client: the base URL must be like http://host:port, optionally with a path")
	}
	var own http.Client
	if client != nil {
		own = *client
	}
	// A redirect could send the credentials to another host.
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if cfg.Version == "" {
		cfg.Version = osb.SpecVersion
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 30 * time.Second
	}
	if cfg.PollEvery <= 0 {
		cfg.PollEvery = 2 * time.Second
	}
	return &Client{cfg: cfg, base: strings.TrimRight(cfg.BaseURL, "/"), http: &own}, nil
}

// Provisioning is an order for an instance.
type Provisioning struct {
	ServiceID        string `json:"service_id"`
	PlanID           string `json:"plan_id"`
	OrganizationGUID string `json:"organization_guid,omitempty"`
	SpaceGUID        string `json:"space_guid,omitempty"`
	// Context is an object that describes the platform, its account and its user.
	Context any `json:"context,omitempty"`
	// Parameters is an object that matches the schema of the plan in the catalog.
	Parameters any `json:"parameters,omitempty"`
	// MaintenanceInfo is that of the plan in the catalog.
	MaintenanceInfo *osb.MaintenanceInfo `json:"maintenance_info,omitempty"`
}

// Change is an update of an instance. Missing members do not change.
type Change struct {
	ServiceID string `json:"service_id"`
	PlanID    string `json:"plan_id,omitempty"`
	// Context is an object with the changed members.
	Context any `json:"context,omitempty"`
	// Parameters is an object with the changed members. It matches the schema of the plan in the catalog.
	Parameters any `json:"parameters,omitempty"`
	// MaintenanceInfo is that of the plan in the catalog, for an upgrade.
	MaintenanceInfo *osb.MaintenanceInfo `json:"maintenance_info,omitempty"`
}

// Answer is the broker's answer to a request that changes an instance.
type Answer struct {
	// Async reports whether the operation is asynchronous: poll for Operation.
	Async bool `json:"-"`
	osb.InstanceAnswer
}

// Catalog reads the catalog.
func (c *Client) Catalog(ctx context.Context) (*osb.Catalog, error) {
	var out osb.Catalog
	if _, err := c.call(ctx, http.MethodGet, "/v2/catalog", nil, nil, &out); err != nil {
		return nil, fmt.Errorf("read catalog: %w", err)
	}
	return &out, nil
}

// Provision orders an instance. Errors of the broker are *osb.Error.
func (c *Client) Provision(ctx context.Context, instanceID string, p Provisioning) (*Answer, error) {
	return c.change(ctx, "provision", http.MethodPut, instancePath(instanceID), url.Values{}, p)
}

// Update changes an instance. Errors of the broker are *osb.Error.
func (c *Client) Update(ctx context.Context, instanceID string, change Change) (*Answer, error) {
	return c.change(ctx, "update", http.MethodPatch, instancePath(instanceID), url.Values{}, change)
}

// Deprovision removes an instance. An instance that does not exist is an error for which IsGone is true.
func (c *Client) Deprovision(ctx context.Context, instanceID, serviceID, planID string) (*Answer, error) {
	query := url.Values{"service_id": {serviceID}, "plan_id": {planID}}
	return c.change(ctx, "deprovision", http.MethodDelete, instancePath(instanceID), query, nil)
}

func (c *Client) change(ctx context.Context, what, method, path string, query url.Values, in any) (*Answer, error) {
	query.Set("accepts_incomplete", "true")
	var out Answer
	response, err := c.call(ctx, method, path, query, in, &out)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	out.Async = response.StatusCode == http.StatusAccepted
	return &out, nil
}

// GetInstance returns an instance. If it does not exist, the error is an *osb.Error with status 404.
func (c *Client) GetInstance(ctx context.Context, instanceID string) (*osb.Instance, error) {
	var out osb.Instance
	if _, err := c.call(ctx, http.MethodGet, instancePath(instanceID), nil, nil, &out); err != nil {
		return nil, fmt.Errorf("get instance: %w", err)
	}
	return &out, nil
}

// LastOperation returns the state of an operation; an empty operation means the newest. RetryAfter is zero if the broker does not send
// it.
func (c *Client) LastOperation(ctx context.Context, instanceID, operation string) (*osb.LastOperation, error) {
	query := url.Values{}
	if operation != "" {
		query.Set("operation", operation)
	}
	var out osb.LastOperation
	response, err := c.call(ctx, http.MethodGet, instancePath(instanceID)+"/last_operation", query, nil, &out)
	if err != nil {
		return nil, fmt.Errorf("last operation: %w", err)
	}
	out.RetryAfter = retryAfter(response)
	return &out, nil
}

// IsGone reports whether an error means that the instance does not exist any more (410).
func IsGone(err error) bool { return hasStatus(err, http.StatusGone) }

// IsNotFound reports whether an error means that the instance or operation is unknown (404).
func IsNotFound(err error) bool { return hasStatus(err, http.StatusNotFound) }

func hasStatus(err error, status int) bool {
	e, ok := errors.AsType[*osb.Error](err)
	return ok && e.Status == status
}

func instancePath(id string) string { return "/v2/service_instances/" + url.PathEscape(id) }

// call sends a request and decodes a successful answer into out. Any other answer becomes an *osb.Error.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, in, out any) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("encode request: %w", err)
		}
		body = bytes.NewReader(raw)
	}
	address := c.base + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return nil, fmt.Errorf("build request: %w", err)
	}
	c.setHeaders(request, in != nil)
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	switch {
	case response.StatusCode >= http.StatusBadRequest:
		return nil, answerError(response, raw)
	case response.StatusCode >= http.StatusMultipleChoices:
		return nil, fmt.Errorf("%s answers with a redirect to %q, which is not followed; use that address if it is right",
			c.base, response.Header.Get("Location"))
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return nil, fmt.Errorf("decode answer with status %d: %w", response.StatusCode, err)
	}
	return response, nil
}

func (c *Client) setHeaders(request *http.Request, hasBody bool) {
	request.Header.Set(osb.HeaderVersion, c.cfg.Version)
	request.Header.Set("Accept", "application/json")
	if c.cfg.UserAgent != "" {
		request.Header.Set("User-Agent", c.cfg.UserAgent)
	}
	if hasBody {
		request.Header.Set("Content-Type", "application/json")
	}
	switch {
	case c.cfg.Token != "":
		request.Header.Set("Authorization", "Bearer "+c.cfg.Token)
	case c.cfg.User != "":
		request.SetBasicAuth(c.cfg.User, c.cfg.Password)
	}
	if id := c.cfg.OriginatingIdentity; id != nil {
		request.Header.Set(osb.HeaderOriginatingIdentity, osb.FormatOriginatingIdentity(*id))
	}
}

func answerError(response *http.Response, raw []byte) *osb.Error {
	var body osb.ErrorAnswer
	// A proxy may send an answer that is not JSON. The error then contains only the status.
	_ = json.Unmarshal(raw, &body)
	if body.Description == "" {
		body.Description = http.StatusText(response.StatusCode)
	}
	return &osb.Error{
		Status: response.StatusCode, Code: body.Code, Description: body.Description, InstanceUsable: body.InstanceUsable,
		UpdateRepeatable: body.UpdateRepeatable, RetryAfter: retryAfter(response),
	}
}

// retryAfter parses whole seconds. It ignores a date, which this API does not use.
func retryAfter(response *http.Response) time.Duration {
	n, err := strconv.Atoi(response.Header.Get("Retry-After"))
	if err != nil || n < 0 || n > 24*60*60 {
		return 0
	}
	return time.Duration(n) * time.Second
}
