package liveness

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go/micro"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
)

// Taken holds the commands that workers execute.
type Taken struct {
	// Commands are the event ids of commands that a replica has fetched.
	Commands map[string]bool
	// Silent are the workers with a live replica that has not reported its commands: it did not answer in time, or does not support the
	// report. Under the name event.Ramped(worker) are those with a ramped replica like that.
	Silent map[string]bool
}

// Taken asks all workers which commands they execute.
func (l *Liveness) Taken(ctx context.Context) (Taken, error) {
	subject, err := micro.ControlSubject(micro.StatsVerb, "", "")
	if err != nil {
		return Taken{}, fmt.Errorf("ask what workers execute: %w", err)
	}
	answers, err := l.nc.SubscribeSync(l.nc.NewRespInbox())
	if err != nil {
		return Taken{}, fmt.Errorf("ask what workers execute: %w", err)
	}
	defer func() { _ = answers.Unsubscribe() }() // the connection is closing if this fails
	if err := l.ask(subject, answers.Subject); err != nil {
		return Taken{}, fmt.Errorf("ask what workers execute: %w", err)
	}
	reported := map[string]bool{}
	taken := Taken{Commands: map[string]bool{}, Silent: map[string]bool{}}
	waiting, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	defer cancel()
	for {
		msg, err := answers.NextMsgWithContext(waiting)
		if err != nil {
			break // the timeout, or there is no worker
		}
		if id, commands, ok := readTaken(msg.Data); ok {
			reported[id] = true
			for _, c := range commands {
				taken.Commands[c] = true
			}
		}
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	for id, r := range l.replicas {
		if !reported[id] && len(r.steps) > 0 {
			taken.Silent[r.name] = true
			if r.ramped {
				taken.Silent[event.Ramped(r.name)] = true
			}
		}
	}
	return taken, ctx.Err()
}

// readTaken decodes the statistics of a micro service. ok reports whether it is a worker that reports its commands.
func readTaken(data []byte) (id string, commands []string, ok bool) {
	var stats micro.Stats
	if json.Unmarshal(data, &stats) != nil || stats.Metadata[worker.MetadataWorker] == "" {
		return "", nil, false
	}
	for _, endpoint := range stats.Endpoints {
		var taken worker.Taken
		if endpoint != nil && json.Unmarshal(endpoint.Data, &taken) == nil && taken.Commands != nil {
			commands, ok = append(commands, taken.Commands...), true
		}
	}
	return stats.ID, commands, ok
}
