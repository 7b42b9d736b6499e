// Package reconciler simulates the Reconciler (mothership): it receives the desired Kyma of a cluster and reaches it after a
// delay (docs/contracts/reconciler.md#statuses).
package reconciler

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/kyma-project/keb/landscape/internal/contract"
	"github.com/kyma-project/keb/landscape/internal/journal"
)

// Name is the name of the system and the first part of its paths.
const Name = "reconciler"

// maxBody is the real server's limit of a body, in bytes.
const maxBody = 100_000

// Statuses of a cluster (docs/contracts/reconciler.md#statuses).
const (
	Pending        = "reconcile_pending"
	Reconciling    = "reconciling"
	ErrorRetryable = "reconcile_error_retryable"
	Ready          = "ready"
	Failed         = "error"
	Disabled       = "reconcile_disabled"
	DeletePending  = "delete_pending"
	Deleting       = "deleting"
	DeleteRetrying = "delete_error_retryable"
	DeleteFailed   = "delete_error"
	Deleted        = "deleted"
)

// Config contains the durations.
type Config struct {
	ReconcileTime time.Duration // from an apply to ready; a deletion takes half of it
	ExternalURL   string        // of the landscape in status URLs; "" takes the host of the request
}

// Change is a change of a cluster's status. A time in the future means that it is planned.
type Change struct {
	At     time.Time `json:"at"`
	Status string    `json:"status"`
	// Version is the configuration version of the change; 0 means every version.
	Version int64 `json:"version,omitempty"`
}

// Cluster is a cluster with its applied configurations and its changes.
type Cluster struct {
	RuntimeID            string          `json:"runtimeID"`
	RuntimeInput         json.RawMessage `json:"runtimeInput,omitempty"`
	KymaConfig           json.RawMessage `json:"kymaConfig,omitempty"`
	Metadata             json.RawMessage `json:"metadata,omitempty"`
	Kubeconfig           string          `json:"kubeconfig"`
	ClusterVersion       int64           `json:"clusterVersion"`
	ConfigurationVersion int64           `json:"configurationVersion"`
	Versions             []int64         `json:"versions"` // every configuration version so far
	Changes              []Change        `json:"changes"`
	Failures             []Problem       `json:"failures,omitempty"`
}

// Problem is the reason why a component is not installed.
type Problem struct {
	Component string `json:"component"`
	Reason    string `json:"reason"`
}

var errNotFound = &contract.StatusError{Status: http.StatusNotFound, Message: "cluster not found"}

// System is the simulator.
type System struct {
	*journal.Store
	cfg      Config
	now      func() time.Time
	clusters *journal.Table[Cluster]
	failures *journal.Table[Failure]
	due      journal.Queue
}

// New opens the simulator's journal at path ("" keeps all data in memory).
func New(cfg Config, path string, now func() time.Time) (*System, error) {
	s := &System{cfg: cfg, now: now, clusters: journal.NewTable[Cluster]("cluster"), failures: journal.NewTable[Failure]("failure")}
	s.clusters.OnChange(func(id string, c Cluster, gone bool) {
		if last := c.last(); !gone && last.Status == Deleted {
			s.due.Add(last.At, id)
		}
	})
	store, err := journal.Open(path, s.clusters, s.failures)
	if err != nil {
		return nil, err
	}
	s.Store = store
	return s, nil
}

