// Package landscape simulates the external systems that KEB works with: AvS, EDP, IAS, SPC, LMS, Azure, the Runtime Provisioner, the
// Director, the Reconciler, the store of Kyma's artifacts, CIS, and the Kubernetes APIs of the control plane, of Gardener and of each
// runtime. They implement the real contracts (docs/contracts/README.md) over HTTP, reject everything else, and keep their data after a
// crash. An admin API shows their data and the requests that violated a contract, and makes them fail.
package landscape

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/kyma-project/keb/landscape/internal/avs"
	"github.com/kyma-project/keb/landscape/internal/azure"
	"github.com/kyma-project/keb/landscape/internal/cis"
	"github.com/kyma-project/keb/landscape/internal/contract"
	"github.com/kyma-project/keb/landscape/internal/director"
	"github.com/kyma-project/keb/landscape/internal/edp"
	"github.com/kyma-project/keb/landscape/internal/fault"
	"github.com/kyma-project/keb/landscape/internal/ias"
	"github.com/kyma-project/keb/landscape/internal/journal"
	"github.com/kyma-project/keb/landscape/internal/kubernetes"
	"github.com/kyma-project/keb/landscape/internal/lms"
	"github.com/kyma-project/keb/landscape/internal/provisioner"
	"github.com/kyma-project/keb/landscape/internal/reconciler"
	"github.com/kyma-project/keb/landscape/internal/spc"
)

// Deps are the dependencies of the landscape. Both have defaults.
type Deps struct {
	Log *slog.Logger
	Now func() time.Time
}

// Landscape contains all simulated systems. Only one landscape may use a data folder at a time.
type Landscape struct {
	log     *slog.Logger
	handler http.Handler
	entries []entry
	closers []io.Closer
	closing sync.Once
	closed  error // of Close
}

// system is the landscape's view of a simulator.
type system interface {
	Objects() ([]journal.Object, error)
	Created() map[string]int64
	io.Closer
}

// New opens the journals and creates the initial data. Call Run (or Close) at the end.
func New(cfg Config, deps Deps) (*Landscape, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("landscape config: %w", err)
	}
	cfg = cfg.withDefaults()
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	l := &Landscape{log: deps.Log}
	if err := l.build(cfg, deps); err != nil {
		return nil, errors.Join(fmt.Errorf("landscape: %w", err), l.Close())
	}
	return l, nil
}

func (l *Landscape) build(cfg Config, deps Deps) error {
	if cfg.DataDir != "" {
		held, err := lock(cfg.DataDir)
		if err != nil {
			return err
		}
		defer func() { l.closers = append(l.closers, held) }() // closed last
	}
	mux := http.NewServeMux()
	var entries []entry
	add := func(name, path string, s system, h http.Handler) {
		book := contract.NewBook(deps.Now)
		gate := fault.NewGate(book)
		mux.Handle(path+"/", gate.Wrap(h))
		entries = append(entries, entry{Name: name, URL: path, System: s, Gate: gate, Book: book})
		l.closers = append(l.closers, s)
	}
	file := func(name string) string {
		if cfg.DataDir == "" {
			return ""
		}
		return filepath.Join(cfg.DataDir, name+".jsonl")
	}

	if err := buildSystems(cfg, deps.Now, file, add); err != nil {
		return err
	}
	if err := l.buildClusters(cfg, deps, file, add); err != nil {
		return err
	}

	api, err := newAdmin(file("admin"), entries, l.log)
	if err != nil {
		return err
	}
	l.closers = append(l.closers, api)
	l.entries = entries
	mux.Handle("/admin/", api.Handler())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		contract.JSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	l.handler = mux
	return nil
}

// simulator is a system with its own handler.
type simulator interface {
	system
	Handler() http.Handler
}

