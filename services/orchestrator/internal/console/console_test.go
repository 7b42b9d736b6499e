package console

import (
	"compress/gzip"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func setup(t *testing.T) (*Console, http.Handler) {
	t.Helper()
	c, err := New()
	require.NoError(t, err)
	return c, c.Handler()
}

func ask(t *testing.T, h http.Handler, method, url string, header map[string]string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, url, nil)
	for name, value := range header {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return string(text)
}

func TestConsole_ViewPath_ServesPage(t *testing.T) {
	t.Parallel()
	_, h := setup(t)
	for _, url := range []string{"/console/", "/console/operations?state=failed", "/console/operations/some-id", "/console/processes/provision"} {
		r := ask(t, h, http.MethodGet, url, nil)
		if r.StatusCode != http.StatusOK || r.Header.Get("Content-Type") != "text/html; charset=utf-8" {
			t.Errorf("%s: %s %s", url, r.Status, r.Header.Get("Content-Type"))
		}
		if text := body(t, r); strings.Contains(text, placeholder) || !strings.Contains(text, "main.js") {
			t.Errorf("%s: the path of the assets is missing:\n%s", url, text)
		}
	}
}

func TestConsole_Policy_PermitsOnlyOwnOrigin(t *testing.T) {
	t.Parallel()
	c, h := setup(t)
	for _, url := range []string{"/console/", c.base + "main.js", c.base + "missing.js"} {
		header := ask(t, h, http.MethodGet, url, nil).Header
		for name, want := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
		} {
			if header.Get(name) != want {
				t.Errorf("%s: %s is %q, not %q", url, name, header.Get(name), want)
			}
		}
	}
}

func TestConsole_CacheHeaders_CacheOnlyAssets(t *testing.T) {
	t.Parallel()
	c, h := setup(t)
	page := ask(t, h, http.MethodGet, "/console/", nil)
	if page.Header.Get("Cache-Control") != "no-cache" {
		t.Errorf("page: Cache-Control %q", page.Header.Get("Cache-Control"))
	}
	asset := ask(t, h, http.MethodGet, c.base+"views/overview.js", nil)
	if !strings.Contains(asset.Header.Get("Cache-Control"), "immutable") || asset.Header.Get("Content-Type") != "text/javascript; charset=utf-8" {
		t.Errorf("asset: %v", asset.Header)
	}
	for url, tag := range map[string]string{"/console/": page.Header.Get("ETag"), c.base + "views/overview.js": asset.Header.Get("ETag")} {
		for value, want := range map[string]int{tag: 304, `W/` + tag: 304, `"other", ` + tag: 304, `"other"`: 200} {
			r := ask(t, h, http.MethodGet, url, map[string]string{"If-None-Match": value})
			if r.StatusCode != want || r.StatusCode == 304 && body(t, r) != "" {
				t.Errorf("%s with If-None-Match %s: %s, want %d", url, value, r.Status, want)
			}
		}
	}
}

func TestConsole_OtherRelease_AssetsAreNotFound(t *testing.T) {
	t.Parallel()
	c, h := setup(t)
	for _, url := range []string{
		"/console/assets/0123456789abcdef/main.js", c.base + "missing.js", c.base + "index.html", c.base, c.base + "%2e%2e/console.go",
	} {
		r := ask(t, h, http.MethodGet, url, nil)
		if r.StatusCode != http.StatusNotFound || r.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %s, Cache-Control %q", url, r.Status, r.Header.Get("Cache-Control"))
		}
	}
	if r := ask(t, h, http.MethodPost, "/console/", nil); r.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %s", r.Status)
	}
	if r := ask(t, h, http.MethodHead, "/console/", nil); r.StatusCode != http.StatusOK || body(t, r) != "" {
		t.Errorf("HEAD: %s", r.Status)
	}
}

