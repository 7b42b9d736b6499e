package operator

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/tlsfiles"
)

// broken is a transport on which every request fails.
type broken struct{ err error }

func (b broken) RoundTrip(*http.Request) (*http.Response, error) { return nil, b.err }

func TestClient_NoAnswer_NamesWhy(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"no answer from http://keb:8081 in time":                              os.ErrDeadlineExceeded,
		"cannot connect to http://keb:8081; is keb up running? (i/o timeout)": &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded},
		"cannot connect to http://keb:8081; is keb up running? (refused)":     errors.New("refused"),
	} {
		c, newErr := New("keb:8081", "")
		require.NoError(t, newErr)
		_, _, got := c.Through(broken{err}).Overview(t.Context())
		if got == nil || !strings.HasSuffix(got.Error(), want) || !Temporary(got) {
			t.Errorf("error %v (temporary: %t), want %q", got, Temporary(got), want)
		}
	}
}

func TestEffectUnknown_Errors_AreClassified(t *testing.T) {
	t.Parallel()
	unreachable := func(err error) error { return &UnreachableError{Address: "keb:8081", Err: err} }
	for err, want := range map[error]bool{
		unreachable(io.ErrUnexpectedEOF):                                               true,
		unreachable(os.ErrDeadlineExceeded):                                            true,
		unreachable(&net.OpError{Op: "read", Err: syscall.ECONNRESET}):                 true,
		unreachable(&tlsfiles.Error{Cause: io.EOF, Cure: "perhaps set KEB_CERT_FILE"}): true,
		&StatusError{Status: 500}:                                                      true,
		&StatusError{Status: 503}:                                                      true,
		&StatusError{Status: 429}:                                                      false,
		&StatusError{Status: 409}:                                                      false,
		unreachable(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}):               false,
		unreachable(&tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: &x509.Certificate{}}}): false,
		ErrNotFound: false,
	} {
		if got := EffectUnknown(fmt.Errorf("cancel: %w", err)); got != want {
			t.Errorf("%v: effect unknown %t, want %t", err, got, want)
		}
	}
}

func TestTemporary_Statuses_AreClassified(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]bool{400: false, 409: false, 413: false, 429: true, 500: true, 502: true, 503: true} {
		if got := Temporary(fmt.Errorf("list: %w", &StatusError{Status: status})); got != want {
			t.Errorf("%d: temporary %t, want %t", status, got, want)
		}
	}
	for _, err := range []error{nil, ErrNotFound, errors.New("the operator API rejected the access token")} {
		if Temporary(err) {
			t.Errorf("%v is temporary", err)
		}
	}
}
