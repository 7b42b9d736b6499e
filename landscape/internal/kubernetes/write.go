package kubernetes

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.yaml.in/yaml/v3"

	"github.com/kyma-project/keb/landscape/internal/contract"
	"github.com/kyma-project/keb/landscape/internal/journal"
)

// insert stages a new object with the server's metadata.
func (s *System) insert(tx *journal.Tx, c *collection, clusterID, namespace string, body map[string]any) error {
	if err := c.normalize(body); err != nil {
		return err
	}
	meta := metadata(body)
	name, _ := meta["name"].(string)
	if prefix, _ := meta["generateName"].(string); name == "" && prefix != "" {
		name = prefix + uuid.NewString()[:5]
	}
	meta["name"] = name
	if namespace != "" {
		meta["namespace"] = namespace
	}
	if err := c.check(body, nil); err != nil {
		return err
	}
	now := s.now().UTC()
	meta["uid"] = uuid.NewString()
	meta["creationTimestamp"] = now.Format(time.RFC3339)
	meta["generation"] = 1
	o := object{Cluster: clusterID, Namespace: namespace, Name: name}
	if c.ReadyAfter > 0 {
		o.ReadyAt = now.Add(c.ReadyAfter)
		body["status"] = map[string]any{"state": "Processing"}
	}
	if c.Finalizer != "" && !slices.Contains(finalizers(meta), any(c.Finalizer)) {
		meta["finalizers"] = append(finalizers(meta), c.Finalizer)
	}
	return s.store(tx, c, o, body)
}

// normalize sets kind and apiVersion, and merges a Secret's stringData like the server.
func (c *collection) normalize(body map[string]any) error {
	for key, want := range map[string]string{"kind": c.Kind, "apiVersion": c.apiVersion()} {
		if got, ok := body[key]; ok && got != want && got != "" {
			return badRequest("%s is %v, but this path serves %s", key, got, want)
		}
		body[key] = want
	}
	if c.Group != "" || (c.Kind != "Secret" && c.Kind != "ConfigMap") {
		return nil
	}
	given, _ := body["data"].(map[string]any)
	for k, v := range given {
		if _, ok := v.(string); !ok {
			return badRequest("data.%s is not a string", k)
		}
	}
	if c.Kind == "ConfigMap" {
		return nil
	}
	data := maps.Clone(given) // a patch shares it with the object as it was
	if data == nil {
		data = map[string]any{}
	}
	for k, v := range data {
		text, _ := v.(string)
		if _, err := base64.StdEncoding.DecodeString(text); err != nil {
			return badRequest("Secret data.%s is not base64", k)
		}
	}
	if plain, ok := body["stringData"].(map[string]any); ok {
		for k, v := range plain {
			data[k] = base64.StdEncoding.EncodeToString([]byte(fmt.Sprint(v)))
		}
	}
	delete(body, "stringData")
	body["data"] = data
	if body["type"] == nil {
		body["type"] = "Opaque"
	}
	return nil
}

func readObject(r *http.Request) (map[string]any, error) {
	raw, err := contract.Body(r, contract.MaxBody)
	if err != nil {
		return nil, badRequest("%v", err)
	}
	body, err := decodeObject(raw)
	if err != nil || body == nil {
		return nil, badRequest("the body is not a JSON object: %v", err)
	}
	return body, nil
}

func (s *System) create(w http.ResponseWriter, r *http.Request, t target) {
	body, err := readObject(r)
	if err != nil {
		writeError(w, r, err)
		return
	}
	c := t.collection
	meta := metadata(body)
	if namespace, _ := meta["namespace"].(string); namespace != "" && namespace != t.namespace {
		writeError(w, r, badRequest("the namespace of the object (%s) is not that of the request (%s)", namespace, t.namespace))
		return
	}
	t.name, _ = meta["name"].(string)
	if version, _ := meta["resourceVersion"].(string); version != "" {
		writeError(w, r, breaks(http.StatusInternalServerError, "", "resourceVersion should not be set on objects to be created"))
		return
	}
	c.prune(r, body)
	err = s.Update(func(tx *journal.Tx) error {
		if err := s.placeFor(t); err != nil {
			return err
		}
		if _, ok := c.table.Get(t.id()); ok {
			return c.about(http.StatusConflict, "AlreadyExists", t.name, "already exists")
		}
		return s.insert(tx, c, t.cluster, t.namespace, body)
	})
	s.answer(w, r, http.StatusCreated, body, err)
}

// placeFor reports whether a new object's namespace exists.
func (s *System) placeFor(t target) error {
	if !t.collection.Namespaced {
		return nil
	}
	if t.namespace == "" {
		return badRequest("a namespace is required")
	}
	namespaces, ok := s.collections["/v1/namespaces"]
	if !ok {
		return nil
	}
	if _, ok := namespaces.table.Get(object{Cluster: t.cluster, Name: t.namespace}.id()); !ok {
		return namespaces.notFound(t.namespace)
	}
	return nil
}

func (s *System) answer(w http.ResponseWriter, r *http.Request, status int, body map[string]any, err error) {
	if err == nil {
		var raw json.RawMessage
		if raw, err = encodeObject(body); err == nil {
			writeObject(w, status, raw)
			return
		}
	}
	writeError(w, r, err)
}

