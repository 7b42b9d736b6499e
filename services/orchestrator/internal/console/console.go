// Package console serves the web page for operators. It shows stuck operations
// with their reasons, and lets an operator act on them. The page consists of static
// files and uses only the operator API of the same origin. Login logs browsers in,
// with a token that the user pastes or at an OpenID Connect issuer.
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
	"strconv"
	"strings"
	"sync"
)

//go:embed static
var files embed.FS

const (
	// Root is the path of the console, with a slash at its end.
	Root = "/console/"
	// page is the only document; it shows every view.
	page = "index.html"
	// placeholder is replaced by the path of the assets in the page.
	placeholder = "{assets}"
	// policy restricts the page to its own origin and forbids frames.
	policy = "default-src 'self'; base-uri 'none'; object-src 'none'; form-action 'self'; frame-ancestors 'none'"
)

// types are the content types, because those of package mime depend on the machine.
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
	// assets are the files by path below base. base contains the hash of all files, so that a browser may cache them forever, and
	// modules import each other by relative paths.
	assets map[string]file
	base   string
}

// file is a file in its encodings.
type file struct {
	contentType, tag string
	plain            []byte
	// zipped compresses the file at the first request.
	zipped func() ([]byte, error)
}

// New loads the files.
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
		return file{}, fmt.Errorf("%s: unknown file type", name)
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

// Handler serves everything below Root. Every path that is not an asset is a view of the page. It accepts GET and HEAD without a role,
// because the page contains no data and calls the API with the rights of its user.
func (c *Console) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Root, func(w http.ResponseWriter, r *http.Request) {
		// The page contains the path of this release's assets, so it must not be cached; the tag makes a new request cheap.
		w.Header().Set("Cache-Control", "no-cache")
		c.page.serve(w, r)
	})
	mux.HandleFunc("GET "+Root+"assets/{hash}/{name...}", func(w http.ResponseWriter, r *http.Request) {
		asset, ok := c.assets[r.PathValue("name")]
		if !ok || r.PathValue("hash") != c.hash() {
			// During a rollout, a page of another release requests this path, too, so the answer must not be cached.
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

// protect adds the headers that restrict the page in the browser.
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

// serve sends the file, or 304 if the browser has it.
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
	if AcceptsGzip(r.Header.Get("Accept-Encoding")) {
		// Send a file that cannot be compressed without compression.
		if zipped, err := f.zipped(); err == nil {
			header.Set("Content-Encoding", "gzip")
			body = zipped
		}
	}
	header.Set("Content-Length", fmt.Sprint(len(body)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the browser has disconnected
	}
}

// AcceptsGzip reports whether an Accept-Encoding header permits gzip.
func AcceptsGzip(accepted string) bool {
	for encoding := range strings.SplitSeq(accepted, ",") {
		name, parameter, _ := strings.Cut(encoding, ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			_, text, isWeighted := strings.Cut(parameter, "=")
			weight, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			return !isWeighted || err == nil && weight > 0
		}
	}
	return false
}
