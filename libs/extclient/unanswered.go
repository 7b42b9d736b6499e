package extclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/kyma-project/keb/libs/tlsfiles"
)

// broken lists texts of net/http errors about an invalid HTTP answer, which precede the received data.
var broken = []string{
	"malformed HTTP response", "malformed HTTP status code", "malformed HTTP version", "malformed MIME header", "bad Content-Length",
	"invalid header field", "unsupported transfer encoding", "too many transfer encodings", "failed to parse Location header",
	"malformed chunked encoding", "invalid byte in chunk length", "chunked encoding", "header line too long", "server response headers exceeded",
}

// errNoHTTP replaces the received data.
var errNoHTTP = errors.New("no valid HTTP answer")

// Unanswered returns the cause of a net/http call without an answer. It omits the URL, whose query may contain a secret, and the data of an
// invalid answer, which may contain anything. It keeps errors of the network, of TLS and of the context in the chain.
func Unanswered(err error) error {
	if call, ok := errors.AsType[*url.Error](err); ok {
		err = call.Err
	}
	if explained, ok := errors.AsType[*tlsfiles.Error](err); ok {
		return &tlsfiles.Error{Cause: Unanswered(explained.Cause), Cure: explained.Cure}
	}
	for _, known := range []error{
		context.Canceled, context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, http.ErrSchemeMismatch, http.ErrServerClosed,
	} {
		if errors.Is(err, known) {
			return known
		}
	}
	if cause, ok := errors.AsType[net.Error](err); ok {
		return cause
	}
	if cause, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return cause
	}
	if cause, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return cause
	}
	if cause, ok := errors.AsType[x509.HostnameError](err); ok {
		return cause
	}
	if cause, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return errors.New("tls: " + cause.Msg)
	}
	for _, phrase := range broken {
		if strings.Contains(err.Error(), phrase) {
			return fmt.Errorf("%w: %s", errNoHTTP, phrase)
		}
	}
	return errNoHTTP
}
