package operatorapi

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/operator"
)

func TestLinks_Templates_AreFilled(t *testing.T) {
	t.Parallel()
	links, err := ParseLinks("Traces=https://jaeger.test/trace/{trace}  Logs_of_the_day=https://logs.test/?q={instance}&from={from}&to={to}\n")
	require.NoError(t, err)
	d := &operator.OperationDetail{Operation: operator.Operation{InstanceID: "a b&c", CreatedAt: time.UnixMilli(1000)}}
	want := []operator.Link{{Name: "Logs of the day", URL: "https://logs.test/?q=a%20b%26c&from=1000&to=now"}}
	if diff := cmp.Diff(want, links.of(d)); diff != "" {
		t.Errorf("links of an operation without a trace (-want +got):\n%s", diff)
	}
	d.TraceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	if got := links.of(d); len(got) != 2 || got[0].URL != "https://jaeger.test/trace/"+d.TraceID {
		t.Errorf("links of a traced operation: %v", got)
	}
}

func TestParseLinks_Invalid_IsRejected(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"https://logs.test/":               "must have the form NAME=URL",
		"Logs":                             `"Logs": must have the form NAME=URL`,
		"Logs=logs.test":                   "Logs: \"logs.test\" must be an absolute http or https URL",
		"Logs=javascript:alert(1)":         "must be an absolute http or https URL",
		"Logs=https://logs.test/{cluster}": "Logs: \"https://logs.test/{cluster}\" has a name in braces that is not one of operation, instance",
	} {
		if _, err := ParseLinks(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}