// Handler serves the paths under /reconciler, without authentication inside the mesh.
func (s *System) Handler() http.Handler {
	const cluster = "/reconciler/v1/clusters/{id}"
	mux := http.NewServeMux()
	mux.HandleFunc("POST /reconciler/v1/clusters", s.apply)
	mux.HandleFunc("PUT /reconciler/v1/clusters", s.apply)
	mux.HandleFunc("DELETE "+cluster, s.delete)
	mux.HandleFunc("GET "+cluster+"/status", s.status)
	mux.HandleFunc("PUT "+cluster+"/status", s.setStatus)
	mux.HandleFunc("GET "+cluster+"/configs/{version}/status", s.status)
	mux.HandleFunc("GET "+cluster+"/statusChanges", s.statusChanges)
	for _, path := range []string{"/reconciler/health/live", "/reconciler/health/ready"} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.settle(); err != nil {
			contract.Error(w, http.StatusInternalServerError, "%v", err)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// Objects lists the current data of the system.
func (s *System) Objects() ([]journal.Object, error) {
	if err := s.settle(); err != nil {
		return nil, err
	}
	return s.Store.Objects()
}

// settle removes the clusters whose deletion has ended.
func (s *System) settle() error {
	now := s.now()
	for more := true; more; {
		err := s.Update(func(tx *journal.Tx) error {
			if more = s.due.Due(now); !more {
				return nil
			}
			_, id := s.due.Next()
			s.due.Drop()
			c, ok := s.clusters.Get(id)
			if last := c.last(); !ok || last.Status != Deleted || last.At.After(now) {
				return nil
			}
			return s.clusters.Delete(tx, id)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (c Cluster) last() Change {
	if len(c.Changes) == 0 {
		return Change{}
	}
	return c.Changes[len(c.Changes)-1]
}

// current returns the status of the cluster's configuration version at a time.
func (c Cluster) current(now time.Time) string {
	status := ""
	for _, change := range c.Changes {
		if change.At.After(now) {
			break
		}
		if change.Version == 0 || change.Version == c.ConfigurationVersion {
			status = change.Status
		}
	}
	return status
}

// past removes planned changes.
func (c Cluster) past(now time.Time) []Change {
	return slices.DeleteFunc(slices.Clone(c.Changes), func(change Change) bool { return change.At.After(now) })
}

func (s *System) view(r *http.Request, c Cluster) map[string]any {
	base := s.cfg.ExternalURL
	if base == "" {
		base = contract.BaseURL(r)
	}
	status := c.current(s.now())
	var failures []Problem // null in every other status, as the real server answers
	if slices.Contains([]string{Failed, Reconciling, Deleting, DeleteFailed}, status) {
		failures = c.Failures
	}
	return map[string]any{
		"cluster": c.RuntimeID, "clusterVersion": c.ClusterVersion, "configurationVersion": c.ConfigurationVersion,
		"status": status, "failures": failures,
		"statusURL": fmt.Sprintf("%s/reconciler/v1/clusters/%s/configs/%d/status", base, c.RuntimeID, c.ConfigurationVersion),
	}
}

func (s *System) reply(w http.ResponseWriter, r *http.Request, c Cluster, err error) {
	contract.Reply(w, err, http.StatusOK, s.view(r, c))
}

func (s *System) status(w http.ResponseWriter, r *http.Request) {
	c, err := s.get(r.PathValue("id"))
	if text := r.PathValue("version"); err == nil && text != "" {
		version, parseErr := strconv.ParseInt(text, 10, 64)
		if parseErr != nil {
			contract.Error(w, http.StatusBadRequest, "configuration version %q is not a number", text)
			return
		}
		if !slices.Contains(c.Versions, version) {
			err = errNotFound
		}
		c.ConfigurationVersion = version
	}
	s.reply(w, r, c, err)
}

func (s *System) get(id string) (Cluster, error) {
	var c Cluster
	var ok bool
	s.View(func() { c, ok = s.clusters.Get(id) })
	if !ok {
		return c, errNotFound
	}
	return c, nil
}

var statuses = []string{
	Pending, Reconciling, ErrorRetryable, Ready, Failed, Disabled, DeletePending, Deleting, DeleteRetrying, DeleteFailed, Deleted,
}

// setStatus sets any status of a cluster. A pending one is reconciled as usual.
func (s *System) setStatus(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Status string `json:"status"`
	}
	if err := contract.Decode(r, maxBody, &body); err != nil {
		contract.Error(w, http.StatusBadRequest, "%v", err)
		return
	}
	if !slices.Contains(statuses, body.Status) {
		contract.Violation(r, "status: must be one of %v", statuses)
		contract.Error(w, http.StatusBadRequest, "status %q is unknown", body.Status)
		return
	}
	c, err := s.change(r.PathValue("id"), func(c *Cluster, now time.Time) {
		if body.Status != Pending {
			c.Changes = append(c.past(now), Change{At: now, Status: body.Status})
			return
		}
		c.Changes = s.plan(*c, c.past(now), now, c.Failures != nil)
	})
	s.reply(w, r, c, err)
}

func (s *System) change(id string, f func(*Cluster, time.Time)) (Cluster, error) {
	var c Cluster
	err := s.Update(func(tx *journal.Tx) error {
		var ok bool
		if c, ok = s.clusters.Get(id); !ok {
			return errNotFound
		}
		f(&c, s.now())
		return s.clusters.Put(tx, id, c)
	})
	return c, err
}

func (s *System) delete(w http.ResponseWriter, r *http.Request) {
	c, err := s.change(r.PathValue("id"), func(c *Cluster, now time.Time) {
		if c.last().Status == Deleted {
			return
		}
		half := s.cfg.ReconcileTime / 2
		c.Changes = append(c.past(now), Change{At: now, Status: DeletePending},
			Change{At: now.Add(half / 2), Status: Deleting}, Change{At: now.Add(half), Status: Deleted})
	})
	if err == nil && s.cfg.ReconcileTime == 0 {
		// The answer contains the initial status of the deletion, even if it takes no time.
		body := s.view(r, c)
		body["status"] = DeletePending
		contract.JSON(w, http.StatusOK, body)
		return
	}
	s.reply(w, r, c, err)
}

func (s *System) statusChanges(w http.ResponseWriter, r *http.Request) {
	since := time.Time{}
	now := s.now()
	if text := r.URL.Query().Get("offset"); text != "" {
		offset, err := time.ParseDuration(text)
		if err != nil {
			contract.Error(w, http.StatusBadRequest, "offset %q is not a duration such as 168h", text)
			return
		}
		since = now.Add(-offset)
	}
	c, err := s.get(r.PathValue("id"))
	if err != nil {
		s.reply(w, r, c, err)
		return
	}
	list := []map[string]any{}
	past := c.past(now)
	for i, change := range past {
		end := now
		if i+1 < len(past) {
			end = past[i+1].At
		}
		if !change.At.Before(since) {
			list = append(list, map[string]any{"started": change.At.UTC(), "duration": int64(end.Sub(change.At)), "status": change.Status})
		}
	}
	contract.JSON(w, http.StatusOK, map[string]any{"statusChanges": list})
}
