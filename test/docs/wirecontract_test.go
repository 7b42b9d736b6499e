package docs_test

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/testkit"
)

// vectorExample matches an example of the page, with the file and the name of its vector.
var vectorExample = regexp.MustCompile("(?s)<!-- vector (\\S+): ([^\n]+) -->\n```(\\w*)\n(.*?)\n```")

//go:generate go test -count=1 -run ^TestWireContract_Examples_AreVectors$ . -update

func TestWireContract_Examples_AreVectors(t *testing.T) {
	t.Parallel()
	const page = "docs/wire-contract.md"
	examples := 0
	want := vectorExample.ReplaceAllStringFunc(read(t, page), func(example string) string {
		m := vectorExample.FindStringSubmatch(example)
		examples++
		return "<!-- vector " + m[1] + ": " + m[2] + " -->\n```" + m[3] + "\n" + vectorText(t, m[1], m[2]) + "\n```"
	})
	if examples < 15 {
		t.Errorf("found %d examples, which cannot be all", examples)
	}
	testkit.Golden(t, filepath.Join(root, page), []byte(want))
}

// vectorText returns the message or the body of a vector as the page shows it.
func vectorText(t *testing.T, file, name string) string {
	t.Helper()
	for _, c := range testkit.ReadVectors[json.RawMessage, json.RawMessage](t, file) {
		if c.Name != name {
			continue
		}
		raw := c.Out
		if file == "commands.json" {
			raw = c.In
		}
		var body string
		if json.Unmarshal(raw, &body) == nil {
			return body
		}
		return messageText(t, raw)
	}
	t.Fatalf("%s has no case %q", file, name)
	return ""
}

func messageText(t *testing.T, raw []byte) string {
	t.Helper()
	var m struct {
		Subject, Body string
		Headers       map[string]any
	}
	require.NoError(t, json.Unmarshal(raw, &m))
	lines := []string{m.Subject, "", "NATS/1.0"}
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		value := m.Headers[name]
		if list, ok := value.([]any); ok {
			value = list[0]
		}
		lines = append(lines, name+": "+value.(string))
	}
	return strings.Join(append(lines, "", m.Body), "\n")
}
