package reconciler

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/kyma-project/keb/landscape/internal/answer"
	"github.com/kyma-project/keb/landscape/internal/journal"
)

type metadata struct {
	InstanceID string `json:"instanceID"`
}

// apply upserts a cluster. The same data again makes no new version; it only asks for another reconciliation.
func (s *System) apply(w http.ResponseWriter, r *http.Request) {
	var in Cluster
	if err := answer.Decode(r, maxBody, &in); err != nil {
		status := http.StatusBadRequest
		if errors.Is(err, answer.ErrTooLarge) {
			status = http.StatusRequestEntityTooLarge
		}
		answer.Error(w, status, "%v", err)
		return
	}
	if in.RuntimeID == "" {
		answer.Error(w, http.StatusBadRequest, "runtimeID is empty")
		return
	}
	if err := usable(in.Kubeconfig); err != nil {
		answer.Error(w, http.StatusBadRequest, "kubeconfig cannot be used: %v", err)
		return
	}
	var meta metadata
	if len(in.Metadata) > 0 {
		if err := json.Unmarshal(in.Metadata, &meta); err != nil {
			answer.Error(w, http.StatusBadRequest, "metadata: %v", err)
			return
		}
	}
	var c Cluster
	err := s.Update(func(tx *journal.Tx) error {
		old, exists := s.clusters.Get(in.RuntimeID)
		c = s.next(tx, old, exists, in, meta.InstanceID)
		return s.clusters.Put(tx, c.RuntimeID, c)
	})
	if err != nil {
		answer.Error(w, http.StatusInternalServerError, "%v", err)
		return
	}
	body := s.view(r, c)
	if s.cfg.ReconcileTime == 0 && c.last().Status != Disabled {
		// The answer shows where the reconciliation starts, also when it takes no time.
		body["status"] = Pending
	}
	answer.JSON(w, http.StatusOK, body)
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

// plan adds the way of the cluster's configuration version from pending to ready (or to an error) to what has happened.
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

// same compares two JSON documents by what they say.
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

// usable says why a client cannot be built from a kubeconfig: it needs a current context whose cluster has a server and
// whose user has some credential.
func usable(kubeconfig string) error {
	var doc struct {
		CurrentContext string `yaml:"current-context"`
		Contexts       []struct {
			Name    string `yaml:"name"`
			Context struct {
				Cluster string `yaml:"cluster"`
				User    string `yaml:"user"`
			} `yaml:"context"`
		} `yaml:"contexts"`
		Clusters []struct {
			Name    string `yaml:"name"`
			Cluster struct {
				Server string `yaml:"server"`
			} `yaml:"cluster"`
		} `yaml:"clusters"`
		Users []struct {
			Name string         `yaml:"name"`
			User map[string]any `yaml:"user"`
		} `yaml:"users"`
	}
	if kubeconfig == "" {
		return errors.New("it is empty")
	}
	if err := yaml.Unmarshal([]byte(kubeconfig), &doc); err != nil {
		return errors.New("it is not YAML of the right form")
	}
	for _, context := range doc.Contexts {
		if context.Name != doc.CurrentContext {
			continue
		}
		server, credential := "", false
		for _, c := range doc.Clusters {
			if c.Name == context.Context.Cluster {
				server = c.Cluster.Server
			}
		}
		for _, u := range doc.Users {
			if u.Name == context.Context.User {
				credential = len(u.User) > 0
			}
		}
		if u, err := url.Parse(server); err != nil || u.Host == "" {
			return errors.New("the cluster of the current context has no server")
		}
		if !credential {
			return errors.New("the user of the current context has no credential")
		}
		return nil
	}
	return fmt.Errorf("the current context %q is not in it", doc.CurrentContext)
}
