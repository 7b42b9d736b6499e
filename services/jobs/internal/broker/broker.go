// Package broker is a client of the broker's operator routes and OSB API for the jobs.
package broker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	brokerapi "github.com/kyma-project/keb/libs/api/broker"
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/osb/osbclient"
)

// The errors of a request for an instance with nothing left to do.
var (
	// ErrGone means that the instance does not exist.
	ErrGone = errors.New("the instance is gone")
	// ErrConflict means that the instance is in a wrong state, or that an operation is in progress.
	ErrConflict = errors.New("the state of the instance does not permit this")
)

// Config is the connection to the broker. It uses tokens of TokenURL if that is set, otherwise User and Password.
type Config struct {
	// URL is the base URL of the broker, for example http://127.0.0.1:8080.
	URL            string
	User, Password string

	TokenURL, ClientID, ClientSecret string
	Scopes                           []string

	// UserAgent is the user agent of a deprovisioning; the broker stores it with the operation (docs/contracts/broker.md#requests).
	UserAgent string
	// Timeout is the timeout of one request.
	Timeout time.Duration
	// PageSize is the number of instances in one page; default 100, which is the broker's maximum
	// (docs/contracts/broker.md#list-of-runtimes).
	PageSize int
	// Retry is the policy for temporary errors.
	Retry extclient.Retry
	// PollEvery is the interval between two checks of an operation unless the broker requests another one; default 2 s.
	PollEvery time.Duration
	// PollAtMost limits the interval that the broker requests; default none.
	PollAtMost time.Duration
	// Transport is the transport to the broker; default that of the dependencies, which is also used for TokenURL.
	Transport http.RoundTripper
}

// Client calls one broker. It is safe for concurrent use.
type Client struct {
	cfg Config
	api *extclient.Client
	osb *osbclient.Client
}

// New creates a client. For an invalid configuration it returns an error with the name of the field. It sends no request.
func New(cfg Config, deps extclient.Deps) (*Client, error) {
	if cfg.PageSize <= 0 {
		cfg.PageSize = 100
	}
	var tokens extclient.TokenSource
	user, password := cfg.User, cfg.Password
	if cfg.TokenURL != "" {
		if err := extclient.CheckURL("token URL of the broker", cfg.TokenURL); err != nil {
			return nil, err
		}
		tokens = extclient.ClientCredentials(extclient.TokenConfig{
			URL: cfg.TokenURL, ClientID: cfg.ClientID, ClientSecret: cfg.ClientSecret, Scopes: cfg.Scopes,
		}, deps)
		user, password = "", ""
	}
	if cfg.Transport != nil {
		deps.Transport = cfg.Transport
	}
	api, err := extclient.New(extclient.Config{
		System: "broker", BaseURL: cfg.URL, Timeout: cfg.Timeout, Username: user, Password: password, MaxAnswer: 64 << 20,
	}, tokens, deps)
	if err != nil {
		return nil, err
	}
	transport := deps.Transport
	if tokens != nil {
		transport = &bearer{tokens: tokens, next: transport}
	}
	platform, err := osbclient.New(osbclient.Config{
		BaseURL: strings.TrimRight(cfg.URL, "/") + "/oauth", User: user, Password: password, UserAgent: cfg.UserAgent,
		Timeout: cfg.Timeout, PollEvery: cfg.PollEvery, PollAtMost: cfg.PollAtMost,
	}, &http.Client{Transport: transport})
	if err != nil {
		return nil, err
	}
	return &Client{cfg: cfg, api: api, osb: platform}, nil
}

// bearer adds a token to requests without a body, so that a rejected request can be repeated with a new token.
type bearer struct {
	tokens extclient.TokenSource
	next   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	next := b.next
	if next == nil {
		next = http.DefaultTransport
	}
	for attempt := 0; ; attempt++ {
		token, err := b.tokens.Token(r.Context())
		if err != nil {
			return nil, err
		}
		sent := r.Clone(r.Context())
		sent.Header.Set("Authorization", "Bearer "+token)
		response, err := next.RoundTrip(sent)
		if err != nil || response.StatusCode != http.StatusUnauthorized || attempt > 0 {
			return response, err
		}
		b.tokens.Forget(token)
		_ = response.Body.Close() // the body is ignored
	}
}

// ID returns the id of a runtime's instance.
func ID(r brokerapi.Runtime) string { return r.InstanceID }

// maxPasses limits the number of times that a changing list is read; the next run of the job finds the other instances.
const maxPasses = 20

// Filter selects instances. Empty fields select all instances.
type Filter struct {
	States             []brokerapi.RuntimeState
	Plans, Subaccounts []string
	Instance           string
}

func (f Filter) query() url.Values {
	q := url.Values{"op_detail": {"last"}}
	for name, values := range map[string][]string{"plan": f.Plans, "subaccount": f.Subaccounts} {
		if len(values) > 0 {
			q[name] = values
		}
	}
	for _, state := range f.States {
		q.Add("state", string(state))
	}
	if f.Instance != "" {
		q.Set("instance_id", f.Instance)
	}
	return q
}

