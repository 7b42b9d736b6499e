package census

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

const (
	// slowFactor is how many times its usual duration an execution must take to be slow.
	slowFactor = 5
	// slowSample is the least number of executions that make a usual duration.
	slowSample = 20
	// slowWindow is the time over which durations are usual.
	slowWindow = 24 * time.Hour
	// slowPage and slowMarks limit a round: the commands that are read at a time, and the operations that are marked. If thousands of commands
	// wait for a busy worker, each mark would only add load.
	slowPage, slowMarks = 1000, 100
	// slowTimeout bounds a round.
	slowTimeout = time.Minute
)

// Executions are the executions of steps, and those that last.
type Executions interface {
	StepDurations(ctx context.Context, since time.Time) (map[store.StepName]store.StepDuration, error)
	SentCommands(ctx context.Context, after string, limit int) ([]store.SentCommand, error)
	LowestID() string
}

// Marker marks an operation whose command has been executing for longer than usual. It returns no error if the operation has moved on.
type Marker interface {
	MarkSlow(ctx context.Context, c store.SentCommand) error
}

// Slow finds executions that take longer than usual.
type Slow struct {
	// shortest is the least duration of a slow execution.
	shortest    time.Duration
	executions  Executions
	definitions Definitions
	marker      Marker
	now         func() time.Time
	log         *slog.Logger
	// seen holds the slow commands of the last round.
	seen map[string]bool
}

// NewSlow returns a Slow. The caller must call Run.
func NewSlow(shortest time.Duration, e Executions, d Definitions, m Marker, now func() time.Time, log *slog.Logger) *Slow {
	return &Slow{shortest: shortest, executions: e, definitions: d, marker: m, now: now, log: log}
}

// Run looks for slow executions until ctx ends.
func (s *Slow) Run(ctx context.Context) error {
	return service.Every(ctx, s.shortest/2, s.log, "search for slow executions", s.round)
}

func (s *Slow) round(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, slowTimeout)
	defer cancel()
	now := s.now()
	durations, err := s.executions.StepDurations(ctx, now.Add(-slowWindow))
	if err != nil {
		return err
	}
	seen, marked := map[string]bool{}, 0
	defer func() { s.seen = seen }()
	for after := s.executions.LowestID(); ; {
		page, err := s.executions.SentCommands(ctx, after, slowPage)
		if err != nil {
			return err
		}
		for i := range page {
			c := &page[i]
			took := now.Sub(c.SentAt)
			if took < s.shortest {
				continue
			}
			if slow, err := s.isSlow(ctx, c, took, durations); err != nil || !slow {
				if err != nil {
					return err
				}
				continue
			}
			id := event.DispatchID(c.OperationID, c.Cursor, c.Dispatch)
			if seen[id] = true; s.seen[id] {
				continue
			}
			if err := s.marker.MarkSlow(ctx, *c); err != nil {
				return err
			}
			if marked++; marked == slowMarks {
				return nil
			}
		}
		if len(page) < slowPage {
			return nil
		}
		after = page[len(page)-1].OperationID
	}
}

func (s *Slow) isSlow(ctx context.Context, c *store.SentCommand, took time.Duration, durations map[store.StepName]store.StepDuration) (bool, error) {
	p, err := s.definitions.Pinned(ctx, c.Definition)
	if err != nil {
		return false, err
	}
	step := p.At(c.Stage, c.Step)
	if step == nil {
		return false, errors.New("a command in flight has no step")
	}
	usual := durations[store.StepName{Worker: step.Worker, Step: step.Name}]
	return usual.Executions >= slowSample && took > slowFactor*usual.Mean, nil
}
