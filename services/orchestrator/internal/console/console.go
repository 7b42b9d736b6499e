// Package console serves the web page for operators: what is stuck and why, and
// the means to mend it. It is static files; everything that it shows and does
// goes through the operator API of the same origin.
package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"
)

//go:embed static
var files embed.FS

const (
	// Root is where the console is, with the slash at its end.
	Root = "/console/"
	// page is the one document; it shows every view.
	page = "index.html"
	// placeholder stands in the page where the address of the assets goes.
	placeholder = "{assets}"
	// policy lets the page load, run and ask nothing but its own origin, and nobody frame it.
	policy = "default-src 'self'; base-uri 'none'; object-src 'none'; form-action 'self'; frame-ancestors 'none'"
)

// types names the content types, which mime may know differently from machine to machine.
var types = map[string]string{
	".css":  "text/css; charset=utf-8",
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
	".txt":  "text/plain; charset=utf-8",
}

// Console serves the page and its assets.
type Console struct {
	page file
	// assets are the files by path below base. base names the hash of them all, so that a browser may keep what it got for good
	// and modules find each other by relative paths.
	assets map[string]file
	base   string
}

// file is a file in the forms in which it is sent.
type file struct {
	contentType, tag string
	plain            []byte
	// zipped compresses the file the first time it is asked for.
	zipped func() ([]byte, error)
}

// New prepares the files.
func New() (*Console, error) {
	root, err := fs.Sub(files, "static")
	if err != nil {
		return nil, fmt.Errorf("open the console: %w", err)
	}
	return load(root)
}

func load(root fs.FS) (*Console, error) {
	c := &Console{assets: map[string]file{}}
	sum := sha256.New()
	var document []byte
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		if name == page {
			document = content
			return nil
		}
		fmt.Fprintf(sum, "%s %d\n", name, len(content))
		sum.Write(content)
		c.assets[name], err = newFile(name, content)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the console: %w", err)
	}
	c.base = Root + "assets/" + hex.EncodeToString(sum.Sum(nil))[:16] + "/"
	c.page, err = newFile(page, bytes.ReplaceAll(document, []byte(placeholder), []byte(strings.TrimSuffix(c.base, "/"))))
	return c, err
}

func newFile(name string, content []byte) (file, error) {
	contentType := types[path.Ext(name)]
	if contentType == "" {
		contentType = mime.TypeByExtension(path.Ext(name))
	}
	if contentType == "" {
		return file{}, fmt.Errorf("%s: its type is not known", name)
	}
	sum := sha256.Sum256(content)
	return file{
		contentType: contentType, tag: `"` + hex.EncodeToString(sum[:8]) + `"`, plain: content,
		zipped: sync.OnceValues(func() ([]byte, error) { return zip(content) }),
	}, nil
}

func zip(content []byte) ([]byte, error) {
	var zipped bytes.Buffer
	w, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return zipped.Bytes(), nil
}

// Handler serves everything below Root. Every path that is no asset is a view of the page. It answers GET and HEAD, and needs
// no role: the page holds nothing, and what it asks for is asked for with the rights of its user.
func (c *Console) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Root, func(w http.ResponseWriter, r *http.Request) {
		// The page names the assets of this release, so it must be fresh; the tag makes that cheap.
		w.Header().Set("Cache-Control", "no-cache")
		c.page.serve(w, r)
	})
	mux.HandleFunc("GET "+Root+"assets/{hash}/{name...}", func(w http.ResponseWriter, r *http.Request) {
		asset, ok := c.assets[r.PathValue("name")]
		if !ok || r.PathValue("hash") != c.hash() {
			// Also asked for by a page of another release, while it is being replaced: not to be remembered.
			w.Header().Set("Cache-Control", "no-store")
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		asset.serve(w, r)
	})
	return protect(mux)
}

func (c *Console) hash() string { return path.Base(c.base) }

// protect adds what tells a browser how little the console needs.
func protect(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("X-Frame-Options", "DENY")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.ServeHTTP(w, r)
	})
}

// serve answers with the file, or with 304 when the browser has it.
func (f *file) serve(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("ETag", f.tag)
	header.Set("Vary", "Accept-Encoding")
	for tag := range strings.SplitSeq(r.Header.Get("If-None-Match"), ",") {
		if strings.TrimPrefix(strings.TrimSpace(tag), "W/") == f.tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	header.Set("Content-Type", f.contentType)
	body := f.plain
	if acceptsGzip(r.Header.Get("Accept-Encoding")) {
		// What cannot be compressed is sent as it is.
		if zipped, err := f.zipped(); err == nil {
			header.Set("Content-Encoding", "gzip")
			body = zipped
		}
	}
	header.Set("Content-Length", fmt.Sprint(len(body)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the browser has left
	}
}

// acceptsGzip reads an Accept-Encoding header as far as it matters here: gzip is named and not refused.
func acceptsGzip(accepted string) bool {
	for encoding := range strings.SplitSeq(accepted, ",") {
		name, quality, _ := strings.Cut(strings.TrimSpace(encoding), ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			q := strings.ReplaceAll(quality, " ", "")
			return q != "q=0" && !strings.HasPrefix(q, "q=0.0")
		}
	}
	return false
}
