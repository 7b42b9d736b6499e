// Package ramp decides which operations go to the ramped version of a worker. A
// ramp is a rule of an operator: it pins the operations in its scope to a version,
// or a percentage of them. Every orchestrator keeps the ramps in memory and reads
// them again when another one reports a change, and regularly.
package ramp

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/orchestrator/internal/hold"
)

// Ramp sends operations to a version of a worker.
type Ramp struct {
	// ID is a UUID.
	ID     string
	Worker string
	// Version is the version of the ramped replicas. All ramps of a worker have the same.
	Version string
	// Percent is the share of the operations in the scope, 1 to 100.
	Percent int
	// Scope selects operations; empty means all. It has neither a step nor a worker nor a system.
	Scope hold.Scope
	// Reason and CreatedBy are never empty.
	Reason    string
	CreatedBy string
	CreatedAt time.Time
	// RemovedAt is zero for a ramp that applies.
	RemovedAt time.Time
}

// Settle is the time in which every orchestrator learns of a ramp, or of its removal. Until then it has no effect on operations that start, so
// that all orchestrators agree.
const Settle = 3 * time.Second

const maxText = 1000

// Validate reports every problem of a new ramp.
func (r *Ramp) Validate(now time.Time) error {
	var problems []error
	if err := worker.CheckName(r.Worker); err != nil || r.Worker == event.UserBroker {
		problems = append(problems, fmt.Errorf("worker %.50q: must be a step worker other than the broker", r.Worker))
	}
	if strings.TrimSpace(r.Version) == "" || len(r.Version) > 100 || !utf8.ValidString(r.Version) {
		problems = append(problems, errors.New("version: must have 1 to 100 bytes"))
	}
	if r.Percent < 1 || r.Percent > 100 {
		problems = append(problems, fmt.Errorf("percent %d: must be 1 to 100", r.Percent))
	}
	if r.Scope.Step != "" || r.Scope.Worker != "" || r.Scope.System != "" {
		problems = append(problems, errors.New("scope: step, worker and system are not allowed"))
	}
	if strings.TrimSpace(r.Reason) == "" || len(r.Reason) > maxText {
		problems = append(problems, fmt.Errorf("reason: must have 1 to %d bytes", maxText))
	}
	if r.Scope != (hold.Scope{}) {
		h := hold.Hold{Scope: r.Scope, Reason: "ramp"}
		problems = append(problems, h.Validate(now))
	}
	return errors.Join(problems...)
}

// Version returns the version of the ramped replicas to which an operation goes; empty if it goes to the other replicas. The answer follows from
// the operation and the ramps alone, so all orchestrators agree. Ramps, oldest first, concern the operations that start Settle after them, so
// an operation keeps its version until the ramps are removed. A ramp for one operation concerns it at once. A ramp with a scope comes before one
// without, and a newer one before an older one.
func Version(ramps []Ramp, op *event.Operation, worker string, startedAt time.Time) string {
	decides := func(r *Ramp) bool {
		return r.Worker == worker && (r.Scope.Operation != "" || !startedAt.Before(r.CreatedAt.Add(Settle))) && r.Scope.Matches(op, nil)
	}
	var chosen *Ramp
	for i := range ramps {
		r := &ramps[i]
		if decides(r) && (chosen == nil || r.Scope != (hold.Scope{}) || chosen.Scope == (hold.Scope{})) {
			chosen = r
		}
	}
	if chosen == nil || bucket(op.ID, worker) >= chosen.Percent {
		return ""
	}
	return chosen.Version
}

// bucket returns a number from 0 to 99 that follows from the operation and the worker.
func bucket(operation, worker string) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(worker + "/" + operation))
	return int(h.Sum64() % 100)
}
