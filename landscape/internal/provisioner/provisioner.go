// Package provisioner simulates the Runtime Provisioner: GraphQL calls that create and remove clusters, each an
// asynchronous operation that ends after a delay (docs/contracts/runtime-provisioner.md).
package provisioner

import (
	_ "embed"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/landscape/internal/graphql"
	"github.com/kyma-project/keb/landscape/internal/journal"
)

// Name is the name of the system and the first part of its paths.
const Name = "provisioner"

//go:embed schema.graphql
var schema string

// Config contains the durations.
type Config struct {
	ClusterTime time.Duration // from provisionRuntime to Succeeded; removal and upgrades take half of it
	ExternalURL string        // of the landscape in kubeconfigs; "" takes the host of the request
}

// Deps are the systems that show a cluster.
type Deps struct {
	Director Director
	Gardener Gardener
	Clusters Clusters
	Now      func() time.Time
}

// Director registers runtimes. All its methods are idempotent.
type Director interface {
	Register(id, tenant, name, description string, labels map[string]any) error
	Unregister(id string) error
}

// Gardener contains the shoots. All its methods are idempotent.
type Gardener interface {
	AddShoot(shoot Shoot) error
	UpdateShoot(shoot Shoot) error
	RemoveShoot(name string) error
}

// Clusters opens and closes the Kubernetes API of a runtime. All its methods are idempotent.
type Clusters interface {
	AddCluster(id, token string) error
	// SetAdministrators replaces the administrators of a cluster.
	SetAdministrators(id string, had, have []string) error
	RemoveCluster(id string) error
}

// Shoot is Gardener's view of a cluster.
type Shoot struct {
	Name, RuntimeID, Tenant, SubAccount string
	SecretBinding                       string
	Provider, Region, KubernetesVersion string
	LicenceType, Purpose, Domain        string
	// OperationID is the operation that creates it.
	OperationID             string
	EUAccess                bool
	NetworkingFilterEnabled bool
}

// Operation is an asynchronous operation. Its state depends on the clock.
type Operation struct {
	ID        string    `json:"id"`
	Type      string    `json:"operation"`
	RuntimeID string    `json:"runtimeID"`
	StartedAt time.Time `json:"startedAt"`
	EndsAt    time.Time `json:"endsAt"`
	Ended     bool      `json:"ended"`           // its effects are done
	Error     *Failure  `json:"error,omitempty"` // it ends as Failed
	// Config and Admins are the changes of an UpgradeShoot, which apply when it succeeds. Admins replaces all administrators.
	Config map[string]any `json:"gardenerConfig,omitempty"`
	Admins []string       `json:"administrators,omitempty"`
}

// Runtime is a cluster and its order.
type Runtime struct {
	ID            string         `json:"id"`
	Tenant        string         `json:"tenant"`
	SubAccount    string         `json:"subAccount"`
	Name          string         `json:"name"`
	Labels        map[string]any `json:"labels"`
	Config        map[string]any `json:"gardenerConfig"`
	Admins        []string       `json:"administrators,omitempty"`
	Kyma          map[string]any `json:"kymaConfig,omitempty"`
	Token         string         `json:"token"`
	Creation      string         `json:"creation"` // the operation that creates it
	LastOperation string         `json:"lastOperation"`
	Ready         bool           `json:"ready"` // the cluster was made
	Hibernated    bool           `json:"hibernated"`
}

// System is the simulator.
type System struct {
	*journal.Store
	cfg        Config
	deps       Deps
	runtimes   *journal.Table[Runtime]
	operations *journal.Table[Operation]
	failures   *journal.Table[Failure]
	given      *journal.Table[Given]
	byShoot    journal.Index // of runtimes, by the shoot's name
	byRuntime  journal.Index // of operations, by the runtime's id
	due        journal.Queue
	settling   sync.Mutex // held while operations end, so that no request sees an incomplete end
	graph      *graphql.Server
}

