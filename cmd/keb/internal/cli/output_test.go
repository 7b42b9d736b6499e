package cli_test

import (
	"strings"
	"testing"
)

// csi is the character that begins a control sequence of a terminal; it is one character in UTF-8.
const csi = "\u009b"

func TestOutput_ControlCharacters_AreRemoved(t *testing.T) {
	t.Parallel()
	const bad = `\u001b]0;x\u0007\u009b2J`
	_, addr := newAPI(t, map[string][]string{
		"GET /operations/op-1": {`200 {"id":"op-1","state":"failed","parameters":{"name":"` + bad + `"},"historyCount":1,
 "history":[{"cursor":1,"tries":1,"outcome":"failed","error":{"component":"edp","reason":"x","message":"` + bad + `"}}]}`},
		"GET /operations/op-1/tries/1":   {`200 {"operationId":"op-1","sent":{"parameters":{"name":"` + bad + `"}},"answer":{"outcome":"retry","message":"` + bad + `"}}`},
		"GET /operations":                {`200 {"data":[{"id":"` + bad + `"}],"count":1,"totalCount":1}`},
		"GET /orchestrations/o-1":        {`200 {"orchestrationID":"o-1","state":"failed","description":"` + bad + `"}`},
		"POST /orchestrations/o-1/retry": {`202 {"msg":"` + bad + `"}`},
		"GET /batches/b-1":               {`400 ` + strings.NewReplacer(`\u001b`, "\x1b", `\u0007`, "\a", `\u009b`, csi).Replace(bad)},
	})
	_, raw := newAPI(t, map[string][]string{"GET /operations/op-1": {`200 {"id":"op-1","state":"succeeded","runtimeName":"ä` + csi + "2J\x7f" + `"}`}})
	for _, command := range []string{"operation op-1 -o json", "watch op-1 -o json"} {
		got := run(t, "", append(strings.Fields(command), "--operator-addr", raw)...)
		if !strings.Contains(got.out, `"ä\u009b2J\u007f"`) {
			t.Errorf("%s prints %q", command, got.out)
		}
	}
	for _, command := range []string{
		"operation op-1 --history --details", "operation op-1 --try 1", "operations -o custom=ID:id", "orchestrations o-1", "orchestrations o-1 --watch",
		"orchestrations o-1 retry", "batch b-1",
	} {
		got := run(t, "", append(strings.Fields(command), "--operator-addr", addr)...)
		if text := got.out + got.err; strings.ContainsAny(text, "\x1b\a"+csi) || text == "" {
			t.Errorf("%s prints %q", command, text)
		}
	}
}
