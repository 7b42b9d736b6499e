package provisioner

import (
	"fmt"
	"net/http"

	"github.com/kyma-project/keb/landscape/internal/contract"
	"github.com/kyma-project/keb/landscape/internal/fault"
	"github.com/kyma-project/keb/landscape/internal/journal"
)

// Given is a configured kubeconfig of a runtime whose cluster is a real one.
type Given struct {
	InstanceID string `json:"instanceId"` // value of the label broker_instance_id, or a runtime id
	Kubeconfig string `json:"kubeconfig"` // secret
}

// Kubeconfigs serves the admin API's GET, PUT and DELETE of kubeconfigs. It never returns one.
func (s *System) Kubeconfigs(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		fault.ServeFailures(w, r, s.Store, s.given, s.setKubeconfig)
		return
	}
	list := []map[string]string{}
	s.View(func() {
		for _, id := range s.given.Sorted() {
			list = append(list, map[string]string{"instanceId": id})
		}
	})
	contract.JSON(w, http.StatusOK, map[string]any{"data": list, "count": len(list), "totalCount": len(list)})
}

func (s *System) setKubeconfig(w http.ResponseWriter, r *http.Request) {
	var g Given
	if !fault.DecodeFailure(w, r, &g, "instanceId, kubeconfig") {
		return
	}
	if g.InstanceID == "" || g.Kubeconfig == "" {
		contract.Error(w, http.StatusBadRequest, "instanceId or kubeconfig is empty, use an instance id or a runtime id, and the text of a kubeconfig")
		return
	}
	err := s.Update(func(tx *journal.Tx) error { return s.given.Put(tx, g.InstanceID, g) })
	contract.Reply(w, err, http.StatusOK, map[string]string{"instanceId": g.InstanceID})
}

// kubeconfig returns the configured kubeconfig of a runtime, or one for its simulated API.
func (s *System) kubeconfig(r *http.Request, runtime Runtime) string {
	var given Given
	s.View(func() {
		for _, id := range []string{runtime.ID, fmt.Sprint(runtime.Labels[instanceLabel])} {
			if g, ok := s.given.Get(id); ok && given.Kubeconfig == "" {
				given = g
			}
		}
	})
	if given.Kubeconfig != "" {
		return given.Kubeconfig
	}
	base := s.cfg.ExternalURL
	if base == "" {
		base = contract.BaseURL(r)
	}
	name := runtime.shoot().Name
	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: %[1]s
clusters:
- name: %[1]s
  cluster:
    server: %[2]s/k8s/runtimes/%[3]s
contexts:
- name: %[1]s
  context:
    cluster: %[1]s
    user: %[1]s
users:
- name: %[1]s
  user:
    token: %[4]s
`, name, base, runtime.ID, runtime.Token)
}