// buildSystems adds the systems that do not depend on others.
func buildSystems(cfg Config, now func() time.Time, file func(string) string, add func(string, string, system, http.Handler)) error {
	for _, s := range []struct {
		name string
		open func(path string) (simulator, error)
	}{
		{avs.Name, func(path string) (simulator, error) {
			return avs.New(avs.Config{ClientID: cfg.AvSClientID, Username: cfg.AvSUsername, Password: cfg.AvSPassword, LookUp: cfg.AvSLookUp}, path, now)
		}},
		{edp.Name, func(path string) (simulator, error) { return edp.New(edp.Config{Secret: cfg.EDPSecret}, path, now) }},
		{ias.Name, func(path string) (simulator, error) {
			return ias.New(ias.Config{Username: cfg.IASUsername, Password: cfg.IASPassword}, path)
		}},
		{reconciler.Name, func(path string) (simulator, error) {
			return reconciler.New(reconciler.Config{ReconcileTime: cfg.ReconcileTime, ExternalURL: cfg.ExternalURL}, path, now)
		}},
		{spc.Name, func(path string) (simulator, error) { return spc.New(path, now) }},
		{cis.Name, func(path string) (simulator, error) {
			return cis.New(cis.Config{ClientID: cfg.CISClientID, Secret: cfg.CISSecret}, path, now)
		}},
		{reconciler.ArtifactsName, func(path string) (simulator, error) {
			return reconciler.NewArtifacts(path, cfg.KymaVersion, cfg.NextKymaVersion)
		}},
		{lms.Name, func(path string) (simulator, error) {
			return lms.New(lms.Config{
				Token: cfg.LMSToken, ReadyTime: cfg.ReconcileTime, SignTime: cfg.ReconcileTime / 2, ExternalURL: cfg.ExternalURL,
			}, path, now)
		}},
		{azure.Name, func(path string) (simulator, error) {
			return azure.New(azure.Config{
				ClientID: cfg.AzureClientID, Secret: cfg.AzureSecret, CreateTime: cfg.ReconcileTime, DeleteTime: cfg.ReconcileTime / 2,
			}, path, now)
		}},
	} {
		made, err := s.open(file(s.name))
		if err != nil {
			return err
		}
		add(s.name, "/"+s.name, made, made.Handler())
	}
	return nil
}

// buildClusters adds the Provisioner and the systems that show its clusters: those update their data from the Provisioner before they answer.
func (l *Landscape) buildClusters(cfg Config, deps Deps, file func(string) string, add func(string, string, system, http.Handler)) error {
	directorSystem, err := director.New(director.Config{ClientID: cfg.DirectorClientID, Secret: cfg.DirectorSecret, LookUp: cfg.DirectorLookUp}, file(director.Name), deps.Now)
	if err != nil {
		return err
	}
	l.closers = append(l.closers, directorSystem)
	configs := kubernetesConfigs(cfg)
	apis := map[string]*kubernetes.System{}
	for _, k := range configs {
		s, err := kubernetes.New(k, file(k.Name), deps.Now)
		if err != nil {
			return err
		}
		l.closers = append(l.closers, s)
		apis[k.Name] = s
	}
	if err := seed(cfg, apis[controlPlane], apis[gardener]); err != nil {
		return err
	}
	p, err := provisioner.New(
		provisioner.Config{ClusterTime: cfg.ClusterTime, ExternalURL: cfg.ExternalURL},
		provisioner.Deps{Director: registry{directorSystem}, Gardener: shoots{apis[gardener]}, Clusters: clusters{apis[runtimes]}, Now: deps.Now},
		file(provisioner.Name))
	if err != nil {
		return err
	}
	add(provisioner.Name, "/provisioner", p, p.Handler())
	add(director.Name, "/director", settledSystem{directorSystem, p}, settled(p, directorSystem.Handler()))
	for _, k := range configs {
		add(k.Name, k.Prefix, settledSystem{apis[k.Name], p}, settled(p, apis[k.Name]))
	}
	return nil
}

// Handler serves all systems and the admin API.
func (l *Landscape) Handler() http.Handler { return l.handler }

// Violations returns a line for each of the last requests that violated a contract: the system, the request and the problem. It is empty if
// all requests were correct.
func (l *Landscape) Violations() []string {
	var lines []string
	for _, e := range l.entries {
		for _, v := range e.Book.Record().Last {
			lines = append(lines, fmt.Sprintf("%s: %s: %s", e.Name, v.Request, v.Problem))
		}
	}
	return lines
}

// Run blocks until ctx ends and then closes the journals. The simulators have no loop: they compute the effects of time when a request
// arrives.
func (l *Landscape) Run(ctx context.Context) error {
	l.log.InfoContext(ctx, "landscape is up")
	<-ctx.Done()
	return l.Close()
}

// Close closes the journals. Later requests that change data fail. Close is idempotent.
func (l *Landscape) Close() error {
	l.closing.Do(func() {
		var errs []error
		for _, c := range l.closers {
			errs = append(errs, c.Close())
		}
		l.closed = errors.Join(errs...)
	})
	return l.closed
}
