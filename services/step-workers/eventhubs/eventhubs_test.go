package eventhubs

import (
	"strings"
	"testing"
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
