package extclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/kyma-project/keb/libs/tlsfiles"
)

// broken is what net/http says of an answer that is no HTTP, before it repeats what has come.
var broken = []string{
	"malformed HTTP response", "malformed HTTP status code", "malformed HTTP version", "malformed MIME header", "bad Content-Length",
	"invalid header field", "unsupported transfer encoding", "too many transfer encodings", "failed to parse Location header",
	"malformed chunked encoding", "invalid byte in chunk length", "chunked encoding", "header line too long", "server response headers exceeded",
}

// errNoHTTP stands for the rest.
var errNoHTTP = errors.New("no valid HTTP answer")

// Unanswered is why a call of net/http got no answer, without what that repeats: of the request's URL, whose query may hold a secret,
// and of an answer that is no HTTP, in which anything may stand. The cause stays in the chain where it is one of the network, of TLS or
// of the context.
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
			return errors.New(errNoHTTP.Error() + ": " + phrase)
		}
	}
	return errNoHTTP
}
