package liveness

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go/micro"

	"github.com/kyma-project/keb/libs/worker"
)

// Taken is what workers say that they are executing.
type Taken struct {
	// Commands are the event ids of commands that a replica has taken.
	Commands map[string]bool
	// Silent are the workers of which a replica that counts as alive has not said what it executes: it did not answer within the
	// patience, or it never says.
	Silent map[string]bool
}

// Taken asks all workers what they are executing.
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
	told := map[string]bool{}
	taken := Taken{Commands: map[string]bool{}, Silent: map[string]bool{}}
	waiting, cancel := context.WithTimeout(ctx, l.cfg.Patience)
	defer cancel()
	for {
		msg, err := answers.NextMsgWithContext(waiting)
		if err != nil {
			break // no more answers, or nobody there
		}
		if id, commands, ok := readTaken(msg.Data); ok {
			told[id] = true
			for _, c := range commands {
				taken.Commands[c] = true
			}
		}
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	for id, r := range l.replicas {
		if !told[id] && len(r.steps) > 0 {
			taken.Silent[r.name] = true
		}
	}
	return taken, ctx.Err()
}

// readTaken reads the statistics of a micro service; ok tells whether they are those of a worker that says what it executes.
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
