package reconciler

import (
	"bytes"
	_ "embed" // the schema
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/kyma-project/keb/landscape/internal/contract"
	"github.com/kyma-project/keb/landscape/internal/journal"
)

type metadata struct {
	InstanceID string `json:"instanceID"`
}

//go:embed cluster.schema.json
var clusterSchema []byte

var clusterBody = contract.MustSchema(clusterSchema)

// booleans are the override keys of the seed for which the charts require a boolean.
var booleans = []string{"global.disableLegacyConnectivity", "global.tracing.enabled"}

// checkBooleans reports the first override with another type than its chart requires: for Helm, the texts "true" and "false" are both true.
// The real Reconciler stores any value, and the installation fails later.
func checkBooleans(config json.RawMessage) error {
	var kyma struct {
		Components []struct {
			Component     string `json:"component"`
			Configuration []struct {
				Key   string `json:"key"`
				Value any    `json:"value"`
			} `json:"configuration"`
		} `json:"components"`
	}
	if err := json.Unmarshal(config, &kyma); err != nil {
		return fmt.Errorf("kymaConfig: %w", err)
	}
	for _, c := range kyma.Components {
		for _, entry := range c.Configuration {
			if _, ok := entry.Value.(bool); ok {
				continue
			}
			if entry.Value == "true" || entry.Value == "false" || slices.Contains(booleans, entry.Key) {
				return fmt.Errorf("kymaConfig.components: the value of %s of %s must be boolean", entry.Key, c.Component)
			}
		}
	}
	return nil
}

// apply creates or updates a cluster. The same data again starts another reconciliation without a new version.
func (s *System) apply(w http.ResponseWriter, r *http.Request) {
	body, err := clusterBody.Body(r, maxBody)
	if err != nil {
		contract.Error(w, http.StatusBadRequest, "%v", err)
		return
	}
	var in Cluster
	var meta metadata
	err = json.Unmarshal(body, &in)
	if err == nil {
		err = json.Unmarshal(in.Metadata, &meta)
	}
	if err != nil {
		contract.Error(w, http.StatusBadRequest, "%v", err)
		return
	}
	if err := checkBooleans(in.KymaConfig); err != nil {
		contract.Violation(r, "%v", err)
		contract.Error(w, http.StatusBadRequest, "%v", err)
		return
	}
	if err := connect(r.Context(), in.Kubeconfig); err != nil {
		contract.Error(w, http.StatusBadRequest, "kubeconfig cannot be used: %v", err)
		return
	}
	var c Cluster
	err = s.Update(func(tx *journal.Tx) error {
		old, exists := s.clusters.Get(in.RuntimeID)
		c = s.next(tx, old, exists, in, meta.InstanceID)
		return s.clusters.Put(tx, c.RuntimeID, c)
	})
	if err != nil {
		contract.Error(w, http.StatusInternalServerError, "%v", err)
		return
	}
	shown := s.view(r, c)
	if s.cfg.ReconcileTime == 0 && c.last().Status != Disabled {
		// The answer contains the initial status of the reconciliation, even if it takes no time.
		shown["status"] = Pending
	}
	contract.JSON(w, http.StatusOK, shown)
}

func (s *System) next(tx *journal.Tx, old Cluster, exists bool, in Cluster, instanceID string) Cluster {
	now := s.now()
	c := old
	c.RuntimeID = in.RuntimeID
	sameCluster := exists && same(old.RuntimeInput, in.RuntimeInput) && same(old.Metadata, in.Metadata) && old.Kubeconfig == in.Kubeconfig
	sameConfig := exists && sameCluster && same(old.KymaConfig, in.KymaConfig)
	if !sameCluster {
		c.RuntimeInput, c.Metadata, c.Kubeconfig = in.RuntimeInput, in.Metadata, in.Kubeconfig
		c.ClusterVersion = tx.Next()
	}
	if !sameConfig {
		c.KymaConfig = in.KymaConfig
		c.ConfigurationVersion = tx.Next()
		c.Versions = append(slices.Clone(old.Versions), c.ConfigurationVersion)
	}
	status := old.current(now)
	if exists && (status == Disabled || (sameConfig && status == Pending)) {
		return c
	}
	failure, fails := s.failureFor(instanceID, in.RuntimeID)
	c.Failures = nil
	if fails {
		c.Failures = []Problem{{Component: failure.Component, Reason: failure.Reason}}
	}
	c.Changes = s.plan(c, old.past(now), now, fails)
	if fails {
		c.Changes[len(c.Changes)-1].Status = failure.Status
	}
	return c
}

// plan adds the changes of the cluster's configuration version from pending to ready (or to an error).
func (s *System) plan(c Cluster, past []Change, now time.Time, fails bool) []Change {
	end := Ready
	if fails {
		end = Failed
	}
	at := func(after time.Duration, status string) Change {
		return Change{At: now.Add(after), Status: status, Version: c.ConfigurationVersion}
	}
	return append(past, at(0, Pending), at(s.cfg.ReconcileTime/4, Reconciling), at(s.cfg.ReconcileTime, end))
}

// same reports whether two JSON documents are equivalent.
func same(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	canonical := func(raw json.RawMessage) []byte {
		var v any
		if len(raw) == 0 || json.Unmarshal(raw, &v) != nil {
			return raw
		}
		out, err := json.Marshal(v) // orders the members
		if err != nil {
			return raw
		}
		return out
	}
	return bytes.Equal(canonical(a), canonical(b))
}
