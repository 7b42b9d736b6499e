package extclient_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/extclient"
)

type answering func(*http.Request) *http.Response

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) { return a(r), nil }

// For any answer, the client returns a value, or a short error without secrets of the request.
func FuzzAnswer(f *testing.F) {
	const secret = "CANARY-2f6a-not-a-word"
	for i, seed := range []string{
		`{"id":1,"name":"x"}`, ``, `null`, `[]`, `{"id":"1"}`, `{"id":1e99}`, `{"id":1}{}`, `{"message":"$AUTH"}`, `{"error":{"message":"$AUTH"}}`, "<html>$AUTH",
		`{"data":{"id":1}}`, `{"data":null,"errors":[{"message":"$AUTH"}]}`, `{"errors":[null]}`, `{"errors":{}}`, strings.Repeat("[", 20_000),
	} {
		f.Add(uint16(200*(i%3)), "120", seed)
	}
	f.Fuzz(func(t *testing.T, status uint16, retryAfter, body string) {
		transport := answering(func(r *http.Request) *http.Response {
			text := strings.ReplaceAll(body, "$AUTH", r.Header.Get("Authorization")+secret)
			return &http.Response{
				StatusCode: 200 + int(status)%400, Header: http.Header{"Retry-After": {retryAfter}, "Content-Type": {"application/json"}},
				Body: io.NopCloser(strings.NewReader(text)), Request: r,
			}
		})
		c, err := extclient.New(extclient.Config{
			System: "avs", BaseURL: "http://avs.example.com", Username: "u", Password: secret, MaxAnswer: 16 << 10,
		}, nil, extclient.Deps{Transport: transport})
		require.NoError(t, err)
		var got struct {
			ID   int64  `json:"id"`
			Name string `json:"name"`
		}
		for what, err := range map[string]error{
			"rest":    c.Do(t.Context(), extclient.Request{Method: http.MethodGet, Route: "/x"}, &got),
			"graphql": c.GraphQL(t.Context(), extclient.GraphQLRequest{Query: "query { x }"}, &got),
		} {
			if err == nil {
				continue
			}
			if text := err.Error(); !strings.Contains(body, "CANARY") && strings.Contains(text, "CANARY") || len(text) > 2000 || strings.ContainsAny(text, "\n\x00") {
				t.Errorf("%s: the error is %q", what, text)
			}
		}
		if after := extclient.RetryAfter(http.Header{"Retry-After": {retryAfter}}); after < 0 || after > 366*24*time.Hour {
			t.Errorf("Retry-After %q is %s", retryAfter, after)
		}
	})
}