func TestConsole_AssetPath_DependsOnContent(t *testing.T) {
	t.Parallel()
	of := func(script string) string {
		c, err := load(fstest.MapFS{"index.html": {Data: []byte("{assets}/a.js")}, "a.js": {Data: []byte(script)}})
		require.NoError(t, err)
		if got, want := string(c.page.plain), c.base+"a.js"; got != want {
			t.Errorf("the page has %q, not %q", got, want)
		}
		return c.base
	}
	first, other, again := of("1"), of("2"), of("1")
	if first == other || first != again {
		t.Error("the path does not depend on the content")
	}
	if _, err := load(fstest.MapFS{"index.html": {}, "strange.zzz": {}}); err == nil {
		t.Error("a file without a content type is served")
	}
}

func TestConsole_AcceptEncoding_CompressesAnswers(t *testing.T) {
	t.Parallel()
	c, h := setup(t)
	plain := body(t, ask(t, h, http.MethodGet, c.base+"console.css", nil))
	for accepted, zipped := range map[string]bool{
		"gzip": true, "deflate, GZIP;q=0.5, br": true, "": false, "br": false, "gzip;q=0": false, "gzip; q=0.0": false, "xgzip": false,
		"gzip;q=0.": false, "br, gzip;Q=0": false, "gzip;\tq=0": false, "gzip;q=x": false, "gzip;q=0.05": true, "gzip ; q = 1": true,
	} {
		r := ask(t, h, http.MethodGet, c.base+"console.css", map[string]string{"Accept-Encoding": accepted})
		var reader io.Reader = r.Body
		if r.Header.Get("Content-Encoding") == "gzip" != zipped {
			t.Errorf("Accept-Encoding %q: Content-Encoding %q", accepted, r.Header.Get("Content-Encoding"))
		}
		if r.Header.Get("Content-Encoding") == "gzip" {
			unzipped, err := gzip.NewReader(r.Body)
			require.NoError(t, err)
			reader = unzipped
		}
		text, err := io.ReadAll(reader)
		if err != nil || string(text) != plain {
			t.Errorf("Accept-Encoding %q: different text, %v", accepted, err)
		}
	}
}

// The browser tests show that the page loads nothing from other origins; this test shows the reason.
func TestConsole_Files_HaveNoForeignOriginOrInlineCode(t *testing.T) {
	t.Parallel()
	c, _ := setup(t)
	texts := map[string]string{page: string(c.page.plain)}
	for name, f := range c.assets {
		if !strings.HasPrefix(name, "vendor/") { // Preact sets HTML only on request, and no file requests it
			texts[name] = string(f.plain)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		text := texts[name]
		for _, address := range regexp.MustCompile(`(https?:)?//[a-z][a-z0-9.-]+\.[a-z]+[^\s"']*`).FindAllString(text, -1) {
			if address != "http://www.w3.org/2000/svg" {
				t.Errorf("%s contains %s", name, address)
			}
		}
		for _, word := range []string{"innerHTML", "dangerouslySetInnerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "setAttribute('style'"} {
			if strings.Contains(text, word) {
				t.Errorf("%s has %s: text must only ever become text", name, word)
			}
		}
	}
	if regexp.MustCompile(`(?i)<script[^>]*>[^<]|<style|\son[a-z]+=|style=`).MatchString(texts[page]) {
		t.Error("the page has inline code or style, which its policy forbids")
	}
}

func TestConsole_Imports_Exist(t *testing.T) {
	t.Parallel()
	c, _ := setup(t)
	imports := regexp.MustCompile(`(?m)^(?:import|export) .*from '([^']+)'`)
	imported := map[string]bool{"main.js": true, "boot.js": true}
	for name, f := range c.assets {
		for _, match := range imports.FindAllStringSubmatch(string(f.plain), -1) {
			target := path.Join(path.Dir(name), match[1])
			imported[target] = true
			if _, ok := c.assets[target]; !ok {
				t.Errorf("%s imports %s, which does not exist", name, match[1])
			}
		}
	}
	root, err := fs.Sub(files, "static")
	require.NoError(t, err)
	scripts, err := fs.Glob(root, "*.js")
	require.NoError(t, err)
	views, err := fs.Glob(root, "views/*.js")
	require.NoError(t, err)
	for _, name := range append(scripts, views...) {
		if !imported[name] {
			t.Errorf("no file imports %s", name)
		}
	}
}
