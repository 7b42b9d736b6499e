package webhook

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"
)

const (
	mediaJSON       = "application/json"
	mediaStructured = "application/cloudevents+json"
)

// render returns the header and the body of a delivery.
func render(format Format, e *cloudevents.Event) (http.Header, []byte, error) {
	header := http.Header{}
	switch format {
	case Slack:
		header.Set("Content-Type", mediaJSON)
		body, err := json.Marshal(map[string]string{"text": slackText(e)})
		return header, body, err
	case CloudEventsBinary:
		if err := binaryHeader(header, e); err != nil {
			return nil, nil, err
		}
		return header, e.Data(), nil
	case CloudEvents:
	}
	header.Set("Content-Type", mediaStructured)
	body, err := json.Marshal(e)
	return header, body, err
}

// binaryHeader sets the attributes of an event as headers (CloudEvents HTTP protocol binding, section 3.1).
func binaryHeader(header http.Header, e *cloudevents.Event) error {
	header.Set("Content-Type", e.DataContentType())
	for name, value := range map[string]string{
		"specversion": e.SpecVersion(), "id": e.ID(), "source": e.Source(), "type": e.Type(), "subject": e.Subject(),
		"time": e.Time().UTC().Format(time.RFC3339Nano),
	} {
		header.Set("Ce-"+name, escape(value))
	}
	for name, value := range e.Extensions() {
		text, err := types.Format(value)
		if err != nil {
			return fmt.Errorf("extension %s: %w", name, err)
		}
		header.Set("Ce-"+name, escape(text))
	}
	return nil
}

// escape percent-encodes what a header value must not contain: all but printable ASCII without space, double quote and percent.
func escape(s string) string {
	var out strings.Builder
	for i := range len(s) {
		if c := s[i]; c > ' ' && c <= '~' && c != '"' && c != '%' {
			out.WriteByte(c)
			continue
		}
		fmt.Fprintf(&out, "%%%02X", s[i])
	}
	return out.String()
}

// maxSlackError is the maximum length of an error in a message, in bytes.
const maxSlackError = 500

// signs are the first characters of messages.
var signs = map[Kind]string{
	Started: ":arrow_forward:", Failing: ":warning:", Failed: ":x:", Incomplete: ":warning:", Succeeded: ":white_check_mark:",
	Cancelled: ":no_entry_sign:", Step: ":small_blue_diamond:", Stage: ":small_blue_diamond:", Orchestration: ":arrows_counterclockwise:",
	Test: ":wave:",
}

// slackText returns an event as text with the markup of Slack.
func slackText(e *cloudevents.Event) string {
	extension := func(name string) string {
		text, err := types.Format(e.Extensions()[name])
		if err != nil {
			return ""
		}
		return slackEscape(text)
	}
	kind := Kind(extension("kind"))
	text := signs[kind] + " "
	switch kind {
	case Test:
		return text + "This is a test of a webhook of KEB."
	case Orchestration:
		var c Change
		_ = json.Unmarshal(e.Data(), &c) // an unreadable change has no text
		what := "Orchestration"
		if c.DryRun {
			what = "Dry run of an orchestration"
		}
		text += fmt.Sprintf("*%s %s: %s*", what, slackEscape(string(c.Type)), slackEscape(c.State))
		if c.Description != "" {
			text += "\n" + slackEscape(bounded(c.Description))
		}
	default:
		var f Fact
		_ = json.Unmarshal(e.Data(), &f)
		text += fmt.Sprintf("*%s %s*", slackEscape(string(f.OperationType)), phrase(kind, &f))
		if name := extension("runtimename"); name != "" {
			text += " of runtime *" + name + "*"
		}
		var about []string
		for _, name := range []string{"plan", "region", "shootname"} {
			if v := extension(name); v != "" {
				about = append(about, v)
			}
		}
		if len(about) > 0 {
			text += " (" + strings.Join(about, ", ") + ")"
		}
		switch {
		case f.Error != nil:
			text += "\n" + slackEscape(bounded(f.Error.String()))
		case f.Reason != "":
			text += "\n" + slackEscape(bounded(f.Reason))
		case len(f.NotCompleted) > 0:
			text += "\nnot completed: " + slackEscape(bounded(strings.Join(f.NotCompleted, ", ")))
		}
	}
	if link := extension("link"); link != "" {
		text += "\n<" + link + "|Open in the console>"
	}
	return text
}

// phrase returns what has happened to an operation.
func phrase(kind Kind, f *Fact) string {
	switch kind {
	case Failing:
		return "is failing at " + slackEscape(f.Step)
	case Failed:
		if f.Step != "" {
			return "failed at " + slackEscape(f.Step)
		}
	case Step:
		return "finished a try of " + slackEscape(f.Step) + ": " + slackEscape(string(f.Outcome))
	case Stage:
		return "finished the stage " + slackEscape(f.Stage)
	case Incomplete:
		return "succeeded, but is not complete"
	case Cancelled:
		return "was cancelled"
	default:
	}
	return string(kind)
}

func bounded(text string) string {
	if len(text) <= maxSlackError {
		return text
	}
	return strings.ToValidUTF8(text[:maxSlackError], "") + "..."
}

// slackEscape escapes the control characters of Slack's markup.
func slackEscape(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
}
