// Package kubernetes simulates Kubernetes API servers: the part of the REST API with which client-go's dynamic client and plain HTTP clients
// get, list, create, update, patch and delete objects of the configured resources. It has no watch, no admission, and no controllers other
// than those that Resource describes.
package kubernetes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/kyma-project/keb/landscape/internal/journal"
)

// Resource is a served kind of objects.
type Resource struct {
	Group      string // "" for the core group
	Version    string
	Plural     string
	Kind       string
	Namespaced bool
	// Custom resources require a resource version for updates, and have no strategic patches.
	Custom bool
	// Schema is the schema of the resource's definition; nil accepts every content.
	Schema *Schema
	// ConfirmDelete requires the annotation confirmation.gardener.cloud/deletion for a deletion
	// (docs/contracts/gardener.md#shoots).
	ConfirmDelete bool
	// ReadyAfter, unless it is zero, is the time after which status.state of a new object changes from Processing to Ready.
	ReadyAfter time.Duration
	// ReadyWith, unless it is nil, is an object that is required for Ready.
	ReadyWith *Need
	// Finalizer, unless it is empty, is set on each object. It is removed after GoneAfter.
	Finalizer string
	// GoneAfter, unless it is zero, is how long a deleted object stays, marked as being deleted.
	GoneAfter time.Duration
	// Cleanup, unless it is nil, releases marked objects.
	Cleanup *Cleanup
	// Tokens serves the subresource token, which issues tokens for this API.
	Tokens bool
}

// Need describes a required object in the same namespace: its resource is "group/version/plural", its Label contains the name of the first
// object, and its data contains Key.
type Need struct{ Resource, Label, Key string }

// Cleanup is a job that removes labels from marked objects after a delay, unless other objects refer to them.
type Cleanup struct {
	// Mark is the label that marks an object with the value "true". It is removed together with the labels in Also.
	Mark string
	Also []string
	// After is the delay after the mark, and the interval of further checks.
	After time.Duration
	// Referrer is the resource ("group/version/plural") whose spec may refer to an object of the same cluster and namespace in Field.
	Referrer, Field string
}

// Config configures one system.
type Config struct {
	Name   string // of the system
	Prefix string // path in front of /api and /apis, e.g. "/k8s/gardener"
	// PerRuntime serves one cluster for each id after the prefix, each with its own token.
	PerRuntime bool
	Token      string // of the single cluster
	// Namespaces exist in every cluster from the start.
	Namespaces []string
	Resources  []Resource
}

// object is a stored object with the data for look-ups.
type object struct {
	Cluster   string            `json:"cluster,omitempty"`
	Namespace string            `json:"namespace,omitempty"`
	Name      string            `json:"name"`
	Labels    map[string]string `json:"labels,omitempty"`
	Body      json.RawMessage   `json:"body"`
	ReadyAt   time.Time         `json:"readyAt,omitzero"`
	GoneAt    time.Time         `json:"goneAt,omitzero"`
	CleanAt   time.Time         `json:"cleanAt,omitzero"`
}

func (o object) id() string { return o.Cluster + "/" + o.Namespace + "/" + o.Name }

// cluster is a row of the clusters of a PerRuntime system.
type cluster struct {
	ID    string `json:"id"`
	Token string `json:"token"`
}

type collection struct {
	Resource
	table *journal.Table[object]
	// byCluster is the index for lists: cluster -> "namespace/name" -> object.
	byCluster map[string]map[string]object
}

// System is the simulator.
type System struct {
	*journal.Store
	cfg         Config
	now         func() time.Time
	clusters    *journal.Table[cluster]
	collections map[string]*collection // by group/version/plural
	due         journal.Queue          // "group/version/plural|id"
}

// New opens the simulator's journal at path ("" keeps all data in memory).
func New(cfg Config, path string, now func() time.Time) (*System, error) {
	s := &System{cfg: cfg, now: now, clusters: journal.NewTable[cluster]("cluster"), collections: map[string]*collection{}}
	tables := []journal.AnyTable{s.clusters}
	for _, res := range cfg.Resources {
		c := &collection{Resource: res, table: journal.NewTable[object](res.Kind), byCluster: map[string]map[string]object{}}
		c.table.OnChange(func(_ string, o object, gone bool) { s.index(c, o, gone) })
		s.collections[c.key()] = c
		tables = append(tables, c.table)
	}
	store, err := journal.Open(path, tables...)
	if err != nil {
		return nil, err
	}
	s.Store = store
	if !cfg.PerRuntime {
		return s, s.addNamespaces("")
	}
	return s, nil
}

