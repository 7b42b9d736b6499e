package stepworkers_test

import (
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kyma-project/keb/libs/testkit"
)

func (d *door) record(r *http.Request, body []byte) {
	seen := testkit.NewRequest(r, body)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.requests = append(d.requests, seen)
}

// golden compares all requests since the last call of golden, or since the start, with testdata/golden/<name>.json. It selects requests by the
// prefixes of their paths. It replaces the address of the landscape by http://landscape, and the texts in w.named.
func (w *world) golden(name string, prefixes ...string) {
	w.t.Helper()
	w.door.mu.Lock()
	defer w.door.mu.Unlock()
	shown := slices.DeleteFunc(w.door.requests, func(r testkit.Request) bool {
		return !slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(r.Path, prefix) })
	})
	w.door.requests = nil
	testkit.GoldenRequests(w.t, filepath.Join("testdata", "golden", name+".json"), shown, func(text string) string {
		text = strings.ReplaceAll(text, w.url, "http://landscape")
		if w.hidden != nil {
			text = w.hidden.ReplaceAllString(text, `"TIME"`)
		}
		if w.rewritten != nil {
			text = w.rewritten(text)
		}
		for id, name := range w.named {
			text = strings.ReplaceAll(text, id, name)
		}
		return text
	})
}

// goldenOf compares only the requests that are sent while f runs.
func (w *world) goldenOf(name, prefix string, f func()) {
	w.t.Helper()
	w.door.mu.Lock()
	w.door.requests = nil
	w.door.mu.Unlock()
	f()
	w.golden(name, prefix)
}
