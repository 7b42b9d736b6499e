package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/kyma-project/keb/libs/tlsfiles"
)

// ErrNotFound is returned when the requested object does not exist.
var ErrNotFound = errors.New("not found")

// requestTimeout limits the duration of a request, and maxAnswer the size of the answer in bytes.
const (
	requestTimeout = 15 * time.Second
	maxAnswer      = 64 << 20
)

// Client calls one orchestrator. It is safe for concurrent use.
type Client struct {
	base, token string
	http        *http.Client
	// header has more headers of requests.
	header http.Header
}

// New returns a client for an address, "host:port" or a URL. token is the access token; it may be empty if access control is off.
func New(address, token string) (*Client, error) {
	base, err := BaseURL(address)
	if err != nil {
		return nil, fmt.Errorf("operator API: %w", err)
	}
	return &Client{base: base, token: token, http: &http.Client{Timeout: requestTimeout, CheckRedirect: NoRedirect}}, nil
}

// Through sets the transport of the client, and returns the client.
func (c *Client) Through(transport http.RoundTripper) *Client {
	c.http.Transport = transport
	return c
}

// NoRedirect stops a client from following a redirect, which could send its credentials to another server.
func NoRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Redirected returns an error that explains what to do if the response is a redirect, and nil otherwise.
func Redirected(response *http.Response) error {
	if response.StatusCode < http.StatusMultipleChoices || response.StatusCode >= http.StatusBadRequest {
		return nil
	}
	return fmt.Errorf("%s redirects to %q; redirects are not followed, so use that address if it is correct",
		response.Request.URL.Host, response.Header.Get("Location"))
}

// BaseURL returns the URL of an address, which is "host:port" or a URL.
func BaseURL(address string) (string, error) {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	u, err := url.Parse(address)
	if err == nil && u.User != nil {
		// Credentials in the address would be shown with every error.
		return "", fmt.Errorf("the address of %q must not contain a user and password; see KEB_TOKEN, KEB_OSB_USER and KEB_OSB_PASSWORD", u.Host)
	}
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("%q is not an address; write host:port or a URL", address)
	}
	return strings.TrimRight(address, "/"), nil
}

// Filter selects operations. Empty fields select all. State, Type and Plan may contain several values, separated by commas. Page starts at
// 1.
type Filter struct {
	State, Type, Plan, Instance, GlobalAccount, Region string
	// Search is the beginning of an ID. Step, Worker, System and Waiting select only operations that have not ended.
	Search, Step, Worker, System, Waiting, Orchestration string
	// Sort is newest, oldest, duration, attempts or state; empty means newest.
	Sort string
	// Error is the key of a group of errors, Hold the ID of a hold, and LimitName the limit that commands wait for.
	Error, Hold, LimitName string
	// Filter is a further condition in the filter language; see FilterFields.
	Filter string
	// Since and Until limit the time of the request, FinishedSince and FinishedUntil that of the end.
	Since, Until, FinishedSince, FinishedUntil time.Time
	Page, PageSize                             int
}

func (f Filter) query() url.Values {
	q := url.Values{}
	for key, value := range map[string]string{
		"state": f.State, "type": f.Type, "plan": f.Plan, "instance": f.Instance, "q": f.Search, "step": f.Step, "worker": f.Worker,
		"waiting": f.Waiting, "orchestration": f.Orchestration, "system": f.System, "global_account": f.GlobalAccount, "region": f.Region, "sort": f.Sort,
		"error": f.Error, "hold": f.Hold, "limit_name": f.LimitName, "filter": f.Filter,
	} {
		if value != "" {
			q.Set(key, value)
		}
	}
	for key, at := range map[string]time.Time{
		"since": f.Since, "until": f.Until, "finished_since": f.FinishedSince, "finished_until": f.FinishedUntil,
	} {
		if !at.IsZero() {
			q.Set(key, at.UTC().Format(time.RFC3339))
		}
	}
	if f.Page > 0 {
		q.Set("page", strconv.Itoa(f.Page))
	}
	if f.PageSize > 0 {
		q.Set("page_size", strconv.Itoa(f.PageSize))
	}
	return q
}

// Query returns the filter as the query of a batch, without the page.
func (f Filter) Query() string {
	f.Page, f.PageSize, f.Sort = 0, 0, ""
	return f.query().Encode()
}

// Operations returns operations, and the raw answer.
func (c *Client) Operations(ctx context.Context, f Filter) (*OperationList, json.RawMessage, error) {
	return read[OperationList](ctx, c, "/operations", f.query(), "list operations")
}

// Operation returns one operation with its stages and history, and the raw answer. The error is ErrNotFound if there is no such operation.
func (c *Client) Operation(ctx context.Context, id string) (*OperationDetail, json.RawMessage, error) {
	return read[OperationDetail](ctx, c, "/operations/"+url.PathEscape(id), nil, "operation %s", id)
}

