package broker_test

import (
	"net/http"
	"strings"
	"testing"
)

// Postgres cannot store U+0000 in jsonb, so the broker must reject it.
func TestOrder_CharacterNUL_IsRejected(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	for name, parameters := range map[string]map[string]any{
		"value":   {"name": "a\x00b"},
		"member":  {"name": "a", "a\x00": 1},
		"nested":  {"name": "a", "administrators": []string{"x", "\x00"}},
		"ignored": {"name": "a", "whatever": map[string]any{"deep": "\x00"}},
	} {
		body := order(azure)
		body["parameters"] = parameters
		a := b.put("nul-"+name, body)
		if a.status != http.StatusBadRequest || !strings.Contains(a.text("description"), "U+0000") {
			t.Errorf("%s: status %d %s, want 400 that names the character", name, a.status, a.raw)
		}
	}
	for _, field := range []string{"globalaccount_id", "user_id", "platform"} {
		body := order(azure)
		body["context"].(map[string]any)[field] = "a\x00"
		if a := b.put("nul-"+field, body); a.status != http.StatusBadRequest {
			t.Errorf("context %s: status %d %s, want 400", field, a.status, a.raw)
		}
	}
	if n := b.count(`SELECT count(*) FROM broker.instances`); n != 0 {
		t.Errorf("%d instances are left", n)
	}
	// The text of the escape sequence is allowed.
	body := order(azure)
	body["parameters"] = map[string]any{"name": "sample", "administrators": []string{`\u0000@example.org`}}
	b.accepted(b.put("text", body))
}
