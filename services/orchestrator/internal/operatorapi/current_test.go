package operatorapi

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
)

const someID = "0198c0de-0000-7000-8000-000000000001"

func TestParseCurrent_InvalidRequest_IsRejected(t *testing.T) {
	t.Parallel()
	many := `{"commands":[` + strings.Repeat(`{"operationId":"`+someID+`","cursor":1},`, event.MaxCurrent) + `{"operationId":"` + someID + `","cursor":1}]}`
	for question, want := range map[string]string{
		"":                   "must be a JSON object with commands",
		"[]":                 "must be a JSON object with commands",
		"{}":                 "commands: are 0: want 1 to 500",
		many:                 "commands: are 501",
		`{"commands":["x"]}`: "must be a JSON object with commands",
		`{"commands":[{"operationId":"` + someID + `","cursor":1},{"operationId":"x","cursor":1}]}`: `commands[1].operationId: is "x": want a UUID`,
		`{"commands":[{"operationId":"` + strings.ToUpper(someID) + `","cursor":1}]}`:               "in lower case",
		`{"commands":[{"operationId":"` + someID + `"}]}`:                                           "commands[0].cursor: is 0: want 1 or more",
		`{"commands":[{"operationId":"` + someID + `","cursor":-7}]}`:                               "commands[0].cursor: is -7",
		`{"commands":[{"operationId":"` + someID + `","cursor":1.5}]}`:                              "must be a JSON object with commands",
		`{"commands":[{"operationId":"` + strings.Repeat("a", 1000) + `","cursor":1}]}`:             "operationId: ",
		`{"commands":[{"operationId":"urn:uuid:` + someID + `","cursor":1}]}`:                       "operationId: ",
	} {
		if _, err := new(API).Current(t.Context(), event.AskCurrentAs("avs"), []byte(question)); err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 500 {
			t.Errorf("%.80s: %v, want %q", question, err, want)
		}
	}
}

// An accepted request is within limits and is encoded to the same request; otherwise the error is short.
func FuzzParseCurrent(f *testing.F) {
	for _, seed := range []string{
		`{"commands":[{"operationId":"` + someID + `","cursor":1}]}`, `{"commands":[{"operationId":"x"}]}`, `{"commands":null}`, `[]`, ``, `{"commands":[{"cursor":1e3}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		commands, err := parseCurrent(data)
		if err != nil {
			if len(err.Error()) > 1000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			return
		}
		if len(commands) == 0 || len(commands) > event.MaxCurrent {
			t.Errorf("%d commands are accepted", len(commands))
		}
		for _, c := range commands {
			if c.Cursor < 1 || len(c.OperationID) != len(someID) {
				t.Errorf("%+v is taken", c)
			}
		}
		again, err := json.Marshal(event.CurrentRequest{Commands: commands})
		require.NoError(t, err)
		if same, err := parseCurrent(again); err != nil || !cmp.Equal(commands, same) {
			t.Error(fmt.Errorf("decoded again: %v, %w", same, err))
		}
	})
}
