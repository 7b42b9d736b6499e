package worker

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/nats-io/nats.go/micro"
)

// ServicePrefix is what the name of every worker starts with in the NATS micro services; the worker's name follows.
const ServicePrefix = "keb-worker-"

// Keys of the metadata of a worker's micro service.
const (
	MetadataWorker  = "worker"
	MetadataVersion = "version"
	// MetadataSteps lists the names of the steps, with commas between.
	MetadataSteps = "steps"
)

// PingSubject is where a worker answers with a Pong.
func PingSubject(worker string) string { return "keb.worker." + worker + ".ping" }

// Taken is what a worker adds to the statistics of its micro service: the orchestrator does not send a command again that a replica
// is about to answer, when the bus has lost what it carried.
type Taken struct {
	// Commands are the event ids of the commands that this replica has taken and whose results the bus does not have yet.
	Commands []string `json:"commands"`
}

// Pong is the answer of a worker that is asked whether it is there.
type Pong struct {
	Worker  string   `json:"worker"`
	Version string   `json:"version,omitempty"`
	Steps   []string `json:"steps"`
}

// semver is what the micro services accept as a version; others appear in the metadata only.
var semver = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)$`)

// announce registers the worker as a NATS micro service, so that the orchestrator knows which steps somebody serves.
// taken names the commands that are being executed. stop may be called more than once.
func (w *Worker) announce(taken func() []string) (stop func(), err error) {
	version := strings.TrimPrefix(w.cfg.Version, "v")
	if !semver.MatchString(version) {
		version = "0.0.0"
	}
	pong, err := json.Marshal(Pong{Worker: w.cfg.Name, Version: w.cfg.Version, Steps: w.names})
	if err != nil {
		return nil, fmt.Errorf("announce: %w", err)
	}
	service, err := micro.AddService(w.deps.Bus.NATS(), micro.Config{
		Name: ServicePrefix + w.cfg.Name, Version: version, Description: "KEB step worker " + w.cfg.Name,
		Metadata: map[string]string{
			MetadataWorker: w.cfg.Name, MetadataVersion: w.cfg.Version, MetadataSteps: strings.Join(w.names, ","),
		},
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
		// It fails only on a connection that is closed already, and then there is nothing to take back.
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
