package extclient

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sony/gobreaker/v2"
	"go.opentelemetry.io/otel/propagation"

	"github.com/kyma-project/keb/libs/mask"
)

// Config describes an external system and the limits of its calls.
type Config struct {
	// System is the name of the system in errors and metrics, for example "avs".
	System string
	// BaseURL is the prefix of every route.
	BaseURL string
	// Timeout is the timeout of one request; default 30 s. A token request and a repeated request have their own.
	Timeout time.Duration
	// MaxAnswer is the maximum size of an answer in bytes; default 8 MiB. A longer one is an AnswerError.
	MaxAnswer int64
	// Username and Password are for basic authentication. An empty Username disables it.
	Username string
	Password string
	// BreakAfter is the number of consecutive failures that open the breaker; default 10.
	BreakAfter uint32
	// BreakFor is how long the breaker stays open before it permits one call; default 5 s.
	BreakFor time.Duration
}

// Deps are the optional dependencies of a client.
type Deps struct {
	// Registerer registers the metrics keb_external_*. Clients may share it.
	Registerer prometheus.Registerer
	// Transport replaces http.DefaultTransport.
	Transport http.RoundTripper
	// Now replaces time.Now.
	Now func() time.Time
	// Log receives a message when a breaker opens or closes.
	Log *slog.Logger
}

// Clock returns Now, or time.Now without it.
func (d Deps) Clock() func() time.Time {
	if d.Now == nil {
		return time.Now
	}
	return d.Now
}

// Client calls one external system. It is safe for concurrent use.
type Client struct {
	cfg     Config
	base    string
	http    *http.Client
	tokens  TokenSource
	metrics *metrics
	breaker *gobreaker.CircuitBreaker[*answer]
	// lastFailure is the text of the last failure that the breaker counted.
	lastFailure atomic.Value
}

// New creates a client. Tokens may be nil. For an invalid configuration it returns an error with the name of the field.
func New(cfg Config, tokens TokenSource, deps Deps) (*Client, error) {
	if err := CheckURL("base URL of "+cfg.System, cfg.BaseURL); err != nil {
		return nil, err
	}
	if cfg.System == "" {
		return nil, errors.New("system is empty: want the name of the external system")
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 30 * time.Second
	}
	if cfg.MaxAnswer <= 0 {
		cfg.MaxAnswer = 8 << 20
	}
	if cfg.BreakAfter == 0 {
		cfg.BreakAfter = 10
	}
	if cfg.BreakFor <= 0 {
		cfg.BreakFor = 5 * time.Second
	}
	m, err := newMetrics(deps.Registerer)
	if err != nil {
		return nil, fmt.Errorf("metrics of %s: %w", cfg.System, err)
	}
	log := deps.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c := &Client{
		cfg: cfg, base: strings.TrimRight(cfg.BaseURL, "/"), tokens: tokens, metrics: m,
		http: &http.Client{Transport: deps.Transport, CheckRedirect: noRedirect},
	}
	m.open.WithLabelValues(cfg.System) // the metric exists from the start
	c.breaker = gobreaker.NewCircuitBreaker[*answer](gobreaker.Settings{
		Name: cfg.System, Timeout: cfg.BreakFor,
		ReadyToTrip: func(n gobreaker.Counts) bool { return n.ConsecutiveFailures >= cfg.BreakAfter },
		// A cancelled call does not indicate a failure of the system.
		IsExcluded: func(err error) bool { return errors.Is(err, context.Canceled) },
		OnStateChange: func(_ string, _, to gobreaker.State) {
			open := 0.0
			switch to {
			case gobreaker.StateOpen:
				open = 1
				log.Warn("external system keeps failing, calls are paused", "system", cfg.System, "pause", cfg.BreakFor)
			case gobreaker.StateClosed:
				log.Info("external system works again", "system", cfg.System)
			}
			m.open.WithLabelValues(cfg.System).Set(open)
		},
	})
	return c, nil
}

