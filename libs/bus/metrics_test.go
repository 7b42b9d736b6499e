package bus_test

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

func TestMetrics_Traffic_IsCounted(t *testing.T) {
	t.Parallel()
	s := testkit.NATS(t)
	reg := prometheus.NewRegistry()
	b := connect(t, s, bus.Config{}, bus.Deps{Registerer: reg})
	connect(t, s, bus.Config{}, bus.Deps{Registerer: reg}) // a second bus of the same process shares the metrics
	require.NoError(t, b.EnsureStreams(t.Context()))
	done := make(chan string, 10)
	stop := start(t, b, bus.ConsumeConfig{Consumer: spec()}, func(ctx context.Context, batch []*bus.Delivery) {
		for _, d := range batch {
			switch {
			case d.Event.ID() == "dead":
				_ = d.Dead(ctx, "test")
			case d.NumDelivered() == 1:
				_ = d.Nak(0)
				continue
			default:
				_ = d.Ack()
			}
			done <- d.Event.ID()
		}
	})
	publish(t, b, "good", "dead")
	homeless := command(t, "homeless")
	homeless.Subject = "keb.nowhere.at.all"
	if err := b.Publish(t.Context(), homeless); err == nil {
		t.Fatal("a message without a stream is published")
	}
	within(t, done, "first")
	within(t, done, "second")
	stop()

	got := map[string]float64{}
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			stream := ""
			for _, l := range m.GetLabel() {
				if l.GetName() == "stream" {
					stream = l.GetValue()
				}
			}
			got[f.GetName()+"/"+stream] = m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount()) + m.GetGauge().GetValue()
		}
	}
	commands := "/" + string(event.StreamCommands)
	for name, want := range map[string]float64{
		"keb_bus_published_total" + commands:    2,
		"keb_bus_publish_failures_total/other":  1,
		"keb_bus_publish_seconds/":              2,
		"keb_bus_consumed_total" + commands:     3,
		"keb_bus_redelivered_total" + commands:  1,
		"keb_bus_dead_letters_total" + commands: 1,
		"keb_bus_ack_seconds" + commands:        1,
		"keb_bus_recoveries_total" + commands:   0,
		"keb_bus_connected/":                    1,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}

func TestMetrics_ConnectionLost_ReportsDisconnected(t *testing.T) {
	t.Parallel()
	s := testkit.NATS(t)
	reg := prometheus.NewRegistry()
	connected := func() float64 {
		families, err := reg.Gather()
		require.NoError(t, err)
		for _, f := range families {
			if f.GetName() == "keb_bus_connected" {
				return f.GetMetric()[0].GetGauge().GetValue()
			}
		}
		t.Fatal("keb_bus_connected is not there")
		return 0
	}
	first := connect(t, s, bus.Config{}, bus.Deps{Registerer: reg})
	second := connect(t, s, bus.Config{}, bus.Deps{Registerer: reg})
	if got := connected(); got != 1 {
		t.Errorf("connected is %g, want 1", got)
	}
	second.Close() // on purpose
	if got := connected(); got != 1 {
		t.Errorf("connected is %g after one was closed on purpose, want 1", got)
	}
	first.NATS().Close() // lost
	if got := connected(); got != 0 {
		t.Errorf("connected is %g without the connection, want 0", got)
	}
}
