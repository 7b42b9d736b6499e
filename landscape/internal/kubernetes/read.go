package kubernetes

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

func writeObject(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// The status is sent, so a write error cannot be reported to the client.
	_, _ = w.Write(body)
}

func (s *System) get(w http.ResponseWriter, r *http.Request, t target) {
	var o object
	var ok bool
	s.View(func() { o, ok = t.collection.table.Get(t.id()) })
	if !ok {
		writeError(w, r, t.collection.notFound(t.name))
		return
	}
	writeObject(w, http.StatusOK, o.Body)
}

func (t target) id() string {
	return object{Cluster: t.cluster, Namespace: t.namespace, Name: t.name}.id()
}

// list answers ordered by namespace and name, in pages by limit and continue.
func (s *System) list(w http.ResponseWriter, r *http.Request, t target) {
	q := r.URL.Query()
	if watch, _ := strconv.ParseBool(q.Get("watch")); watch {
		writeError(w, r, breaks(http.StatusMethodNotAllowed, "MethodNotAllowed", "watch is not served here, list again"))
		return
	}
	limit, err := strconv.Atoi(q.Get("limit"))
	if q.Get("limit") != "" && (err != nil || limit < 0) {
		writeError(w, r, badRequest("limit %q is not a number from 0", q.Get("limit")))
		return
	}
	after, err := base64.RawURLEncoding.DecodeString(q.Get("continue"))
	if err != nil {
		writeError(w, r, badRequest("the continue token is not one of this server"))
		return
	}
	found, version, err := s.selected(t, q.Get("labelSelector"), q.Get("fieldSelector"))
	if err != nil {
		writeError(w, r, err)
		return
	}
	page := slices.DeleteFunc(found, func(o object) bool { return len(after) > 0 && o.Namespace+"/"+o.Name <= string(after) })
	meta := fmt.Sprintf(`{"resourceVersion":"%d"}`, version)
	if limit > 0 && len(page) > limit {
		last := page[limit-1]
		token := base64.RawURLEncoding.EncodeToString([]byte(last.Namespace + "/" + last.Name))
		meta = fmt.Sprintf(`{"resourceVersion":"%d","continue":%q,"remainingItemCount":%d}`, version, token, len(page)-limit)
		page = page[:limit]
	}
	var buf bytes.Buffer
	fmt.Fprintf(&buf, `{"kind":"%sList","apiVersion":%q,"metadata":%s,"items":[`, t.collection.Kind, t.collection.apiVersion(), meta)
	for i, o := range page {
		if i > 0 {
			buf.WriteByte(',')
		}
		buf.Write(o.Body)
	}
	buf.WriteString("]}\n")
	writeObject(w, http.StatusOK, buf.Bytes())
}

// selected returns the objects of a list or a deletecollection request, in order, and the version of the store.
func (s *System) selected(t target, labelSelector, fields string) ([]object, int64, error) {
	selector, err := labels.Parse(labelSelector)
	if err != nil {
		return nil, 0, badRequest("unable to parse requirement: %v", err)
	}
	byField := map[string]string{}
	for term := range strings.SplitSeq(fields, ",") {
		key, value, ok := strings.Cut(strings.Replace(term, "==", "=", 1), "=")
		if fields == "" {
			break
		}
		if !ok || (key != "metadata.name" && key != "metadata.namespace") {
			return nil, 0, badRequest("field selector %q is not supported, use metadata.name= or metadata.namespace=", term)
		}
		byField[key] = value
	}
	var found []object
	var version int64
	s.View(func() {
		version = s.Seq()
		objects := t.collection.byCluster[t.cluster]
		for o := range maps.Values(objects) {
			name, byName := byField["metadata.name"]
			namespace, byNamespace := byField["metadata.namespace"]
			switch {
			case t.namespace != "" && o.Namespace != t.namespace,
				byName && o.Name != name, byNamespace && o.Namespace != namespace,
				!selector.Matches(labels.Set(o.Labels)):
			default:
				found = append(found, o)
			}
		}
	})
	slices.SortFunc(found, func(a, b object) int { return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name) })
	return found, version, nil
}