// History returns the whole history of an operation, from oldest to newest. The error is ErrNotFound if there is no such operation.
func (c *Client) History(ctx context.Context, id string) ([]HistoryLine, error) {
	var lines []HistoryLine
	for after := int64(0); ; {
		query := url.Values{"after": {strconv.FormatInt(after, 10)}}
		page, _, err := read[HistoryPage](ctx, c, "/operations/"+url.PathEscape(id)+"/history", query, "history of operation %s", id)
		if err != nil {
			return nil, err
		}
		lines = append(lines, page.Data...)
		if after = page.NextAfter; after == 0 {
			return lines, nil
		}
	}
}

// Try returns one execution of a step, and the raw answer. line is the cursor of its line in the history, or TryRunning.
func (c *Client) Try(ctx context.Context, id, line string) (*Try, json.RawMessage, error) {
	return read[Try](ctx, c, "/operations/"+url.PathEscape(id)+"/tries/"+url.PathEscape(line), nil, "operation %s, try %s", id, line)
}

// MaxEvents is the largest number of events in an answer.
const MaxEvents = 5000

// Events returns the events of at most 100 instances: the newest MaxEvents of all of them.
func (c *Client) Events(ctx context.Context, instances []string) ([]Event, error) {
	out, _, err := read[[]Event](ctx, c, "/events", url.Values{"instance_ids": {strings.Join(instances, ",")}}, "list events")
	if err != nil {
		return nil, err
	}
	return *out, nil
}

// Act cancels, retries or skips. The action is "cancel", "retry" or "skip"; skip needs the current step. The error is ErrNotFound if there
// is no such operation.
func (c *Client) Act(ctx context.Context, id, action string, request ActionRequest) error {
	_, _, err := act[json.RawMessage](ctx, c, id, action, request)
	return err
}

// PreviewRetry returns what becomes of the steps of an operation if it is retried from a stage, or from a step of it, and the raw answer. An
// empty stage is the failed one, and an empty step the first one.
func (c *Client) PreviewRetry(ctx context.Context, id, stage, step string) (*RetryPreview, json.RawMessage, error) {
	return act[RetryPreview](ctx, c, id, "retry", ActionRequest{Stage: stage, Step: step, DryRun: true})
}

func act[T any](ctx context.Context, c *Client, id, action string, request ActionRequest) (*T, json.RawMessage, error) {
	return write[T](ctx, c, http.MethodPost, "/operations/"+url.PathEscape(id)+"/"+action, request, "%s operation %s", action, id)
}

// Stuck returns the stuck operations, grouped by reason, and the raw answer.
func (c *Client) Stuck(ctx context.Context) (*List[*Stuck], json.RawMessage, error) {
	return read[List[*Stuck]](ctx, c, "/stuck", nil, "list stuck operations")
}

// Overview returns the numbers of operations, and the raw answer.
func (c *Client) Overview(ctx context.Context) (*Overview, json.RawMessage, error) {
	return read[Overview](ctx, c, "/overview", nil, "read the overview")
}

// Throughput returns what started and ended in each minute since a number of minutes, and the raw answer. The last bucket has not ended.
func (c *Client) Throughput(ctx context.Context, minutes int) (*Throughput, json.RawMessage, error) {
	return read[Throughput](ctx, c, "/throughput", url.Values{"minutes": {strconv.Itoa(minutes)}, "bucket": {"1m"}}, "read the throughput")
}

// Workers returns the workers, and the raw answer.
func (c *Client) Workers(ctx context.Context) (*List[*Worker], json.RawMessage, error) {
	return read[List[*Worker]](ctx, c, "/workers", nil, "list workers")
}

// Page selects one page of a list. A State selects the entries in that state; an empty State selects all. Page starts at 1.
type Page struct {
	State          string
	Page, PageSize int
}

func (p Page) query() url.Values {
	return Filter{State: p.State, Page: p.Page, PageSize: p.PageSize}.query()
}

// Get returns the answer to a GET request as it is: JSON, or the text of /metrics. The error is ErrNotFound if there is no such object.
func (c *Client) Get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return c.exchange(ctx, http.MethodGet, path, "", nil)
}

// read sends a GET request, and returns the answer, decoded and raw. An error begins with the formatted text.
func read[T any](ctx context.Context, c *Client, path string, query url.Values, format string, args ...any) (*T, json.RawMessage, error) {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return write[T](ctx, c, http.MethodGet, path, nil, format, args...)
}

// write sends a request with a JSON body, or without a body if it is nil, and returns the answer, decoded and raw. An error begins with
// the formatted text.
func write[T any](ctx context.Context, c *Client, method, path string, body any, format string, args ...any) (*T, json.RawMessage, error) {
	contentType, data, err := "", []byte(nil), error(nil)
	if body != nil {
		contentType = "application/json"
		data, err = json.Marshal(body)
	}
	var out T
	var raw json.RawMessage
	if err == nil {
		raw, err = c.send(ctx, method, path, contentType, data, &out)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
	}
	return &out, raw, nil
}

// order sends a request without a body whose answer is ignored. An error begins with the formatted text.
func (c *Client) order(ctx context.Context, method, path, format string, args ...any) error {
	_, _, err := write[json.RawMessage](ctx, c, method, path, nil, format, args...)
	return err
}

