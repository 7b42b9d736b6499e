package extclient_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/kyma-project/keb/libs/extclient"
)

func TestGraphQL_Answers_AreClassified(t *testing.T) {
	t.Parallel()
	failure := func(extensions string) string {
		return `{"data":{"result":null},"errors":[{"message":"m","extensions":` + extensions + `}]}`
	}
	for _, test := range []struct {
		name, body           string
		sensitive            bool
		want                 string
		temporary, isMissing bool
	}{
		{name: "result", body: `{"data":{"result":"r"}}`},
		{name: "not found", body: failure(`{"error_code":500,"error_reason":"err_db_not_found"}`), want: "sys: thing: code 500 (err_db_not_found): m", isMissing: true},
		{name: "refused", body: failure(`{"error_code":400}`), want: "sys: thing: code 400: m"},
		{name: "refused, sensitive", body: failure(`{"error_code":400}`), sensitive: true, want: "sys: thing: code 400"},
		{name: "broken inside", body: failure(`{"error_code":501}`), want: "sys: thing: code 501: m", temporary: true},
		{name: "no extensions", body: `{"errors":[{"message":"m"}]}`, want: "sys: thing: code 0: m", temporary: true},
		{name: "nothing", body: `{}`, want: "sys: POST thing: unreadable answer: neither data nor errors", temporary: true},
		{name: "null", body: `{"data":{"result":null}}`, want: "sys: POST thing: unreadable answer: neither data nor errors", temporary: true},
		{name: "garbage", body: `<html>`, want: "thing: sys: POST: unreadable answer: not the expected JSON", temporary: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, extclient.Config{}, nil, extclient.Deps{}, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, test.body) })
			var got string
			err := c.GraphQL(t.Context(), extclient.GraphQLRequest{Name: "thing", Query: "query { result: thing }", Sensitive: test.sensitive}, &got)
			if test.want == "" {
				if err != nil || got != "r" {
					t.Fatalf("got %q, error %v", got, err)
				}
				return
			}
			if err == nil || err.Error() != test.want {
				t.Fatalf("error %v, want %s", err, test.want)
			}
			if extclient.IsTemporary(err) != test.temporary || extclient.IsNotFound(err) != test.isMissing {
				t.Errorf("temporary %v, not found %v", extclient.IsTemporary(err), extclient.IsNotFound(err))
			}
		})
	}
}

func TestGraphQL_StatusOtherThan200_IsTemporary(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusNotFound, http.StatusServiceUnavailable} {
		c := serve(t, extclient.Config{}, nil, extclient.Deps{}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		err := c.GraphQL(t.Context(), extclient.GraphQLRequest{Name: "thing"}, nil)
		if !extclient.IsTemporary(err) || extclient.IsNotFound(err) {
			t.Errorf("status %d: temporary %v, not found %v", status, extclient.IsTemporary(err), extclient.IsNotFound(err))
		}
	}
}

// A wrong address must not be mistaken for a missing runtime.
func TestIsNotFound_Status404_ReturnsFalse(t *testing.T) {
	t.Parallel()
	c := serve(t, extclient.Config{}, nil, extclient.Deps{}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	err := c.GraphQL(t.Context(), extclient.GraphQLRequest{Name: "thing"}, nil)
	if err == nil || extclient.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
}

func TestSanitize_Secrets_AreRemoved(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain words, id 5b7e1d0c-3f54-4b8e-8a46-1c9d2e7f6a20": "plain words, id 5b7e1d0c-3f54-4b8e-8a46-1c9d2e7f6a20",
		"two\nlines\x00 and   blanks":                          "two lines and blanks",
		"header Bearer abc.def":                                "header Bearer [redacted]",
		`{"client_secret":"abc"}`:                              `{"client_secret":[redacted]}`,
		"password=hunter2 failed":                              "password=[redacted] failed",
		"GET https://h/x?token=1":                              "GET https://h/x?[redacted]",
		"key " + strings.Repeat("A1", 30):                      "key [redacted]",
	} {
		if got := extclient.Sanitize(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
	if got := extclient.Sanitize(strings.Repeat("ä ", 900)); len([]rune(got)) > 1010 {
		t.Errorf("%d characters are left", len([]rune(got)))
	}
}

func FuzzSanitize(f *testing.F) {
	for _, seed := range []string{"", "password: x", "a\xffb", "Bearer x", strings.Repeat("x", 1000)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := extclient.Sanitize(text)
		if strings.ContainsAny(got, "\n\r\x00") || len([]rune(got)) > 1003 {
			t.Errorf("%q became %q", text, got)
		}
	})
}