// Runtimes returns instances. The broker numbers its pages. If an instance leaves the list during a reading, the others move forward, and
// one of them may move to a page that was already read. So Runtimes repeats the reading of several pages until it finds no new
// instance. It finds every instance that stays in the list.
func (c *Client) Runtimes(ctx context.Context, f Filter) ([]brokerapi.Runtime, error) {
	var found []brokerapi.Runtime
	seen := map[string]bool{}
	for range maxPasses {
		before := len(found)
		pages, err := c.eachPage(ctx, f.query(), func(r brokerapi.Runtime) {
			if !seen[r.InstanceID] {
				seen[r.InstanceID] = true
				found = append(found, r)
			}
		})
		if err != nil {
			return nil, fmt.Errorf("list instances: %w", err)
		}
		if pages <= 1 || len(found) == before {
			break
		}
	}
	return found, nil
}

func (c *Client) eachPage(ctx context.Context, query url.Values, do func(brokerapi.Runtime)) (pages int, err error) {
	query.Set("page_size", strconv.Itoa(c.cfg.PageSize))
	for page := 1; ; page++ {
		query.Set("page", strconv.Itoa(page))
		var list brokerapi.RuntimeList
		err := c.do(ctx, extclient.Request{Method: http.MethodGet, Route: "/runtimes", Query: query, Accept: []int{http.StatusOK}}, &list)
		if err != nil {
			return page, err
		}
		for _, r := range list.Data {
			do(r)
		}
		if len(list.Data) == 0 || page*c.cfg.PageSize >= list.TotalCount {
			return page, nil
		}
	}
}

// RetriggerDeprovisioning runs the skipped steps of a completed deprovisioning again and returns the operation. If another client was faster,
// it returns the running operation. In a dry run the broker only checks, and the operation is empty unless one is running. The error is
// ErrGone or ErrConflict if there is nothing left to do.
func (c *Client) RetriggerDeprovisioning(ctx context.Context, instanceID string, dryRun bool) (string, error) {
	req := extclient.Request{
		Method: http.MethodPost, Route: "/runtimes/{instance_id}/deprovision-retrigger", Params: []string{instanceID},
		Accept: []int{http.StatusAccepted},
	}
	if dryRun {
		req.Query = url.Values{"dry_run": {"true"}}
		req.Accept = []int{http.StatusOK}
	}
	var out brokerapi.Retriggered
	if err := c.do(ctx, req, &out); err != nil {
		return "", settled(err)
	}
	return out.Operation, nil
}

// Expire expires an instance (docs/contracts/broker.md#suspension-and-expiry). It returns the operation that suspends the instance, if one is
// needed. The error is ErrGone if there is nothing left to do.
func (c *Client) Expire(ctx context.Context, instanceID string) (string, error) {
	var out brokerapi.Expired
	err := c.do(ctx, extclient.Request{
		Method: http.MethodPut, Route: "/expire/service_instance/{instance_id}", Params: []string{instanceID},
		Accept: []int{http.StatusAccepted, http.StatusOK},
	}, &out)
	if err != nil {
		return "", settled(err)
	}
	return out.Operation, nil
}

func (c *Client) do(ctx context.Context, req extclient.Request, into any) error {
	return c.cfg.Retry.Do(ctx, func(ctx context.Context) error { return c.api.Do(ctx, req, into) })
}

// settled converts an answer that leaves nothing to do into an error of this package.
func settled(err error) error {
	switch {
	case extclient.IsStatus(err, http.StatusNotFound, http.StatusGone):
		return fmt.Errorf("%w: %w", ErrGone, err)
	case extclient.IsStatus(err, http.StatusConflict):
		return fmt.Errorf("%w: %w", ErrConflict, err)
	}
	return err
}

// Deprovision requests the deprovisioning of an instance through the OSB API, and returns the operation. The error is ErrGone if the
// instance does not exist.
func (c *Client) Deprovision(ctx context.Context, r brokerapi.Runtime) (string, error) {
	var answer *osbclient.Answer
	err := c.cfg.Retry.Do(ctx, func(ctx context.Context) (err error) {
		answer, err = c.osb.Deprovision(ctx, r.InstanceID, r.ServiceID, r.ServicePlanID)
		return classify(err)
	})
	switch {
	case osbclient.IsGone(err), osbclient.IsNotFound(err):
		return "", fmt.Errorf("%w: %w", ErrGone, err)
	case err != nil:
		return "", err
	}
	return answer.Operation, nil
}

// Await waits for the end of an operation. It returns an error if the operation fails or does not end in time.
func (c *Client) Await(ctx context.Context, instanceID, operation string, atMost time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	last, err := c.osb.Poll(limited, instanceID, operation, nil)
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && limited.Err() != nil:
		return fmt.Errorf("operation %s did not end within %s and continues", operation, atMost)
	case err != nil:
		return fmt.Errorf("follow operation %s: %w", operation, classify(err))
	case last.State != osb.StateSucceeded:
		return fmt.Errorf("operation %s failed: %s", operation, last.Description)
	}
	return nil
}

// callError is an error of the OSB client that reports whether it is temporary.
type callError struct {
	err       error
	temporary bool
}

func (e *callError) Error() string   { return e.err.Error() }
func (e *callError) Unwrap() error   { return e.err }
func (e *callError) Temporary() bool { return e.temporary }

// classify marks temporary errors, and removes the URL that net/http adds to its errors.
func classify(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*osb.Error](err); ok {
		return &callError{err: err, temporary: e.Status >= http.StatusInternalServerError || e.Status == http.StatusTooManyRequests}
	}
	if call, ok := errors.AsType[*url.Error](err); ok {
		err = fmt.Errorf("broker: %w", call.Err)
	}
	return &callError{err: err, temporary: !errors.Is(err, context.Canceled)}
}
