package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
)

const (
	// maxAnswer limits the size of an answer in bytes. An agent reads an answer as a whole.
	maxAnswer = 32 << 10
	// maxText limits the length of one text in an answer, in characters. The beginning and the end of a longer one stay.
	maxText, textHead = 1000, 600
	// maxDocument is maxText for documents such as the limits.
	maxDocument = 16 << 10
)

// bounded encodes an answer. It shortens long texts, and, if the answer is still too long, its lists.
func bounded(v any) string {
	v = tidy(v, true)
	text := encode(v)
	for most := 200; len(text) > maxAnswer && most > 0; most /= 2 {
		cut, shortened := shorten(v, most)
		if !shortened {
			continue
		}
		if object, ok := cut.(map[string]any); ok {
			object["shortened"] = fmt.Sprintf("The answer was too long. Its lists contain only their first %d elements. Narrow the filters, or ask for smaller pages.", most)
		}
		text = encode(cut)
	}
	if len(text) > maxAnswer {
		return encode(map[string]any{"shortened": fmt.Sprintf("The answer has %d bytes, more than fit. Narrow the filters, or ask for smaller pages.", len(text))})
	}
	return text
}

func encode(v any) string {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Sprintf(`{"error": %q}`, err) // v is decoded JSON, which can be encoded
	}
	return string(bytes.TrimSpace(out.Bytes()))
}

// tidy decodes typed values, leaves out empty members of nested objects, and shortens texts.
func tidy(v any, top bool) any {
	switch v := v.(type) {
	case nil, bool, float64, json.Number:
		return v
	case string:
		return middle(v)
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = tidy(e, false)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, e := range v {
			if isEmpty(e) && !top {
				continue
			}
			out[name] = tidy(e, false)
		}
		return out
	default:
		raw, err := json.Marshal(v)
		if err != nil {
			return err.Error()
		}
		var decoded any
		if err := json.Unmarshal(raw, &decoded); err != nil {
			return err.Error()
		}
		return tidy(decoded, top)
	}
}

func isEmpty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

// document is a text that is shortened at maxDocument only.
type document string

// MarshalJSON keeps tidy from shortening the document: it is encoded as lines.
func (d document) MarshalJSON() ([]byte, error) {
	text := string(d)
	if len(text) > maxDocument {
		text = text[:maxDocument]
	}
	lines := []string{}
	for line := range bytes.Lines([]byte(text)) {
		lines = append(lines, string(bytes.TrimRight(line, "\r\n")))
	}
	return json.Marshal(lines)
}

// middle leaves out the middle of a long text: the useful part of an error is often its end.
func middle(text string) string {
	if len(text) <= maxText {
		return text
	}
	runes := []rune(text)
	if len(runes) <= maxText {
		return text
	}
	return fmt.Sprintf("%s ... (%d characters left out) ... %s", string(runes[:textHead]), len(runes)-maxText, string(runes[len(runes)-(maxText-textHead):]))
}

// shorten cuts all lists, and reports whether one was longer.
func shorten(v any, most int) (any, bool) {
	switch v := v.(type) {
	case []any:
		list, cut := v, false
		if len(list) > most {
			list, cut = list[:most], true
		}
		out := make([]any, len(list))
		for i, e := range list {
			var inner bool
			out[i], inner = shorten(e, most)
			cut = cut || inner
		}
		return out, cut
	case map[string]any:
		out, cut := make(map[string]any, len(v)), false
		for name, e := range v {
			var inner bool
			out[name], inner = shorten(e, most)
			cut = cut || inner
		}
		return out, cut
	}
	return v, false
}

// pick returns an object with some members of another one.
func pick(from any, names ...string) map[string]any {
	object, _ := from.(map[string]any)
	out := make(map[string]any, len(names))
	for _, name := range names {
		if v, ok := object[name]; ok {
			out[name] = v
		}
	}
	return out
}

// pickAll returns a list of objects with some of their members.
func pickAll(from any, names ...string) []any {
	list, _ := from.([]any)
	out := make([]any, len(list))
	for i, e := range list {
		out[i] = pick(e, names...)
	}
	return out
}

// newest returns the last elements of a list.
func newest(from any, most int) []any {
	list, _ := from.([]any)
	return list[max(0, len(list)-most):]
}
