package broker

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/kyma-project/keb/libs/access"
	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/scrape"
	"github.com/kyma-project/keb/libs/tracing"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// metrics are the broker's counters. No label contains an id.
type metrics struct {
	requests    *prometheus.CounterVec
	durations   *prometheus.HistogramVec
	unpublished prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keb_osb_requests_total", Help: "Answered requests of the Open Service Broker API.",
		}, []string{"route", "code"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "keb_osb_request_duration_seconds", Help: "Time to answer a request of the Open Service Broker API.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"route"}),
		unpublished: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "keb_broker_unpublished_requests", Help: "Accepted requests that the last sweep could not publish.",
		}),
	}
	if r == nil {
		return m, nil
	}
	return m, errors.Join(r.Register(m.requests), r.Register(m.durations), r.Register(m.unpublished))
}

func (m *metrics) observe(_ context.Context, o osb.Observation) {
	route := tracing.KnownMethod(o.Method) + " " + o.Route
	m.requests.WithLabelValues(route, strconv.Itoa(o.Status)).Inc()
	m.durations.WithLabelValues(route).Observe(o.Duration.Seconds())
}

// refuse answers a client that exceeds its limit, and counts the answer.
func (m *metrics) refuse(w http.ResponseWriter, r *http.Request, e *access.Error) {
	m.requests.WithLabelValues(tracing.KnownMethod(r.Method)+" other", strconv.Itoa(e.Status)).Inc()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	w.WriteHeader(e.Status)
	// The format is that of the OSB API. A disconnected client is not an error.
	_ = json.NewEncoder(w).Encode(map[string]string{"error": "TooManyRequests", "description": e.Message})
}

// counts are the gauges that the broker reads from its database.
type counts struct {
	store *store.Store
	now   func() time.Time
	// plans and licenses come from configuration and requests, so their number is limited.
	plans, licenses *scrape.Bound

	instances, accounts, largest, runtimes, operations, bindings, licensed *scrape.Gauge
}

const (
	// maxPlans and maxLicenses limit the number of label values.
	maxPlans, maxLicenses = 64, 16
	// licensesAge is the maximum age of the numbers by license type. Reading them reads every instance.
	licensesAge = time.Minute
	// noLicense is the label of contexts without a license type.
	noLicense = "none"
)

func registerCounts(r prometheus.Registerer, db *sql.DB, s *store.Store, now func() time.Time, log *slog.Logger) error {
	if r == nil {
		return nil
	}
	c := &counts{
		store: s, now: now, plans: scrape.NewBound(maxPlans), licenses: scrape.NewBound(maxLicenses),
		instances:  scrape.NewGauge("keb_instances", "Instances that are not deleted.", "plan").Remembered(),
		accounts:   scrape.NewGauge("keb_global_accounts", "Global accounts with instances."),
		largest:    scrape.NewGauge("keb_global_account_instances", "Instances of the largest global accounts.", "global_account_id"),
		runtimes:   scrape.NewGauge("keb_runtimes", "Runtimes of instances that are not deleted, by state.", "plan", "state").Remembered(),
		operations: scrape.NewGauge("keb_broker_operations", "Operations that have not ended, as the broker tells platforms.", "type", "plan", "state").Remembered(),
		bindings:   scrape.NewGauge("keb_bindings", "Bindings that have not expired.", "plan").Remembered(),
		licensed:   scrape.NewGauge("keb_instances_by_license_type", "Instances by the license type of their context.", "license_type").Remembered(),
	}
	return errors.Join(
		r.Register(collectors.NewDBStatsCollector(db, "keb-broker")),
		r.Register(scrape.New(scrape.Config{Source: "broker", Log: log}, c.read,
			c.instances, c.accounts, c.largest, c.runtimes, c.operations, c.bindings)),
		r.Register(scrape.New(scrape.Config{Source: "licenses", Age: licensesAge, Log: log}, c.readLicenses, c.licensed)),
	)
}

func (c *counts) read(ctx context.Context, s *scrape.Sample) error {
	census, err := c.store.Census(ctx, c.now())
	if err != nil {
		return err
	}
	for _, r := range census.Runtimes {
		plan := c.plans.Value(r.Plan)
		s.Add(c.instances, float64(r.Count), plan)
		s.Add(c.runtimes, float64(r.Count), plan, r.State)
		s.Add(c.bindings, 0, plan)
	}
	s.Add(c.accounts, 0)
	for _, a := range census.Accounts {
		s.Max(c.accounts, float64(a.Accounts))
		s.Add(c.largest, float64(a.Count), accountLabel(a.ID))
	}
	for _, o := range census.Operations {
		s.Add(c.operations, float64(o.Count), o.Type, c.plans.Value(o.Plan), o.State)
	}
	for _, b := range census.Bindings {
		s.Add(c.bindings, float64(b.Count), c.plans.Value(b.Plan))
	}
	return nil
}

func (c *counts) readLicenses(ctx context.Context, s *scrape.Sample) error {
	found, err := c.store.Licenses(ctx)
	if err != nil {
		return err
	}
	for _, l := range found {
		license := c.licenses.Value(l.License)
		if license == "" {
			license = noLicense
		}
		s.Add(c.licensed, float64(l.Count), license)
	}
	return nil
}

// accountLabel limits the length of a platform's global account id.
func accountLabel(id string) string {
	const most = 64
	if len(id) > most {
		id = id[:most]
	}
	return strings.ToValidUTF8(id, "")
}
