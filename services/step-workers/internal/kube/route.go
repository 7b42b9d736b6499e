package kube

import (
	"net/http"
	"slices"
	"strings"
)

// route returns the path of a request to a Kubernetes API, with {namespace} and {name} for their values, for the names of spans.
func route(r *http.Request) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	begin := slices.IndexFunc(parts, func(p string) bool { return p == "api" || p == "apis" })
	if begin < 0 {
		return ""
	}
	rest := parts[begin:]
	head := 2 // api, version
	if rest[0] == "apis" {
		head = 3 // apis, group, version
	}
	if len(rest) <= head {
		return "/" + strings.Join(rest, "/")
	}
	at := head
	if rest[at] == "namespaces" && len(rest) > at+2 {
		rest[at+1] = "{namespace}"
		at += 2
	}
	if len(rest) > at+1 {
		rest[at+1] = "{name}"
	}
	return "/" + strings.Join(rest, "/")
}
