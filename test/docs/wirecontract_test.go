package docs_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/internal/docpage"
)

const wireContract = "docs/wire-contract.md"

// vectorExample matches an example of the page, with the file and the name of its vector.
var vectorExample = regexp.MustCompile("(?s)<!-- vector (\\S+): ([^\n]+) -->\n```(\\w*)\n(.*?)\n```")

//go:generate go test -count=1 -run ^TestWireContract_Examples_AreVectors$ . -update

func TestWireContract_Examples_AreVectors(t *testing.T) {
	t.Parallel()
	examples := 0
	want := vectorExample.ReplaceAllStringFunc(read(t, wireContract), func(example string) string {
		m := vectorExample.FindStringSubmatch(example)
		examples++
		return "<!-- vector " + m[1] + ": " + m[2] + " -->\n```" + m[3] + "\n" + vectorText(t, m[1], m[2]) + "\n```"
	})
	if examples < 15 {
		t.Errorf("found %d examples, which cannot be all", examples)
	}
	testkit.Golden(t, filepath.Join(root, wireContract), []byte(want))
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

// codes returns the texts in backquotes of the first column of the table under a heading that begins with title.
func codes(t *testing.T, page, title string) []string {
	t.Helper()
	_, table, found := strings.Cut(page, "\n| "+title)
	require.True(t, found, title)
	table, _, _ = strings.Cut(table, "\n\n")
	var all []string
	for _, row := range strings.Split(table, "\n")[2:] {
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(strings.Split(row, " | ")[0], -1) {
			all = append(all, m[1])
		}
	}
	return all
}

func TestWireContract_Permissions_AreThoseOfAWorker(t *testing.T) {
	t.Parallel()
	page := read(t, wireContract)
	user := event.WorkerUser("<worker>")
	compare := func(title string, of []string, keep func(subject string) bool) {
		have := codes(t, page, title)
		want := slices.DeleteFunc(slices.Clone(of), func(subject string) bool { return !keep(subject) })
		have = slices.DeleteFunc(have, func(subject string) bool { return !keep(subject) })
		slices.Sort(have)
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("%s (-code +page):\n%s", title, diff)
		}
	}
	compare("The user `worker-<worker>` may publish", user.Publish, func(string) bool { return true })
	// The page shows the subjects of the micro service in a shorter form.
	compare("It may subscribe to", user.Subscribe, func(subject string) bool {
		return !strings.HasPrefix(subject, "$SRV.") && !strings.HasPrefix(subject, ".keb-worker-")
	})
}

func TestWireContract_Variables_AreThoseOfAWorker(t *testing.T) {
	t.Parallel()
	variables, err := docpage.Variables(root, "libs/worker.environment", "libs/service.LogConfig")
	require.NoError(t, err)
	page := read(t, wireContract)
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		if !slices.Contains(codes(t, page, "Variable | Default"), name) {
			t.Errorf("%s is missing", name)
		}
		if value := variables[name].Default; value != "" && !regexp.MustCompile("`"+name+"`[^\n]*\\| `"+regexp.QuoteMeta(value)+"`").MatchString(page) {
			t.Errorf("%s: the default is not %s", name, value)
		}
	}
}

func TestWireContract_Metrics_AreThoseOfAWorker(t *testing.T) {
	t.Parallel()
	have := codes(t, read(t, wireContract), "Metric | Type")
	found := 0
	for row := range strings.Lines(read(t, "docs/metrics.md")) {
		if !strings.HasPrefix(row, "| `keb_worker_") || !strings.Contains(row, "(worker)") {
			continue
		}
		for _, m := range regexp.MustCompile("`(keb_worker_[a-z_]+)`").FindAllStringSubmatch(strings.Split(row, " | ")[0], -1) {
			found++
			if !slices.Contains(have, m[1]) {
				t.Errorf("%s is missing", m[1])
			}
		}
	}
	if found < 8 {
		t.Errorf("found %d metrics, which cannot be all", found)
	}
}

func TestWireContract_Limits_AreThoseOfTheCode(t *testing.T) {
	t.Parallel()
	page := read(t, wireContract)
	consumer := event.CommandsConsumer("<worker>")
	for _, row := range []string{
		"filter | `" + consumer.Filter + "`",
		"ack wait | " + seconds(consumer.AckWait),
		fmt.Sprintf("maximum of unacknowledged messages | %d,%03d", consumer.MaxAckPending/1000, consumer.MaxAckPending%1000),
		fmt.Sprintf("details of all workers | %d KiB", event.MaxDetails>>10),
		fmt.Sprintf("kept value | %d KiB", event.MaxKept>>10),
		fmt.Sprintf("data of an event | %d KiB", event.MaxSignalData>>10),
		fmt.Sprintf("commands in one question | %d", event.MaxCurrent),
		fmt.Sprintf("message with headers | %d MiB", event.MaxPayload>>20),
		fmt.Sprintf("a command in the stream | %.0f h", event.CommandsKept.Hours()),
		fmt.Sprintf("a value in the stage memory | %.0f h", event.StageMemoryTTL.Hours()),
		fmt.Sprintf("until acknowledged, at most %.0f h | %s", event.CommandsKept.Hours(), seconds(event.DuplicateWindow)),
	} {
		if !strings.Contains(page, "| "+row) {
			t.Errorf("the row %q is missing", row)
		}
	}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.0f s", d.Seconds()) }
