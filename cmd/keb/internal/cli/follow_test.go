package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/cmd/keb/internal/view"
	"github.com/kyma-project/keb/libs/api/operator"
)

// server returns a client of an operator API with these answers, "<status> <body>" in order; the last one is repeated.
func server(t *testing.T, answers ...string) *operator.Client {
	t.Helper()
	next := make(chan string, len(answers))
	for _, answer := range answers[:len(answers)-1] {
		next <- answer
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer := answers[len(answers)-1]
		select {
		case answer = <-next:
		default:
		}
		var status int
		var text string
		_, _ = fmt.Sscanf(answer, "%d %s", &status, &text)
		w.WriteHeader(status)
		_, _ = fmt.Fprint(w, text)
	}))
	t.Cleanup(srv.Close)
	client, err := operator.New(srv.URL, "")
	require.NoError(t, err)
	return client
}

func TestFollowTop_Errors_EndItUnlessTemporary(t *testing.T) {
	t.Parallel()
	const good = "200 {}"
	for want, answers := range map[string][]string{
		"rejected the request": {good, good, good, good, good, good, "503 {}", "503 {}", good, good, good, good, good, good, "403 {}"},
		"503":                  {"503 {}"}, // never answered
	} {
		var out strings.Builder
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		screen := &view.Terminal{Out: &out, Size: func() view.Size { return view.Size{Width: 200, Height: 24} }}
		err := followTop(ctx, server(t, answers...), screen, time.Millisecond)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		if got, notes := strings.Count(out.String(), "still trying"), min(1, len(answers)-1); got != notes {
			t.Errorf("%d notes about lost answers, want %d", got, notes)
		}
	}
}

// interrupting interrupts at the first output.
type interrupting struct{ interrupt func() }

func (i interrupting) Write(text []byte) (int, error) {
	i.interrupt()
	return len(text), nil
}

func TestFollowBatch_Interrupted_NotesOnlyWhatGoesOn(t *testing.T) {
	t.Parallel()
	for state, isNoted := range map[string]bool{"running": true, "finished": false} {
		ctx, cancel := context.WithCancel(t.Context())
		var said strings.Builder
		o := &options{IO: IO{Out: interrupting{cancel}, Err: &said}, output: outputText}
		err := o.followBatch(ctx, server(t, `200 {"id":"b-1","state":"`+state+`","total":1}`), "b-1", false)
		if got := strings.Contains(said.String(), "the batch goes on"); got != isNoted || (err != nil) != isNoted {
			t.Errorf("%s: error %v, %q", state, err, said.String())
		}
	}
}
