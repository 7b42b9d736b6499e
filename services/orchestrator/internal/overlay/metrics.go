package overlay

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Register registers the gauges.
func (c *Cache) Register(r prometheus.Registerer) error {
	gauge := func(name, help string, value func(Status) float64) error {
		return r.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return value(c.Status()) }))
	}
	return errors.Join(
		gauge("keb_overlays_version", "Version of the applied overlays that new operations use.", func(s Status) float64 { return float64(s.InUse) }),
		gauge("keb_overlays_rejected", "1 while the newest overlays are rejected and the last valid ones apply, else 0.", func(s Status) float64 {
			if s.Problem != nil {
				return 1
			}
			return 0
		}),
	)
}