// send sends a request with an optional body, and decodes the answer if the request succeeded.
func (c *Client) send(ctx context.Context, method, path, contentType string, body []byte, into any) (json.RawMessage, error) {
	raw, err := c.exchange(ctx, method, path, contentType, body)
	if err != nil || raw == nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return nil, fmt.Errorf("%s does not answer like the operator API: %w", c.base, err)
	}
	return raw, nil
}

// exchange returns the body of a successful answer; nil if it has none.
func (c *Client) exchange(ctx context.Context, method, path, contentType string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	maps.Copy(request.Header, c.header)
	request.Header.Set("Accept", "application/json")
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := c.http.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, &UnreachableError{Address: c.base, Err: err}
	}
	defer func() { _ = response.Body.Close() }()
	if err := Redirected(response); err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, &UnreachableError{Address: c.base, Err: err}
	}
	switch response.StatusCode {
	case http.StatusOK, http.StatusAccepted:
		return raw, nil
	case http.StatusNoContent:
		return nil, nil
	case http.StatusNotFound:
		return nil, ErrNotFound
	case http.StatusUnauthorized:
		if c.token != "" {
			return nil, fmt.Errorf("the operator API rejected the access token of KEB_TOKEN or --token-file: %s", ErrorText(raw))
		}
		return nil, errors.New("the operator API requires an access token; set KEB_TOKEN or --token-file")
	case http.StatusForbidden:
		return nil, fmt.Errorf("the operator API rejected the request: %s", ErrorText(raw))
	default:
		return nil, &StatusError{Status: response.StatusCode, Message: ErrorText(raw)}
	}
}

// maxText limits the text of an error answer that is shown, in characters.
const maxText = 1000

// ErrorText returns the text of an error answer as one line without control characters, safe for a terminal.
func ErrorText(raw []byte) string {
	words := strings.FieldsFunc(strings.ToValidUTF8(errorText(raw), ""), func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) })
	text := []rune(strings.Join(words, " "))
	if len(text) > maxText {
		return string(text[:maxText]) + "..."
	}
	return string(text)
}

func errorText(raw []byte) string {
	var body struct {
		Error       json.RawMessage `json:"error"`
		Description string          `json:"description"`
		Message     string          `json:"message"`
	}
	if json.Unmarshal(raw, &body) != nil {
		return strings.TrimSpace(string(raw[:min(len(raw), 200)]))
	}
	var text string
	if json.Unmarshal(body.Error, &text) == nil && text != "" {
		return text
	}
	if body.Message != "" {
		return body.Message
	}
	return body.Description
}

// Temporary reports whether a request may succeed later: there was no answer, or the server is overloaded or failed. See EffectUnknown for
// requests that change something.
func Temporary(err error) bool {
	if _, ok := errors.AsType[*UnreachableError](err); ok {
		return true
	}
	answer, ok := errors.AsType[*StatusError](err)
	return ok && (answer.Status == http.StatusTooManyRequests || answer.Status >= http.StatusInternalServerError)
}

// EffectUnknown reports whether a request that failed may have changed something: it was sent, and there was no answer, or the server failed.
func EffectUnknown(err error) bool {
	if answer, ok := errors.AsType[*StatusError](err); ok {
		return answer.Status >= http.StatusInternalServerError
	}
	lost, ok := errors.AsType[*UnreachableError](err)
	if !ok {
		return false
	}
	return lost.connected() && !tlsfiles.IsTLS(lost.Err)
}

// UnreachableError reports that a connection to an address failed, or that there was no answer in time.
type UnreachableError struct {
	Address string
	Err     error
}

// Error includes what to do.
func (e *UnreachableError) Error() string {
	if failed, ok := errors.AsType[*tlsfiles.Error](e.Err); ok {
		return fmt.Sprintf("no TLS connection to %s: %s", e.Address, failed)
	}
	if limit, ok := errors.AsType[net.Error](e.Err); ok && limit.Timeout() && e.connected() {
		return fmt.Sprintf("no answer from %s in time", e.Address)
	}
	return fmt.Sprintf("cannot connect to %s; is keb up running? (%s)", e.Address, cause(e.Err))
}

// connected reports whether the connection was made before it failed.
func (e *UnreachableError) connected() bool {
	dial, ok := errors.AsType[*net.OpError](e.Err)
	return !ok || dial.Op != "dial"
}

// Unwrap returns the error of the connection.
func (e *UnreachableError) Unwrap() error { return e.Err }

// cause returns the innermost error of a chain, which has the reason of a failed connection.
func cause(err error) error {
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return err
}

// StatusError is an answer with an error status other than "not found".
type StatusError struct {
	Status  int
	Message string
}

// Error returns the status and the text of the answer.
func (e *StatusError) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("the operator API answers %d %s", e.Status, http.StatusText(e.Status))
	}
	return fmt.Sprintf("the operator API answers %d: %s", e.Status, e.Message)
}