// CheckURL returns an error with the name what, unless text is an absolute http or https URL.
func CheckURL(what, text string) error {
	if text == "" {
		return fmt.Errorf("%s is not set: want an absolute http or https URL", what)
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return fmt.Errorf("%s: want an absolute http or https URL, got %q", what, redactURL(u, text))
	}
	return nil
}

func redactURL(u *url.URL, text string) string {
	if u == nil {
		return Sanitize(text)
	}
	return u.Redacted()
}

// A redirect from an API indicates a wrong configuration, and following it could send credentials to another host.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Request describes a call.
type Request struct {
	Method string
	// Route is the path below the base URL, with names in braces. Errors contain it.
	Route string
	// Params replace the braces of Route in order, escaped.
	Params []string
	Query  url.Values
	Header http.Header
	// Body is sent as JSON unless it is nil. Form takes precedence over Body.
	Body any
	Form url.Values
	// Accept lists the successful statuses; default 200, 201, 202 and 204.
	Accept []int
	// Link is an absolute URL from an earlier answer of the system. It replaces the base URL, route and query; Route is then only the name of
	// the call. A scheme or host other than that of the base URL is an error, because the request contains credentials.
	Link string
	// Answered receives the status and the header of an accepted answer. It may be nil.
	Answered func(status int, header http.Header)
	// Sensitive marks a call with secrets: an error contains no text of the system's answer.
	Sensitive bool

	// Raw returns the answer unchanged: into must then be a *[]byte, and the answer need not be JSON.
	Raw bool

	// name is the name of the call's span if the route is ambiguous: all GraphQL calls have one route.
	name string
	// contentType is the type of a JSON body; empty means application/json.
	contentType string
	// sentSecrets receives the secrets of the request, which the answer may repeat. It may be nil.
	sentSecrets *[]string
}

// template returns the name for all calls of the same kind.
func (r *Request) template() string {
	if r.name != "" {
		return r.name
	}
	return r.Route
}

type answer struct {
	status int
	header http.Header
	body   []byte
	// token is the token of the call, if any.
	token string
}

// Do sends the request and decodes the JSON answer into the value that into points to, unless into is nil. An answer without a body
// leaves into unchanged.
func (c *Client) Do(ctx context.Context, req Request, into any) error {
	payload, contentType, err := encode(req)
	if err != nil {
		return &CallError{System: c.cfg.System, Method: req.Method, Route: req.Route, Err: err, permanent: true}
	}
	target, err := c.target(req)
	if err != nil {
		return &CallError{System: c.cfg.System, Method: req.Method, Route: req.Route, Err: err, permanent: true}
	}
	a, err := c.authorized(ctx, req, target, payload, contentType)
	if err != nil {
		return &CallError{System: c.cfg.System, Method: req.Method, Route: req.Route, Err: err}
	}
	if !accepted(req.Accept, a.status) {
		e := &StatusError{
			System: c.cfg.System, Method: req.Method, Route: req.Route, Status: a.status, RetryAfter: RetryAfter(a.header), body: a.body,
		}
		if !req.Sensitive {
			e.Message = message(a.body, c.sentSecrets(req, a.token))
		}
		return e
	}
	if req.Answered != nil {
		req.Answered(a.status, a.header)
	}
	if raw, ok := into.(*[]byte); ok && req.Raw {
		*raw = a.body
		return nil
	}
	if into == nil || len(bytes.TrimSpace(a.body)) == 0 {
		return nil
	}
	if err := json.Unmarshal(a.body, into); err != nil {
		return &AnswerError{System: c.cfg.System, Method: req.Method, Route: req.Route, Err: shape(err)}
	}
	if req.sentSecrets != nil {
		*req.sentSecrets = c.sentSecrets(req, a.token)
	}
	return nil
}

