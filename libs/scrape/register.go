package scrape

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Register registers *c, or sets it to the collector that is already registered under its names, so that several users of a registerer
// share one.
func Register[C prometheus.Collector](r prometheus.Registerer, c *C) error {
	err := r.Register(*c)
	if already, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if existing, ok := already.ExistingCollector.(C); ok {
			*c = existing
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("register metric: %w", err)
	}
	return nil
}
