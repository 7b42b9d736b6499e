package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"syscall"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/kyma-project/keb/libs/mask"
)

const (
	sendTimeout = 10 * time.Second
	dialTimeout = 5 * time.Second
	// maxAnswer is the size of an answer that is read, so that its connection can be used again.
	maxAnswer = 16 << 10
	// maxError is the maximum length of a stored error, in bytes.
	maxError = 300
	// maxRetryAfter limits the time that a receiver may ask for.
	maxRetryAfter = time.Hour
)

// Sender sends deliveries.
type Sender struct {
	client    *http.Client
	transport *http.Transport
	now       func() time.Time
}

// NewSender returns a Sender. It follows no redirect, uses no proxy, and connects to no loopback, link-local or metadata address;
// allowLocal allows loopback addresses.
func NewSender(allowLocal bool, now func() time.Time) *Sender {
	dialer := &net.Dialer{Timeout: dialTimeout, Control: func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		return checkAddr(at.Addr(), allowLocal)
	}}
	transport := &http.Transport{
		DialContext: dialer.DialContext, ForceAttemptHTTP2: true, TLSHandshakeTimeout: dialTimeout, MaxIdleConnsPerHost: lanes,
		IdleConnTimeout: time.Minute,
	}
	return &Sender{
		client:    &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		transport: transport, now: now,
	}
}

// Close closes idle connections.
func (s *Sender) Close() { s.transport.CloseIdleConnections() }

// Attempt is the result of one attempt to send an event.
type Attempt struct {
	// status is the status of the answer; 0 if there is none.
	status int
	// retryAfter is the time that the receiver asks for.
	retryAfter time.Duration
	// err is nil if the receiver has accepted the message. It contains no secret.
	err error
}

// isGone reports whether the receiver wants no more messages.
func (a *Attempt) isGone() bool { return a.status == http.StatusGone }

// isRejection reports whether the receiver rejects this message, and may accept others.
func (a *Attempt) isRejection() bool {
	switch a.status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return true
	}
	return false
}

// Send sends an event once.
func (s *Sender) Send(ctx context.Context, format Format, t *Target, id, encoded string) Attempt {
	request, err := s.request(ctx, format, t, id, encoded)
	if err != nil {
		return Attempt{err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	response, err := s.client.Do(request.WithContext(ctx))
	if err != nil {
		return Attempt{err: withoutURL(err)}
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxAnswer)) // the status has decided
	a := Attempt{status: response.StatusCode}
	switch {
	case a.status >= http.StatusOK && a.status < http.StatusMultipleChoices:
		return a
	case a.status >= http.StatusMultipleChoices && a.status < http.StatusBadRequest:
		a.err = fmt.Errorf("the receiver answered %d: redirects are not followed", a.status)
	default:
		a.err = fmt.Errorf("the receiver answered %d %s", a.status, http.StatusText(a.status))
	}
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
		a.retryAfter = min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	return a
}

func (s *Sender) request(ctx context.Context, format Format, t *Target, id, encoded string) (*http.Request, error) {
	key, err := decodeSecret(t.Secret)
	if err != nil {
		return nil, err
	}
	var e cloudevents.Event
	if err := json.Unmarshal([]byte(encoded), &e); err != nil {
		return nil, fmt.Errorf("read the stored event: %w", err)
	}
	header, body, err := render(format, &e)
	if err != nil {
		return nil, fmt.Errorf("write the event: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, t.URL, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("the URL is invalid")
	}
	request.Header = header
	now := s.now()
	header.Set("User-Agent", "KEB")
	header.Set(headerID, id)
	header.Set(headerTimestamp, strconv.FormatInt(now.Unix(), 10))
	header.Set(headerSignature, sign(key, id, now, body))
	return request, nil
}

// withoutURL returns the error of a call without its URL, which may contain credentials.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %s", sendTimeout)
	}
	text := mask.Text(err.Error())
	if len(text) > maxError {
		text = text[:maxError] + "..."
	}
	return errors.New(text)
}