// authorized sends the request, and repeats it with a new token if the first token is rejected.
func (c *Client) authorized(ctx context.Context, req Request, target string, payload []byte, contentType string) (*answer, error) {
	for attempt := 0; ; attempt++ {
		token := ""
		if c.tokens != nil {
			var err error
			if token, err = c.tokens.Token(ctx); err != nil {
				return nil, err
			}
		}
		a, err := c.guarded(ctx, req, target, payload, contentType, token, attempt)
		if err != nil || a.status != http.StatusUnauthorized || token == "" {
			return a, err
		}
		c.tokens.Forget(token)
		if attempt > 0 {
			return a, nil
		}
	}
}

// errFailing makes the breaker count an answer that indicates a failure of the system.
var errFailing = errors.New("failing")

func (c *Client) guarded(ctx context.Context, req Request, target string, payload []byte, contentType, token string, attempt int) (*answer, error) {
	var got *answer
	_, err := c.breaker.Execute(func() (*answer, error) {
		a, err := c.send(ctx, req, target, payload, contentType, token, attempt)
		if err != nil {
			c.lastFailure.Store("no answer")
			return nil, err
		}
		got = a
		if a.status >= http.StatusInternalServerError {
			c.lastFailure.Store("status " + strconv.Itoa(a.status))
			return nil, errFailing
		}
		return a, nil
	})
	switch {
	case got != nil:
		return got, nil
	case errors.Is(err, gobreaker.ErrOpenState), errors.Is(err, gobreaker.ErrTooManyRequests):
		c.metrics.requests.WithLabelValues(c.cfg.System, "open").Inc()
		paused(ctx, c.cfg.System)
		// The error contains the reason why the breaker is open.
		return nil, fmt.Errorf("%w (last failure: %v)", ErrOpen, c.lastFailure.Load())
	}
	return nil, err
}

// limited returns the context of one call. A call that may change something is completed, within its timeout, when the command of the step
// is cancelled meanwhile (worker.ErrCancelled): its answer may hold the id of an object that the system has just created.
func (c *Client) limited(ctx context.Context, method string) (context.Context, context.CancelFunc) {
	if method == http.MethodGet || method == http.MethodHead || ctx.Err() != nil {
		return context.WithTimeout(ctx, c.cfg.Timeout)
	}
	until := time.Now().Add(c.cfg.Timeout)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(until) {
		until = deadline
	}
	call, cancel := context.WithDeadline(context.WithoutCancel(ctx), until)
	stop := context.AfterFunc(ctx, func() {
		var cause interface{ Cancelled() bool }
		if errors.Is(ctx.Err(), context.Canceled) && (!errors.As(context.Cause(ctx), &cause) || !cause.Cancelled()) {
			cancel()
		}
	})
	return call, func() { stop(); cancel() }
}

func (c *Client) send(ctx context.Context, req Request, target string, payload []byte, contentType, token string, attempt int) (got *answer, err error) {
	ctx, cancel := c.limited(ctx, req.Method)
	defer cancel()
	var body io.Reader
	if payload != nil {
		body = bytes.NewReader(payload)
	}
	r, err := http.NewRequestWithContext(ctx, req.Method, target, body)
	if err != nil {
		return nil, err
	}
	for name, values := range req.Header {
		r.Header[http.CanonicalHeaderKey(name)] = values
	}
	if !req.Raw {
		r.Header.Set("Accept", "application/json")
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	switch {
	case token != "":
		r.Header.Set("Authorization", "Bearer "+token)
	case c.cfg.Username != "":
		r.SetBasicAuth(c.cfg.Username, c.cfg.Password)
	}
	ctx, span := startCall(ctx, c.cfg.System, req.Method, req.template(), r.URL, attempt)
	status := 0
	defer func() { span.answered(status, err) }()
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(r.Header))

	start := time.Now()
	resp, err := c.http.Do(r)
	if err != nil {
		c.metrics.answered(c.cfg.System, 0, time.Since(start))
		return nil, Unanswered(err)
	}
	defer resp.Body.Close()
	status = resp.StatusCode
	data, err := io.ReadAll(io.LimitReader(resp.Body, c.cfg.MaxAnswer+1))
	if err != nil {
		err = Unanswered(err)
	}
	if err == nil && int64(len(data)) > c.cfg.MaxAnswer {
		err = fmt.Errorf("answer is longer than %d bytes", c.cfg.MaxAnswer)
	}
	if err != nil {
		c.metrics.answered(c.cfg.System, 0, time.Since(start))
		return nil, fmt.Errorf("read answer: %w", err)
	}
	c.metrics.answered(c.cfg.System, resp.StatusCode, time.Since(start))
	return &answer{status: resp.StatusCode, header: resp.Header, body: data, token: token}, nil
}

