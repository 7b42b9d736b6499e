//go:build linux

package installation

import (
	"fmt"
	"path/filepath"
	"syscall"

	"github.com/kyma-project/keb/test/internal/harness"
)

// Version is how the services of a release, or of this tree, start.
type Version struct {
	keb      string
	services map[string]command // by program
}

// Version builds the services of a release, or of this tree for nil, and returns how they start.
func (w *World) Version(r *harness.Release) *Version {
	w.T.Helper()
	v, dir := &Version{services: map[string]command{}}, root
	if r != nil {
		dir, v.keb = r.Dir, r.Program(w.T, "cli")
	} else {
		v.keb = harness.Keb(w.T)
	}
	services := harness.Compose(w.T, dir, harness.Composition{Values: map[string]string{"KEB_PACE": "300ms", "KEB_OSB_RETRY_AFTER": "1s"}})
	delete(services, "landscape") // it has other times
	for name, s := range services {
		var path string
		if r != nil {
			path = s.ProgramOf(w.T, r)
		} else {
			path = s.Program(w.T, root)
		}
		for i := range Replicas {
			v.services[fmt.Sprintf("%s-%d", name, i)] = w.service(name, i, s, path)
		}
	}
	return v
}

// Prepare does what precedes the first new service of an upgrade: it makes secrets that are missing, lets NATS read its new users without a restart,
// and migrates both schemas.
func (w *World) Prepare(v *Version) {
	w.T.Helper()
	w.secrets = harness.MakeSecretsWith(w.T, v.keb, w.secrets.Dir)
	w.deployNATS(ToNATS)
	w.Programs[ToNATS].Signal(syscall.SIGHUP)
	for _, service := range []string{"broker", "orchestrator"} {
		c := v.services[service+"-0"]
		p := &Program{t: w.T, name: service + " migrate", log: filepath.Join(w.Dir, "log", service+"-migrate.log"), command: command{path: c.path, env: c.env, args: []string{"migrate"}}}
		p.Start()
		<-p.ended
		if !p.cmd.ProcessState.Success() {
			w.T.Fatalf("%s: %s: %s", p.name, p.cmd.ProcessState, tail(p.log, 5))
		}
	}
}

// Replace stops a program, with SIGKILL or in order, starts that of a version in its place, and waits until it is ready.
func (w *World) Replace(name string, v *Version, kill bool) {
	w.T.Helper()
	p := w.Programs[name]
	c, ok := v.services[name]
	if !ok {
		w.T.Fatalf("docker-compose.yml of the other version has no %s", name)
	}
	w.Down[name] = true
	if kill {
		p.Kill()
	} else {
		p.Stop()
	}
	delete(w.Down, name)
	p.command = c
	p.Start()
	w.Await(name+" to be ready", func() bool { w.Pass(0); return isReady(w.T.Context(), w.Addr[name]) })
}

// Use makes Run use the keb of a version.
func (w *World) Use(v *Version) { w.keb.path = v.keb }
