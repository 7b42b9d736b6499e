package operator

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