// New opens the simulator's journal at path ("" keeps all data in memory) and updates the other systems, because a crash may have happened
// between the writes.
func New(cfg Config, deps Deps, path string) (*System, error) {
	s := &System{
		cfg: cfg, deps: deps, runtimes: journal.NewTable[Runtime]("runtime"),
		operations: journal.NewTable[Operation]("operation"), failures: journal.NewTable[Failure]("failure"),
		given: journal.NewTable[Given]("kubeconfig"),
	}
	s.operations.OnChange(func(id string, o Operation, gone bool) {
		if gone {
			s.byRuntime.Set(id)
		} else {
			s.byRuntime.Set(id, o.RuntimeID)
		}
		if !gone && !o.Ended {
			s.due.Add(o.EndsAt, id)
		}
	})
	s.runtimes.Index(&s.byShoot, func(r Runtime) string { return r.shoot().Name })
	var err error
	if s.Store, err = journal.Open(path, s.runtimes, s.operations, s.failures, s.given); err != nil {
		return nil, err
	}
	s.graph, err = graphql.New("/provisioner/graphql", schema, map[string]graphql.Resolver{
		"provisionRuntime": s.provision, "deprovisionRuntime": s.deprovision, "upgradeRuntime": s.upgradeRuntime,
		"upgradeShoot": s.upgradeShoot, "hibernateRuntime": s.hibernate, "reconnectRuntimeAgent": s.reconnect,
		"rollBackUpgradeOperation": s.rollBack, "runtimeStatus": s.runtimeStatus, "runtimeOperationStatus": s.operationStatus,
	})
	if err != nil {
		return nil, err
	}
	return s, s.align()
}

// Handler serves the GraphQL endpoint, without authentication inside the mesh.
func (s *System) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/provisioner/graphql", func(w http.ResponseWriter, r *http.Request) {
		if err := s.Settle(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		s.graph.ServeHTTP(w, r)
	})
	return mux
}

// Objects lists the current data of the system.
func (s *System) Objects() ([]journal.Object, error) {
	if err := s.Settle(); err != nil {
		return nil, err
	}
	return s.Store.Objects()
}

func (s *System) align() error {
	var runtimes []Runtime
	s.View(func() {
		for _, r := range s.runtimes.All() {
			runtimes = append(runtimes, r)
		}
	})
	for _, r := range runtimes {
		if err := s.announce(r); err != nil {
			return err
		}
		if r.Ready {
			if err := s.deps.Clusters.AddCluster(r.ID, r.Token); err != nil {
				return err
			}
		}
	}
	return s.Settle()
}

// announce makes a runtime visible in Director and Gardener.
func (s *System) announce(r Runtime) error {
	if err := s.deps.Director.Register(r.ID, r.Tenant, r.Name, "", r.Labels); err != nil {
		return fmt.Errorf("register runtime in director: %w", err)
	}
	if err := s.deps.Gardener.AddShoot(r.shoot()); err != nil {
		return fmt.Errorf("add shoot: %w", err)
	}
	return nil
}

func (r Runtime) shoot() Shoot {
	c := config(r.Config)
	eu, _ := c["euAccess"].(bool)
	disabled, _ := c["shootNetworkingFilterDisabled"].(bool)
	return Shoot{
		Name: c.text("name"), RuntimeID: r.ID, Tenant: r.Tenant, SubAccount: r.SubAccount, SecretBinding: c.text("targetSecret"),
		Provider: c.text("provider"), Region: c.text("region"), KubernetesVersion: c.text("kubernetesVersion"),
		LicenceType: c.text("licenceType"), Purpose: c.text("purpose"), Domain: c.object("dnsConfig").text("domain"),
		OperationID: r.Creation, EUAccess: eu, NetworkingFilterEnabled: !disabled,
	}
}

