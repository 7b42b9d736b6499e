package eventhubs

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kyma-project/keb/libs/extclient"
)

func TestEndpoint_ConnectionString_IsParsed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Endpoint=sb://k1.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=x": "k1.servicebus.windows.net",
		"SharedAccessKeyName=Root;Endpoint=sb://k1.servicebus.windows.net":                    "k1.servicebus.windows.net",
		"Endpoint=sb:///;SharedAccessKey=x":                                                   "",
		"Endpoint=https://k1":                                                                 "",
		"":                                                                                    "",
	} {
		if got, ok := endpoint(text); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %t, want %q", text, got, ok, want)
		}
	}
}

func TestGroupOf_SecondPage_IsRead(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	mux.HandleFunc("POST /t/oauth2/token", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"access_token":"a","expires_in":"3600","token_type":"Bearer"}`)
	})
	mux.HandleFunc("GET /subscriptions/s/resourcegroups", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("$skiptoken") == "" {
			_, _ = io.WriteString(w, `{"value":[],"nextLink":"`+server.URL+r.URL.Path+`?$skiptoken=x"}`)
			return
		}
		_, _ = io.WriteString(w, `{"value":[{"name":"k1","tags":{"InstanceID":"i"}}]}`)
	})
	c, err := newClient(Config{URL: server.URL, LoginURL: server.URL, TenantID: "t", SubscriptionID: "s"}, extclient.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	if g, err := c.groupOf(t.Context(), "i"); err != nil || g == nil || g.Name != "k1" {
		t.Errorf("got %+v, error %v", g, err)
	}
}

func FuzzEndpoint(f *testing.F) {
	f.Add("Endpoint=sb://k1.servicebus.windows.net/;SharedAccessKey=x")
	f.Add(";;Endpoint=sb://;")
	f.Fuzz(func(t *testing.T, text string) {
		host, ok := endpoint(text)
		if ok && (host == "" || strings.Contains(host, ";") || !strings.Contains(text, host)) {
			t.Errorf("%q has the endpoint %q", text, host)
		}
	})
}
