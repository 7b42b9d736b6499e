package operator

import (
	"net/url"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// The terminal shows whatever a server sends in place of the operator API.
func FuzzErrorText(f *testing.F) {
	for _, seed := range []string{
		`{"error":"no"}`, `{"error":{"message":"x"},"message":"no"}`, `{"description":"no"}`, `<html>`, "\x1b[2J", `{"error":"\u001b[2J\n"}`, strings.Repeat("ä", 300), ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		text := ErrorText(raw)
		if !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) || utf8.RuneCountInString(text) > 2000 {
			t.Errorf("%q is shown as %q", raw, text)
		}
	})
}

// A valid address has the scheme http or https, and no user and password.
func FuzzBaseURL(f *testing.F) {
	for _, seed := range []string{"localhost:8081", "https://x/", "http://u:p@x", "ftp://x", "", "://", "[::1]:1", "x y", "http:///", "%zz"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, address string) {
		base, err := BaseURL(address)
		if err != nil {
			if base != "" {
				t.Errorf("both %q and error %v", base, err)
			}
			return
		}
		u, err := url.Parse(base)
		if err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" || strings.HasSuffix(base, "/") {
			t.Errorf("%q became %q: %v", address, base, err)
		}
	})
}