// sentSecrets returns the secrets of a request, which the system may repeat in its answer.
func (c *Client) sentSecrets(req Request, token string) []string {
	secrets := []string{token}
	if c.cfg.Username != "" {
		secrets = append(secrets, c.cfg.Password, base64.StdEncoding.EncodeToString([]byte(c.cfg.Username+":"+c.cfg.Password)))
	}
	for name, values := range req.Header {
		switch {
		case strings.EqualFold(name, "Authorization"):
			for _, value := range values {
				_, given, _ := strings.Cut(value, " ")
				secrets = append(secrets, given)
			}
		case mask.IsSecret(name):
			secrets = append(secrets, values...)
		}
	}
	return append(secrets, req.Form.Get("client_secret"), req.Form.Get("password"))
}

func encode(req Request) (payload []byte, contentType string, err error) {
	switch {
	case req.Form != nil:
		return []byte(req.Form.Encode()), "application/x-www-form-urlencoded", nil
	case req.Body != nil:
		payload, err = json.Marshal(req.Body)
		if err != nil {
			return nil, "", fmt.Errorf("encode body: %w", err)
		}
		return payload, cmp.Or(req.contentType, "application/json"), nil
	}
	return nil, "", nil
}

// target replaces the route's braces. It rejects a value that would lead to another path ("", "." or "..").
func (c *Client) target(req Request) (string, error) {
	if req.Link != "" {
		return c.linked(req.Link)
	}
	var path strings.Builder
	rest, params := req.Route, req.Params
	for {
		before, after, ok := strings.Cut(rest, "{")
		path.WriteString(before)
		if !ok {
			break
		}
		name, tail, ok := strings.Cut(after, "}")
		if !ok || len(params) == 0 {
			return "", errors.New("the route and the number of parameters do not match")
		}
		if params[0] == "" || params[0] == "." || params[0] == ".." {
			return "", fmt.Errorf("%s: %q cannot be part of a path", name, params[0])
		}
		path.WriteString(url.PathEscape(params[0]))
		rest, params = tail, params[1:]
	}
	if len(params) > 0 {
		return "", errors.New("the route and the number of parameters do not match")
	}
	target := c.base + path.String()
	if len(req.Query) > 0 {
		target += "?" + req.Query.Encode()
	}
	return target, nil
}

// linked validates a URL of an answer: it must belong to the system.
func (c *Client) linked(link string) (string, error) {
	base, err := url.Parse(c.base)
	if err != nil {
		return "", errors.New("the base URL is invalid")
	}
	u, err := url.Parse(link)
	if err != nil || u.Scheme != base.Scheme || u.Host != base.Host || u.User != nil {
		return "", errors.New("the system returned a URL that is not its own")
	}
	return u.String(), nil
}

// RetryAfter returns the delay in seconds of the header with that name; 0 if it is missing or has another format.
func RetryAfter(header http.Header) time.Duration {
	seconds, err := strconv.Atoi(strings.TrimSpace(header.Get("Retry-After")))
	if err != nil || seconds < 0 || seconds > 24*60*60 {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

func accepted(statuses []int, status int) bool {
	if len(statuses) == 0 {
		statuses = []int{http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusNoContent}
	}
	return slices.Contains(statuses, status)
}

// shape removes the value from a decoding error and keeps the position.
func shape(err error) error {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s is not of the expected type %s", fieldName(e.Field), e.Type)
	}
	return errors.New("not the expected JSON")
}

func fieldName(field string) string {
	if field == "" {
		return "the document"
	}
	return field
}