func (c *collection) key() string { return c.Group + "/" + c.Version + "/" + c.Plural }

func (c *collection) apiVersion() string {
	return strings.TrimPrefix(c.Group+"/"+c.Version, "/")
}

func (s *System) index(c *collection, o object, gone bool) {
	objects := c.byCluster[o.Cluster]
	if gone {
		delete(objects, o.Namespace+"/"+o.Name)
		if len(objects) == 0 {
			delete(c.byCluster, o.Cluster)
		}
		return
	}
	if objects == nil {
		objects = map[string]object{}
		c.byCluster[o.Cluster] = objects
	}
	objects[o.Namespace+"/"+o.Name] = o
	for _, at := range []time.Time{o.ReadyAt, o.GoneAt, o.CleanAt} {
		if !at.IsZero() {
			s.due.Add(at, c.key()+"|"+o.id())
		}
	}
}

// Update performs the due changes and then changes the store.
func (s *System) Update(change func(tx *journal.Tx) error) error {
	if err := s.settle(); err != nil {
		return err
	}
	return s.Store.Update(change)
}

// settle makes objects ready, removes or releases them when that is due.
func (s *System) settle() error {
	now := s.now()
	for more := true; more; {
		err := s.Store.Update(func(tx *journal.Tx) error {
			if more = s.due.Due(now); !more {
				return nil
			}
			_, what := s.due.Next()
			key, id, _ := strings.Cut(what, "|")
			s.due.Drop()
			c := s.collections[key]
			o, ok := c.table.Get(id)
			switch {
			case !ok:
				return nil
			case !o.GoneAt.IsZero() && !o.GoneAt.After(now):
				body, err := decodeObject(o.Body)
				if err != nil {
					return err
				}
				c.release(metadata(body))
				if len(finalizers(metadata(body))) == 0 {
					return c.table.Delete(tx, id)
				}
				o.GoneAt = time.Time{}
				return s.store(tx, c, o, body)
			case !o.ReadyAt.IsZero() && !o.ReadyAt.After(now):
				if met, err := s.met(c.ReadyWith, o); err != nil || !met {
					o.ReadyAt = now.Add(c.ReadyAfter)
					return errors.Join(err, c.table.Put(tx, id, o))
				}
				o.ReadyAt = time.Time{}
				body, err := decodeObject(o.Body)
				if err != nil {
					return err
				}
				body["status"] = map[string]any{"state": "Ready"}
				return s.store(tx, c, o, body)
			case !o.CleanAt.IsZero() && !o.CleanAt.After(now):
				return s.clean(tx, c, o)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("settle %s: %w", s.cfg.Name, err)
		}
	}
	return nil
}

// met reports whether the required object exists.
func (s *System) met(need *Need, o object) (bool, error) {
	if need == nil {
		return true, nil
	}
	c, ok := s.collections[need.Resource]
	if !ok {
		return false, fmt.Errorf("resource %s is not served", need.Resource)
	}
	for _, other := range c.byCluster[o.Cluster] {
		if other.Namespace != o.Namespace || other.Labels[need.Label] != o.Name {
			continue
		}
		body, err := decodeObject(other.Body)
		if err != nil {
			return false, err
		}
		if data, _ := body["data"].(map[string]any); data[need.Key] != nil {
			return true, nil
		}
	}
	return false, nil
}

// store stages the body as the next version of o.
func (s *System) store(tx *journal.Tx, c *collection, o object, body map[string]any) error {
	meta := metadata(body)
	meta["resourceVersion"] = fmt.Sprint(tx.Next())
	o.Labels = stringMap(meta["labels"])
	switch {
	case c.Cleanup == nil || o.Labels[c.Cleanup.Mark] != "true":
		o.CleanAt = time.Time{}
	case o.CleanAt.IsZero():
		o.CleanAt = s.now().UTC().Add(c.Cleanup.After)
	}
	raw, err := encodeObject(body)
	if err != nil {
		return err
	}
	o.Body = raw
	return c.table.Put(tx, o.id(), o)
}

// Objects lists all objects for the admin API. The id is cluster/namespace/name.
func (s *System) Objects() ([]journal.Object, error) {
	if err := s.settle(); err != nil {
		return nil, err
	}
	rows, err := s.Store.Objects()
	if err != nil {
		return nil, err
	}
	for i, row := range rows {
		if row.Kind == "cluster" {
			continue
		}
		var o object
		if err := json.Unmarshal(row.Data, &o); err != nil {
			return nil, fmt.Errorf("list %s: %w", row.Kind, err)
		}
		rows[i].ID = strings.Trim(row.ID, "/")
		rows[i].Data = o.Body
	}
	return rows, nil
}

// AddCluster opens the API of a runtime. It is idempotent.
func (s *System) AddCluster(id, token string) error {
	var exists bool
	s.View(func() { _, exists = s.clusters.Get(id) })
	if exists {
		return nil
	}
	if err := s.addNamespaces(id); err != nil {
		return err
	}
	return s.Update(func(tx *journal.Tx) error { return s.clusters.Put(tx, id, cluster{ID: id, Token: token}) })
}

// RemoveCluster closes the API of a runtime and removes its objects.
func (s *System) RemoveCluster(id string) error {
	return s.Update(func(tx *journal.Tx) error {
		for _, c := range s.collections {
			for _, o := range c.byCluster[id] {
				if err := c.table.Delete(tx, o.id()); err != nil {
					return err
				}
			}
		}
		return s.clusters.Delete(tx, id)
	})
}

func (s *System) addNamespaces(cluster string) error {
	for _, name := range s.cfg.Namespaces {
		err := s.Ensure(cluster, "/v1/namespaces", map[string]any{"metadata": map[string]any{"name": name}})
		if err != nil {
			return err
		}
	}
	return nil
}

// Ensure creates the object unless it exists. resource is "group/version/plural".
func (s *System) Ensure(clusterID, resource string, body map[string]any) error {
	c, ok := s.collections[resource]
	if !ok {
		return fmt.Errorf("ensure object: resource %s is not served", resource)
	}
	return s.Update(func(tx *journal.Tx) error {
		meta := metadata(body)
		namespace, _ := meta["namespace"].(string)
		name, _ := meta["name"].(string)
		if _, ok := c.table.Get(object{Cluster: clusterID, Namespace: namespace, Name: name}.id()); ok {
			return nil
		}
		return s.insert(tx, c, clusterID, namespace, body)
	})
}

// Remove removes an object regardless of finalizers. An unknown one is not an error.
func (s *System) Remove(clusterID, resource, namespace, name string) error {
	c, ok := s.collections[resource]
	if !ok {
		return fmt.Errorf("remove object: resource %s is not served", resource)
	}
	return s.Update(func(tx *journal.Tx) error {
		return c.table.Delete(tx, object{Cluster: clusterID, Namespace: namespace, Name: name}.id())
	})
}

func decodeObject(raw []byte) (map[string]any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber() // keeps the precision of 64-bit integers
	var body map[string]any
	if err := dec.Decode(&body); err != nil {
		return nil, fmt.Errorf("decode object: %w", err)
	}
	return body, nil
}

func encodeObject(body map[string]any) (json.RawMessage, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(body); err != nil {
		return nil, fmt.Errorf("encode object: %w", err)
	}
	return bytes.TrimRight(buf.Bytes(), "\n"), nil
}

// metadata returns the object's metadata, and creates it if it is missing.
func metadata(body map[string]any) map[string]any {
	meta, ok := body["metadata"].(map[string]any)
	if !ok {
		meta = map[string]any{}
		body["metadata"] = meta
	}
	return meta
}

func stringMap(v any) map[string]string {
	in, _ := v.(map[string]any)
	if len(in) == 0 {
		return nil
	}
	out := make(map[string]string, len(in))
	for k, v := range in {
		out[k], _ = v.(string)
	}
	return out
}

var _ http.Handler = (*System)(nil)
