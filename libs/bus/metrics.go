package bus

import (
	"errors"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/scrape"
)

// metrics are the metrics of a Bus. Labels are names of the contract and of consumers, never ids.
type metrics struct {
	published     *prometheus.CounterVec
	publishFailed *prometheus.CounterVec
	publishTime   prometheus.Histogram
	consumed      *prometheus.CounterVec
	redelivered   *prometheus.CounterVec
	dead          *prometheus.CounterVec
	ackTime       *prometheus.HistogramVec
	recovered     *prometheus.CounterVec
	connections   *connections
}

// connections reports whether all buses of a process are connected.
type connections struct {
	desc *prometheus.Desc
	mu   sync.Mutex
	open map[*nats.Conn]struct{}
}

func newConnections() *connections {
	return &connections{
		desc: prometheus.NewDesc("keb_bus_connected", "1 while this process is connected.", nil, nil),
		open: map[*nats.Conn]struct{}{},
	}
}

func (c *connections) add(nc *nats.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[nc] = struct{}{}
}

func (c *connections) remove(nc *nats.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, nc)
}

// Describe implements prometheus.Collector.
func (c *connections) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect implements prometheus.Collector.
func (c *connections) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	connected := 1.0
	for nc := range c.open {
		if !nc.IsConnected() {
			connected = 0
		}
	}
	if len(c.open) == 0 {
		connected = 0
	}
	ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, connected)
}

// newMetrics registers the metrics. Two buses in one process share them.
func newMetrics(r prometheus.Registerer) (*metrics, error) {
	buckets := prometheus.ExponentialBuckets(0.0001, 2.5, 14) // 0.1 ms to 15 s
	m := &metrics{
		published: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keb_bus_published_total", Help: "Messages that a stream has taken.",
		}, []string{"stream"}),
		publishFailed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keb_bus_publish_failures_total", Help: "Messages that could not be published.",
		}, []string{"stream"}),
		publishTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "keb_bus_publish_seconds", Help: "Time from a publish call to the last acknowledgement of its batch.",
			Buckets: buckets,
		}),
		consumed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keb_bus_consumed_total", Help: "Messages handed to handlers.",
		}, []string{"stream", "consumer"}),
		redelivered: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keb_bus_redelivered_total", Help: "Messages handed to handlers that were delivered before.",
		}, []string{"stream", "consumer"}),
		dead: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keb_bus_dead_letters_total", Help: "Messages moved to dead letters.",
		}, []string{"stream"}),
		ackTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "keb_bus_ack_seconds", Help: "Time from the arrival of a message to its acknowledgement.",
			Buckets: buckets,
		}, []string{"stream", "consumer"}),
		recovered: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keb_bus_recoveries_total", Help: "Times a consumer was set up again after it or its stream was lost.",
		}, []string{"stream", "consumer"}),
		connections: newConnections(),
	}
	if r == nil {
		return m, nil
	}
	err := errors.Join(
		scrape.Register(r, &m.published), scrape.Register(r, &m.publishFailed), scrape.Register(r, &m.publishTime), scrape.Register(r, &m.consumed),
		scrape.Register(r, &m.redelivered), scrape.Register(r, &m.dead), scrape.Register(r, &m.ackTime), scrape.Register(r, &m.recovered), scrape.Register(r, &m.connections),
	)
	// Initialized counters give correct rates from the first message.
	for _, spec := range event.Streams() {
		for _, c := range []*prometheus.CounterVec{m.published, m.publishFailed, m.dead} {
			c.WithLabelValues(string(spec.Name))
		}
	}
	return m, err
}

// streamOf returns the stream of a subject, by the second word of the subject.
func streamOf(subject string) string {
	rest, ok := strings.CutPrefix(subject, "keb.")
	if !ok {
		return "other"
	}
	kind, _, _ := strings.Cut(rest, ".")
	switch kind {
	case "request":
		return string(event.StreamRequests)
	case "command":
		return string(event.StreamCommands)
	case "result":
		return string(event.StreamResults)
	case "fact":
		return string(event.StreamFacts)
	case "dead":
		return string(event.StreamDead)
	}
	return "other"
}
