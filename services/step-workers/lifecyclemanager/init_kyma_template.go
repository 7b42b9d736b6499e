package lifecyclemanager

import (
	"context"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// initKymaTemplate reads the template of the Kyma resource before other steps create objects, so that an invalid template fails the
// operation early.
func (s *shared) initKymaTemplate(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	d, runtimeID, err := read(op)
	if err != nil {
		return op, 0, err
	}
	text, t, err := s.template(ctx, op, "")
	if err != nil {
		return op, s.cfg.RetryInterval, err
	}
	log.Debug("kyma template read")
	return op, 0, op.SaveDetails(Details{Template: text, Home: s.home(d, runtimeID, t)})
}
