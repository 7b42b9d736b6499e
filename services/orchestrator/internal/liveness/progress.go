package liveness

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/mask"
)

const (
	// maxReports is the maximum number of reports that are kept. Beyond it, reports of other operations are dropped.
	maxReports = 10_000
	// reportAge is how long a report is kept after it came. A step that reports less often has no progress for a while.
	reportAge = 15 * time.Minute
)

// Report is the last that a worker has said about a running step.
type Report struct {
	// Cursor is that of the command.
	Cursor  int64
	Message string
	Percent *int
	At      time.Time
}

// Progress keeps in memory how far running steps are, as their workers report it. Each orchestrator hears all reports. Nothing is stored: a
// lost report, or a restart, only delays what is shown.
type Progress struct {
	nc      *nats.Conn
	changed func(operationIDs ...string)
	now     func() time.Time
	log     *slog.Logger

	mu      sync.Mutex
	reports map[reporter]Report
}

// reporter is a worker and an operation. The bus lets a worker use only its own name.
type reporter struct{ worker, operationID string }

// NewProgress returns a Progress without reports. It calls changed with the operation of each report.
func NewProgress(nc *nats.Conn, changed func(operationIDs ...string), now func() time.Time, log *slog.Logger) *Progress {
	return &Progress{nc: nc, changed: changed, now: now, log: log, reports: map[reporter]Report{}}
}

// Run hears reports until ctx ends.
func (p *Progress) Run(ctx context.Context) error {
	sub, err := p.nc.Subscribe(event.ProgressSubject("*"), func(m *nats.Msg) { p.hear(m.Subject, m.Data) })
	if err != nil {
		return fmt.Errorf("subscribe to the progress of steps: %w", err)
	}
	defer func() {
		if err := sub.Unsubscribe(); err != nil {
			p.log.Debug("unsubscribe failed", "subject", sub.Subject, "err", err)
		}
	}()
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			p.expire()
		}
	}
}

// Of returns the last report about a command, and false if there is none.
func (p *Progress) Of(worker string, command event.CommandRef) (Report, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, ok := p.reports[reporter{worker, command.OperationID}]
	return r, ok && r.Cursor == command.Cursor
}

func (p *Progress) hear(subject string, data []byte) {
	var n event.ProgressNotice
	err := json.Unmarshal(data, &n)
	if err == nil {
		err = n.Validate()
	}
	worker := event.WorkerOfProgress(subject)
	if err != nil {
		p.log.Debug("progress of a step not understood", "worker", worker, "err", err)
		return
	}
	key := reporter{worker, n.OperationID}
	p.mu.Lock()
	_, known := p.reports[key]
	keep := known || len(p.reports) < maxReports
	if keep {
		p.reports[key] = Report{Cursor: n.Cursor, Message: mask.Text(n.Message), Percent: n.Percent, At: p.now()}
	}
	p.mu.Unlock()
	if keep {
		p.changed(n.OperationID)
	}
}

func (p *Progress) expire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, r := range p.reports {
		if p.now().Sub(r.At) > reportAge {
			delete(p.reports, key)
		}
	}
}