func (s *System) update(w http.ResponseWriter, r *http.Request, t target) {
	in, err := readObject(r)
	if err != nil {
		writeError(w, r, err)
		return
	}
	if version, _ := metadata(in)["resourceVersion"].(string); t.collection.Custom && version == "" {
		e := t.collection.about(http.StatusUnprocessableEntity, "Invalid", t.name,
			"is invalid: metadata.resourceVersion: Invalid value: 0x0: must be specified for an update")
		e.breach = "metadata.resourceVersion: must be specified for an update"
		writeError(w, r, e)
		return
	}
	t.collection.prune(r, in)
	var out map[string]any
	err = s.Update(func(tx *journal.Tx) error {
		out, err = s.replace(tx, t, func(map[string]any) (map[string]any, error) { return in, nil })
		return err
	})
	s.answer(w, r, http.StatusOK, out, err)
}

func (s *System) patch(w http.ResponseWriter, r *http.Request, t target) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		kind = r.Header.Get("Content-Type")
	}
	change, err := readPatch(r, kind)
	if err == nil && t.collection.Custom && kind == strategicPatch {
		err = breaks(http.StatusUnsupportedMediaType, "UnsupportedMediaType", "header Content-Type: custom resources take no %s", kind)
	}
	if err == nil && kind == applyPatch && r.URL.Query().Get("fieldManager") == "" {
		err = breaks(http.StatusUnprocessableEntity, "Invalid", "query parameter fieldManager: required for an apply patch")
	}
	if err != nil {
		writeError(w, r, err)
		return
	}
	t.collection.prune(r, change)
	status := http.StatusOK
	var out map[string]any
	err = s.Update(func(tx *journal.Tx) error {
		_, exists := t.collection.table.Get(t.id())
		if !exists && kind == applyPatch {
			status, out = http.StatusCreated, change
			metadata(change)["name"] = t.name
			if err := s.placeFor(t); err != nil {
				return err
			}
			return s.insert(tx, t.collection, t.cluster, t.namespace, change)
		}
		out, err = s.replace(tx, t, func(old map[string]any) (map[string]any, error) {
			merged, _ := merge(old, change).(map[string]any)
			return merged, nil
		})
		return err
	})
	s.answer(w, r, status, out, err)
}

const (
	applyPatch     = "application/apply-patch+yaml"
	strategicPatch = "application/strategic-merge-patch+json"
)

// readPatch accepts merge patches. It also merges strategic and apply patches as merge patches, so their lists replace lists.
func readPatch(r *http.Request, kind string) (map[string]any, error) {
	switch kind {
	case "application/merge-patch+json", strategicPatch:
		return readObject(r)
	case applyPatch:
		raw, err := contract.Body(r, contract.MaxBody)
		if err != nil {
			return nil, badRequest("%v", err)
		}
		if json.Valid(raw) {
			return decodeObject(raw)
		}
		var doc map[string]any
		if err := yaml.Unmarshal(raw, &doc); err != nil {
			return nil, badRequest("the patch is not YAML: %v", err)
		}
		if raw, err = json.Marshal(doc); err != nil {
			return nil, badRequest("the patch is not an object: %v", err)
		}
		return decodeObject(raw)
	default:
		return nil, breaks(http.StatusUnsupportedMediaType, "UnsupportedMediaType",
			"patch type %q is not served, use application/merge-patch+json or %s", kind, applyPatch)
	}
}

// merge applies an RFC 7386 merge patch without changing old.
func merge(old, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	base, _ := old.(map[string]any)
	out := maps.Clone(base)
	if out == nil {
		out = map[string]any{}
	}
	for k, v := range changes {
		if v == nil {
			delete(out, k)
			continue
		}
		out[k] = merge(out[k], v)
	}
	return out
}

// replace stages the changed object. It keeps the server's fields, changes the status only through the status subresource, rejects an old
// resourceVersion with a conflict, and creates no new version for an unchanged object.
func (s *System) replace(tx *journal.Tx, t target, change func(old map[string]any) (map[string]any, error)) (map[string]any, error) {
	c := t.collection
	o, ok := c.table.Get(t.id())
	if !ok {
		return nil, c.notFound(t.name)
	}
	old, err := decodeObject(o.Body)
	if err != nil {
		return nil, err
	}
	body, err := change(old)
	if err != nil {
		return nil, err
	}
	oldMeta, meta := metadata(old), maps.Clone(metadata(body))
	if name, _ := meta["name"].(string); name != "" && name != t.name {
		return nil, badRequest("the name of the object (%s) is not that of the request (%s)", name, t.name)
	}
	if version, _ := meta["resourceVersion"].(string); version != "" && version != oldMeta["resourceVersion"] {
		return nil, c.conflict(t.name)
	}
	if uid, _ := meta["uid"].(string); uid != "" && uid != oldMeta["uid"] {
		return nil, c.conflict(t.name)
	}
	body = maps.Clone(body)
	if t.subresource == "status" {
		status := body["status"]
		body = maps.Clone(old)
		body["status"] = status
		meta = maps.Clone(oldMeta)
	} else if old["status"] != nil {
		body["status"] = old["status"]
	} else if c.Group != "" {
		delete(body, "status")
	}
	for _, key := range []string{"name", "namespace", "uid", "creationTimestamp", "generation", "resourceVersion", "deletionTimestamp"} {
		delete(meta, key)
		if v, ok := oldMeta[key]; ok {
			meta[key] = v
		}
	}
	body["metadata"] = meta
	if err := c.normalize(body); err != nil {
		return nil, err
	}
	if err := c.check(body, old); err != nil {
		return nil, err
	}
	if deleting(meta) && len(finalizers(meta)) == 0 && o.GoneAt.IsZero() {
		return body, c.table.Delete(tx, o.id())
	}
	if reflect.DeepEqual(old, body) {
		return body, nil
	}
	if n, ok := meta["generation"].(json.Number); ok && !reflect.DeepEqual(old["spec"], body["spec"]) {
		generation, _ := n.Int64()
		meta["generation"] = generation + 1
	}
	return body, s.store(tx, c, o, body)
}
