package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/api/broker"
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/osb/osbclient"
)

// errSettled means that nothing is left to do for an instance.
var errSettled = errors.New("nothing is left to do for the instance")

const (
	// apiVersion is the version of the OSB API in the requests of jobs (docs/contracts/cis.md).
	apiVersion = "2.14"
	// pollAtMost limits the interval that the broker requests (docs/contracts/broker.md#jobs).
	pollAtMost = 5 * time.Second
)

// client calls the operator routes and the OSB API of the broker. It is safe for concurrent use.
type client struct {
	retry extclient.Retry
	api   *extclient.Client
	osb   *osbclient.Client
}

// newClient creates a client. agent is the user agent of a deprovisioning; the broker stores it with the operation
// (docs/contracts/broker.md#requests). Tokens are not requested through transport, which is that to the broker.
func newClient(cfg Config, agent string, retry extclient.Retry, transport http.RoundTripper, deps extclient.Deps) (*client, error) {
	var tokens extclient.TokenSource
	user, password := cfg.User, cfg.Password
	if cfg.BrokerTokenURL != "" {
		tokens = extclient.ClientCredentials(extclient.TokenConfig{
			URL: cfg.BrokerTokenURL, ClientID: cfg.BrokerClientID, ClientSecret: cfg.BrokerClientSecret, Scopes: cfg.BrokerScopes,
		}, deps)
		user, password = "", ""
	}
	deps.Transport = transport
	api, err := extclient.New(extclient.Config{
		System: "broker", BaseURL: cfg.BrokerURL, Timeout: cfg.RequestTimeout, Username: user, Password: password, MaxAnswer: 64 << 20,
	}, tokens, deps)
	if err != nil {
		return nil, err
	}
	if tokens != nil {
		transport = &bearer{tokens: tokens, next: transport}
	}
	platform, err := osbclient.New(osbclient.Config{
		BaseURL: strings.TrimRight(cfg.BrokerURL, "/") + "/oauth", User: user, Password: password, UserAgent: agent,
		Version: apiVersion, Timeout: cfg.RequestTimeout, PollEvery: cfg.PollEvery, PollAtMost: pollAtMost,
	}, &http.Client{Transport: transport})
	return &client{retry: retry, api: api, osb: platform}, err
}

// bearer adds a token to requests without a body, so that a rejected request can be repeated with a new token.
type bearer struct {
	tokens extclient.TokenSource
	next   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	for attempt := 0; ; attempt++ {
		token, err := b.tokens.Token(r.Context())
		if err != nil {
			return nil, err
		}
		sent := r.Clone(r.Context())
		sent.Header.Set("Authorization", "Bearer "+token)
		response, err := b.next.RoundTrip(sent)
		if err != nil || response.StatusCode != http.StatusUnauthorized || attempt > 0 {
			return response, err
		}
		b.tokens.Forget(token)
		_ = response.Body.Close() // the body is ignored
	}
}

// runtimes returns the instances that a query with these states selects, each once.
func (c *client) runtimes(ctx context.Context, query url.Values, states ...broker.RuntimeState) ([]broker.Runtime, error) {
	query.Set("op_detail", "last")
	for _, state := range states {
		query.Add("state", string(state))
	}
	all, err := broker.ReadRuntimes(query, func(q url.Values) (part json.RawMessage, err error) {
		err = c.do(ctx, extclient.Request{Method: http.MethodGet, Route: "/runtimes", Query: q, Accept: []int{http.StatusOK}}, &part)
		return part, err
	}, nil)
	if err != nil {
		return nil, fmt.Errorf("list instances: %w", err)
	}
	found := make([]broker.Runtime, len(all))
	for i, one := range all {
		if err := json.Unmarshal(one, &found[i]); err != nil {
			return nil, fmt.Errorf("list instances: %w", err)
		}
	}
	return found, nil
}

// retrigger runs the steps that a deprovisioning did not complete again, and returns the operation. In a dry run the broker only checks, and
// the operation is empty unless one is running. The error is errSettled if the instance was removed, or if another client retriggered it, after
// it was listed.
func (c *client) retrigger(ctx context.Context, instanceID string, dryRun bool) (string, error) {
	req := extclient.Request{
		Method: http.MethodPost, Route: "/runtimes/{instance_id}/deprovision-retrigger", Params: []string{instanceID},
		Accept: []int{http.StatusAccepted},
	}
	if dryRun {
		req.Query = url.Values{"dry_run": {"true"}}
		req.Accept = []int{http.StatusOK}
	}
	var out broker.Retriggered
	err := c.do(ctx, req, &out)
	return out.Operation, settled(err, http.StatusNotFound, http.StatusGone, http.StatusConflict)
}

// expire expires an instance (docs/contracts/broker.md#suspension-and-expiry). It returns the operation that suspends the instance, if one is
// needed. The error is errSettled if the instance does not exist.
func (c *client) expire(ctx context.Context, instanceID string) (string, error) {
	var out broker.Expired
	err := c.do(ctx, extclient.Request{
		Method: http.MethodPut, Route: "/expire/service_instance/{instance_id}", Params: []string{instanceID},
		Accept: []int{http.StatusAccepted, http.StatusOK},
	}, &out)
	return out.Operation, settled(err, http.StatusNotFound, http.StatusGone)
}

func (c *client) do(ctx context.Context, req extclient.Request, into any) error {
	return c.retry.Do(ctx, func(ctx context.Context) error { return c.api.Do(ctx, req, into) })
}

// settled returns errSettled for an answer with one of the statuses.
func settled(err error, statuses ...int) error {
	if extclient.IsStatus(err, statuses...) {
		return errSettled
	}
	return err
}

// deprovision requests the deprovisioning of an instance through the OSB API, and returns the operation. The error is errSettled if the
// instance does not exist.
func (c *client) deprovision(ctx context.Context, i *broker.Runtime) (string, error) {
	var answer *osbclient.Answer
	err := c.retry.Do(ctx, func(ctx context.Context) (err error) {
		answer, err = c.osb.Deprovision(ctx, i.InstanceID, i.ServiceID, i.ServicePlanID)
		return classify(err)
	})
	switch {
	case osbclient.IsGone(err), osbclient.IsNotFound(err):
		return "", errSettled
	case err != nil:
		return "", err
	}
	return answer.Operation, nil
}

// await waits for the end of an operation. It returns an error if the operation fails or does not end in time.
func (c *client) await(ctx context.Context, instanceID, operation string, atMost time.Duration) error {
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
