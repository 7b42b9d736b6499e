// Package broker is the client of the broker's operator routes, and of its OSB API, as the jobs use them.
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
	"github.com/kyma-project/keb/services/jobs/internal/retry"
)

// Errors of the broker that say that there is nothing to do any more.
var (
	// ErrGone: the instance does not exist, or not any more.
	ErrGone = errors.New("the instance is gone")
	// ErrConflict: the instance is not in a state for this, or an operation is in progress.
	ErrConflict = errors.New("the instance is not in a state for this")
)

// Config says which broker to call, and as whom: with a token of TokenURL if that is set, else with User and Password.
type Config struct {
	// URL is the base URL of the broker, for example http://127.0.0.1:8080.
	URL            string
	User, Password string

	TokenURL, ClientID, ClientSecret string
	Scopes                           []string

	// UserAgent is what a deprovisioning is asked for as; the broker stores it with the operation (docs/contracts/broker.md#requests).
	UserAgent string
	// Timeout is the deadline of one request.
	Timeout time.Duration
	// PageSize is how many instances are read at once; default 100, which is the most the broker gives
	// (docs/contracts/broker.md#list-of-runtimes).
	PageSize int
	// Retry is for calls that may work later.
	Retry retry.Policy
	// PollEvery is how often a followed operation is looked at unless the broker says otherwise; default 2 s.
	PollEvery time.Duration
	// PollAtMost caps what the broker says; default none.
	PollAtMost time.Duration
	// Transport goes to the broker; default that of the dependencies, which goes to TokenURL.
	Transport http.RoundTripper
}

// Client calls one broker. It is safe for use by several goroutines.
type Client struct {
	cfg Config
	api *extclient.Client
	osb *osbclient.Client
}

// New builds a client. It returns an error that names the field for a configuration that cannot work; it calls nobody.
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

// bearer adds a token to requests that have no body, so that one that is refused can be sent again with a new token.
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
		_ = response.Body.Close() // it is not looked at
	}
}

// ID is the id of a runtime's instance.
func ID(r brokerapi.Runtime) string { return r.InstanceID }

// maxPasses bounds how often a list that does not come to rest is read; the next run of the job finds the others.
const maxPasses = 20

// Filter selects instances. Empty fields select all.
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

// Runtimes lists instances. The pages are numbers, so while they are read an instance that leaves the list moves the others one
// place forward, and one of them over the border of a page that was read already. Therefore a list of more than one page is read
// again until a reading finds nothing new; whoever is in the list all the time is found.
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

// RetriggerDeprovisioning lets a deprovisioning that has ended without some of its steps run again with those steps, and returns
// its operation, which is the running one if somebody else was faster. In a dry run the broker only checks, and the operation is
// empty unless one is running. The error is ErrGone or ErrConflict if there is nothing to do any more.
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

// Expire lets an instance expire (docs/contracts/broker.md#suspension-and-expiry), and returns the operation that suspends it, if
// one was needed. The error is ErrGone if there is nothing to do any more.
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
	return retry.Do(ctx, c.cfg.Retry, func(ctx context.Context) error { return c.api.Do(ctx, req, into) })
}

// settled turns answers that leave nothing to do into the errors of this package.
func settled(err error) error {
	switch {
	case extclient.IsStatus(err, http.StatusNotFound, http.StatusGone):
		return fmt.Errorf("%w: %w", ErrGone, err)
	case extclient.IsStatus(err, http.StatusConflict):
		return fmt.Errorf("%w: %w", ErrConflict, err)
	}
	return err
}

// Deprovision asks for an instance to be taken away through the OSB API, and returns the operation. The error is ErrGone if it is
// gone already.
func (c *Client) Deprovision(ctx context.Context, r brokerapi.Runtime) (string, error) {
	var answer *osbclient.Answer
	err := retry.Do(ctx, c.cfg.Retry, func(ctx context.Context) (err error) {
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

// Await follows an operation until it has ended. It returns an error when the operation fails, and when it has not ended within the
// time.
func (c *Client) Await(ctx context.Context, instanceID, operation string, atMost time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	last, err := c.osb.Poll(limited, instanceID, operation, nil)
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && limited.Err() != nil:
		return fmt.Errorf("operation %s has not ended within %s; it goes on", operation, atMost)
	case err != nil:
		return fmt.Errorf("follow operation %s: %w", operation, classify(err))
	case last.State != osb.StateSucceeded:
		return fmt.Errorf("operation %s has failed: %s", operation, last.Description)
	}
	return nil
}

// callError is an error of the OSB client that says whether the call may work later.
type callError struct {
	err       error
	temporary bool
}

func (e *callError) Error() string   { return e.err.Error() }
func (e *callError) Unwrap() error   { return e.err }
func (e *callError) Temporary() bool { return e.temporary }

// classify tells what may work later, and drops the URL that net/http puts into its errors.
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
