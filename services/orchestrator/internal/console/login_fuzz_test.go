package console

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// After a login, the browser is redirected only to a page of the console.
func FuzzNextPage(f *testing.F) {
	for _, seed := range []string{"", Root, Root + "?a=b", "//evil.example.com", Root + "//evil", Root + "../x", "/\\evil", Root + "\r\nX: y", "http://e", Root + "%2e%2e/x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, wanted string) {
		got := next(wanted)
		w := httptest.NewRecorder()
		http.Redirect(w, httptest.NewRequest(http.MethodGet, "https://console.example.com"+Root+"callback", nil), got, http.StatusSeeOther)
		to, err := url.Parse(w.Header().Get("Location"))
		if err != nil {
			return // no browser follows it
		}
		if to.Host != "" || to.Scheme != "" || !strings.HasPrefix(to.Path, Root) || next(got) != got {
			t.Errorf("%q leads to %q", wanted, to)
		}
	})
}

// A token is read from JSON or a form. An error must not contain it.
func FuzzLoginBody(f *testing.F) {
	for _, seed := range [][2]string{
		{"application/json", `{"token":" CANARY-1 "}`},
		{"application/json; charset=x", `{"token":1}`},
		{"application/json", `{"token":"CANARY-1","x":1}`},
		{"application/x-www-form-urlencoded", "token=CANARY-1&token=b"},
		{"application/x-www-form-urlencoded", "%zz=CANARY-1"},
		{"", ""},
		{"a/b; =", "x"},
		{"application/json", `{"token":"a"} CANARY-1`},
		{"application/json", strings.Repeat("[", 10_000)},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, media, body string) {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		r.Header["Content-Type"] = []string{media}
		token, err := read(httptest.NewRecorder(), r)
		switch {
		case err == nil && (token == "" || token != strings.TrimSpace(token) || len(token) > maxBody):
			t.Errorf("the token is %q", token)
		case err != nil && token != "":
			t.Errorf("both a token and an error: %q, %v", token, err)
		case err != nil && strings.Contains(err.Error(), "CANARY"):
			t.Errorf("the error is %q", err)
		}
	})
}
