package worker

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/nats-io/nats.go/micro"
)

// ServicePrefix precedes the worker's name in the names of NATS micro services.
const ServicePrefix = "keb-worker-"

// Keys of the metadata of a worker's micro service.
const (
	MetadataWorker  = "worker"
	MetadataVersion = "version"
	// MetadataSteps is the comma-separated list of steps.
	MetadataSteps = "steps"
	// MetadataRamped is "true" for a replica that executes only the commands that a ramp sends to its version.
	MetadataRamped = "ramped"
)

// PingSubject returns the subject on which a worker answers with a Pong.
func PingSubject(worker string) string { return "keb.worker." + worker + ".ping" }

// Taken extends the statistics of the worker's micro service. After the bus has lost messages, the orchestrator does not resend commands
// that a replica is about to answer.
type Taken struct {
	// Commands lists the event ids of the commands in this replica whose results are not yet on the bus.
	Commands []string `json:"commands"`
}

// Pong is the answer of a live worker to a ping.
type Pong struct {
	Worker  string   `json:"worker"`
	Version string   `json:"version,omitempty"`
	Steps   []string `json:"steps"`
}

// semver matches the versions that micro services accept. Other versions appear only in the metadata.
var semver = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)$`)

// serviceVersion returns the version of the micro service of a worker.
func serviceVersion(version string) string {
	version = strings.TrimPrefix(version, "v")
	if !semver.MatchString(version) {
		return "0.0.0"
	}
	return version
}

func (w *Worker) metadata() map[string]string {
	m := map[string]string{MetadataWorker: w.cfg.Name, MetadataVersion: w.cfg.Version, MetadataSteps: strings.Join(w.names, ",")}
	if w.cfg.Ramped {
		m[MetadataRamped] = "true"
	}
	return m
}

// announce registers the worker as a NATS micro service, so that the orchestrator discovers its steps.
// taken returns the commands in progress. stop is idempotent.
func (w *Worker) announce(taken func() []string) (stop func(), err error) {
	pong, err := json.Marshal(Pong{Worker: w.cfg.Name, Version: w.cfg.Version, Steps: w.names})
	if err != nil {
		return nil, fmt.Errorf("announce: %w", err)
	}
	service, err := micro.AddService(w.deps.Bus.NATS(), micro.Config{
		Name: ServicePrefix + w.cfg.Name, Version: serviceVersion(w.cfg.Version), Description: "KEB step worker " + w.cfg.Name,
		Metadata:     w.metadata(),
		StatsHandler: func(*micro.Endpoint) any { return Taken{Commands: taken()} },
		ErrorHandler: func(_ micro.Service, e *micro.NATSError) {
			w.log.Warn("micro service error", "worker", w.cfg.Name, "subject", e.Subject, "err", e.Description)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("announce: %w", err)
	}
	err = service.AddEndpoint("ping", micro.HandlerFunc(func(r micro.Request) {
		if err := r.Respond(pong); err != nil {
			w.log.Warn("ping not answered", "worker", w.cfg.Name, "err", err)
		}
	}), micro.WithEndpointSubject(PingSubject(w.cfg.Name)))
	stop = sync.OnceFunc(func() {
		// It fails only on a closed connection, on which nothing is registered.
		if err := service.Stop(); err != nil {
			w.log.Debug("micro service not stopped", "worker", w.cfg.Name, "err", err)
		}
	})
	if err != nil {
		stop()
		return nil, fmt.Errorf("announce: %w", err)
	}
	return stop, nil
}
