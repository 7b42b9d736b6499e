package cli_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEventSend_Request_HasKeyDataAndID(t *testing.T) {
	t.Parallel()
	var requests []string
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		requests = append(requests, r.Method+" "+r.URL.Path+" "+r.Header.Get("Ce-Id")+" "+string(body))
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusAccepted)
		repeated := "false"
		if len(requests) > 1 {
			repeated = "true"
		}
		_, _ = io.WriteString(w, `{"key": "approval.17", "source": "/keb/client/jane", "id": "42", "repeated": `+repeated+`}`)
	}))
	defer api.Close()
	args := []string{"--operator-addr", strings.TrimPrefix(api.URL, "http://"), "event", "send", "approval.17", "--id", "42", "--data"}
	expect(t, run(t, "", append(args, `{"approved": true}`)...), 0, "event approval.17, id 42: stored\n", "")
	expect(t, run(t, `["from stdin"]`, append(args, "-")...), 0, "event approval.17, id 42: was stored before\n", "")
	if got, want := strings.Join(requests, "\n"), "POST /events/approval.17 42 {\"approved\": true}\nPOST /events/approval.17 42 [\"from stdin\"]"; got != want {
		t.Errorf("requests\n%s\nwant\n%s", got, want)
	}
	if r := run(t, "", append(args, "{")...); r.code == 0 || !strings.Contains(r.err, "--data: must be JSON") {
		t.Errorf("invalid data: %+v", r)
	}
}