// Settle ends the due operations: first in the other systems, whose calls are idempotent, then here.
func (s *System) Settle() error {
	s.settling.Lock()
	defer s.settling.Unlock()
	now := s.deps.Now()
	for {
		var op Operation
		var runtime Runtime
		var due, known bool
		s.View(func() {
			if due = s.due.Due(now); !due {
				return
			}
			_, id := s.due.Next()
			s.due.Drop()
			op, _ = s.operations.Get(id)
			runtime, known = s.runtimes.Get(op.RuntimeID)
		})
		if !due {
			return nil
		}
		if op.Ended || !known {
			continue
		}
		if err := s.end(op, runtime); err != nil {
			s.View(func() { s.due.Add(op.EndsAt, op.ID) })
			return fmt.Errorf("end operation %s: %w", op.ID, err)
		}
	}
}

func (s *System) end(op Operation, runtime Runtime) error {
	removal := op.removal()
	creation := op.Type == "Provision" || op.Type == "ProvisionNoInstall"
	if op.Error == nil && creation {
		if err := s.deps.Clusters.AddCluster(runtime.ID, runtime.Token); err != nil {
			return err
		}
		if err := s.deps.Clusters.SetAdministrators(runtime.ID, nil, runtime.Admins); err != nil {
			return err
		}
	}
	upgraded, upgrade := op.upgraded(runtime)
	if upgrade {
		if err := s.deps.Gardener.UpdateShoot(upgraded.shoot()); err != nil {
			return err
		}
		if err := s.deps.Clusters.SetAdministrators(runtime.ID, runtime.Admins, upgraded.Admins); err != nil {
			return err
		}
	}
	if op.Error == nil && removal {
		if err := s.deps.Clusters.RemoveCluster(runtime.ID); err != nil {
			return err
		}
		if err := s.deps.Gardener.RemoveShoot(runtime.shoot().Name); err != nil {
			return err
		}
		if err := s.deps.Director.Unregister(runtime.ID); err != nil {
			return err
		}
	}
	op.Ended = true
	return s.Update(func(tx *journal.Tx) error {
		if op.Error == nil && creation {
			now, ok := s.runtimes.Get(runtime.ID)
			if ok {
				now.Ready = true
				if err := s.runtimes.Put(tx, now.ID, now); err != nil {
					return err
				}
			}
		}
		if now, ok := s.runtimes.Get(runtime.ID); ok && upgrade {
			now, _ = op.upgraded(now)
			if err := s.runtimes.Put(tx, now.ID, now); err != nil {
				return err
			}
		}
		if op.Error == nil && removal {
			if err := s.runtimes.Delete(tx, runtime.ID); err != nil {
				return err
			}
		}
		return s.operations.Put(tx, op.ID, op)
	})
}

// upgraded returns the runtime with the changes of the operation, and false if there are none. Omitted values stay; the administrators are
// replaced.
func (o Operation) upgraded(r Runtime) (Runtime, bool) {
	if o.Error != nil || o.Config == nil {
		return r, false
	}
	r.Config = maps.Clone(r.Config)
	for k, v := range o.Config {
		if v != nil {
			r.Config[k] = v
		}
	}
	r.Admins = o.Admins
	return r, true
}

func (o Operation) removal() bool { return o.Type == "Deprovision" || o.Type == "DeprovisionNoInstall" }

// State returns the state of the operation at that time: InProgress, Succeeded or Failed. No operation is ever Pending.
func (o Operation) state(now time.Time) string {
	switch {
	case now.Before(o.EndsAt):
		return "InProgress"
	case o.Error != nil:
		return "Failed"
	default:
		return "Succeeded"
	}
}

// begin creates an operation of the runtime. It will fail if a Failure is set for the runtime.
func (s *System) begin(kind string, r Runtime, takes time.Duration) Operation {
	now := s.deps.Now()
	op := Operation{ID: uuid.NewString(), Type: kind, RuntimeID: r.ID, StartedAt: now, EndsAt: now.Add(takes)}
	instance, _ := r.Labels[instanceLabel].(string)
	for _, id := range []string{instance, r.ID, anyInstance} {
		if f, ok := s.failures.Get(id); ok && (f.Operation == "" || f.Operation == kind) {
			op.Error = &f
			break
		}
	}
	return op
}
