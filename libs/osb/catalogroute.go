package osb

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
)

// maxCatalogs limits the cache, because the path contains any region that the client chooses.
const maxCatalogs = 256

func getCatalog(ctx context.Context, x *exchange) (answer, error) {
	c, err := x.loadCatalog(ctx)
	if err != nil {
		return answer{}, err
	}
	entry, err := x.h.catalogs.encoded(x.call.Region, c)
	if err != nil {
		return answer{}, err
	}
	a := answer{status: http.StatusOK, body: encoded(entry.body), header: map[string]string{
		"ETag": entry.etag, "Cache-Control": "private, no-cache",
	}}
	if !c.LastModified.IsZero() {
		a.header["Last-Modified"] = c.LastModified.UTC().Format(http.TimeFormat)
	}
	if unmodified(x.r, entry.etag, c) {
		a.status, a.body = http.StatusNotModified, nil
	}
	return a, nil
}

// unmodified reports whether the client has this catalog. If the request has both headers, the ETag decides.
func unmodified(r *http.Request, etag string, c *Catalog) bool {
	if values := r.Header.Values("If-None-Match"); len(values) > 0 {
		for candidate := range strings.SplitSeq(strings.Join(values, ","), ",") {
			candidate = strings.TrimPrefix(strings.TrimSpace(candidate), "W/")
			if candidate == "*" || candidate == etag {
				return true
			}
		}
		return false
	}
	since, err := http.ParseTime(r.Header.Get("If-Modified-Since"))
	return err == nil && !c.LastModified.IsZero() && c.LastModified.Unix() <= since.Unix()
}

// encoded returns the encoded catalog of a region, from the cache if the catalog is unchanged.
func (cc *catalogCache) encoded(region string, c *Catalog) (catalogEntry, error) {
	cc.mu.Lock()
	defer cc.mu.Unlock()
	if entry := cc.entries[region]; entry.catalog == c {
		return entry, nil
	}
	content := *c
	if content.Services == nil {
		content.Services = []Service{}
	}
	body, err := encode(content)
	if err != nil {
		return catalogEntry{}, fmt.Errorf("encode the catalog: %w", err)
	}
	sum := sha256.Sum256(body)
	entry := catalogEntry{catalog: c, body: body, etag: `"` + hex.EncodeToString(sum[:16]) + `"`}
	if cc.entries == nil || len(cc.entries) >= maxCatalogs {
		cc.entries = make(map[string]catalogEntry)
	}
	cc.entries[region] = entry
	return entry, nil
}
