package scrape_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/scrape"
)

// source is a database of numbers by name.
type source struct {
	mu     sync.Mutex
	values map[string]float64
	err    error
	takes  time.Duration
	reads  int
}

func (s *source) set(values map[string]float64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values, s.err = values, err
}

func (s *source) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

// collector returns a collector with the source as keb_things{name}.
func (s *source) collector(cfg scrape.Config, remembered bool) *scrape.Collector {
	things := scrape.NewGauge("keb_things", "Things.", "name")
	if remembered {
		things.Remembered()
	}
	cfg.Source = "things"
	return scrape.New(cfg, func(ctx context.Context, sample *scrape.Sample) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reads++
		if s.takes > 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(s.takes):
			}
		}
		for name, value := range s.values {
			sample.Add(things, value, name)
		}
		return s.err
	}, things)
}

// shows returns the series of a metric as "name value".
func shows(t *testing.T, c prometheus.Collector, metric string) []string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	require.NoError(t, err)
	var series []string
	for _, family := range families {
		if family.GetName() != metric {
			continue
		}
		for _, m := range family.GetMetric() {
			label := m.GetLabel()[0]
			series = append(series, fmt.Sprintf("%s{%s=%q} %g", metric, label.GetName(), label.GetValue(), m.GetGauge().GetValue()))
		}
	}
	return series
}

func check(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestCollector_FreshValues_AreNotReadAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &source{values: map[string]float64{"a": 1}}
		c := s.collector(scrape.Config{Age: 2 * time.Second}, false)
		var scrapes sync.WaitGroup
		for range 20 {
			scrapes.Go(func() { testutil.CollectAndCount(c) })
		}
		scrapes.Wait()
		if got := s.count(); got != 1 {
			t.Errorf("read %d times for 20 scrapes at once, want once", got)
		}
		s.set(map[string]float64{"a": 2}, nil)
		check(t, "at once", shows(t, c, "keb_things"), `keb_things{name="a"} 1`)
		<-time.After(2 * time.Second)
		check(t, "after two seconds", shows(t, c, "keb_things"), `keb_things{name="a"} 2`)
	})
}

func TestCollector_SlowSource_IsReadLessOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &source{values: map[string]float64{"a": 1}, takes: time.Second}
		c := s.collector(scrape.Config{Age: 2 * time.Second}, false)
		for range 60 {
			testutil.CollectAndCount(c)
			<-time.After(time.Second)
		}
		if got := s.count(); got < 2 || got > 4 {
			t.Errorf("read %d times in a minute for a second each, want about 3 times", got)
		}
	})
}

func TestCollector_SourceHangs_ShowsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &source{values: map[string]float64{"a": 1}}
		c := s.collector(scrape.Config{Age: time.Second, Limit: 2 * time.Second}, true)
		check(t, "before", shows(t, c, "keb_things"), `keb_things{name="a"} 1`)
		check(t, "before", shows(t, c, "keb_gauges_fresh"), `keb_gauges_fresh{source="things"} 1`)
		<-time.After(time.Second)
		s.takes = time.Hour
		start := time.Now()
		check(t, "while it hangs", shows(t, c, "keb_gauges_fresh"), `keb_gauges_fresh{source="things"} 0`)
		check(t, "while it hangs", shows(t, c, "keb_gauges_read_seconds"), `keb_gauges_read_seconds{source="things"} 2`)
		check(t, "while it hangs", shows(t, c, "keb_things"))
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("three scrapes took %s, want the limit once", took)
		}
		s.takes = 0
		<-time.After(time.Minute)
		check(t, "after it", shows(t, c, "keb_things"), `keb_things{name="a"} 1`)
	})
}

func TestCollector_ReadingFails_ShowsNothing(t *testing.T) {
	t.Parallel()
	s := &source{values: map[string]float64{"a": 1}, err: errors.New("broken")}
	c := s.collector(scrape.Config{}, false)
	check(t, "half a reading", shows(t, c, "keb_things"))
	check(t, "half a reading", shows(t, c, "keb_gauges_fresh"), `keb_gauges_fresh{source="things"} 0`)
}

func TestGauge_Remembered_ShowsZero(t *testing.T) {
	t.Parallel()
	for remembered, want := range map[bool][]string{
		true: {`keb_things{name="a"} 0`, `keb_things{name="b"} 1`}, false: {`keb_things{name="b"} 1`},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &source{values: map[string]float64{"a": 3}}
			c := s.collector(scrape.Config{Age: time.Second}, remembered)
			shows(t, c, "keb_things")
			s.set(map[string]float64{"b": 1}, nil)
			<-time.After(time.Second)
			check(t, fmt.Sprintf("remembered %t", remembered), shows(t, c, "keb_things"), want...)
		})
	}
}

func TestCollector_InvalidUTF8Label_IsReplaced(t *testing.T) {
	t.Parallel()
	s := &source{values: map[string]float64{"a\xc0": 1, "a\xc1": 2}}
	check(t, "broken labels", shows(t, s.collector(scrape.Config{}, false), "keb_things"), `keb_things{name="a?"} 3`)
}

func TestBound_ManyValues_ReturnsOther(t *testing.T) {
	t.Parallel()
	b := scrape.NewBound(3, "known")
	for _, c := range []struct{ value, want string }{
		{"", ""},
		{"err_http_503", "err_http_503"},
		{"NotFound", "NotFound"},
		{"01a20086-6a14-78fb-bb5d-60d9d249cff5", scrape.Other},
		{"operation 12345 failed", scrape.Other},
		{strings.Repeat("x", 65), scrape.Other},
		{"no\nline", scrape.Other},
		{"täglich", scrape.Other},
		{"x\xff", scrape.Other},
		{"ERR_INFRA_QUOTA_EXCEEDED", "ERR_INFRA_QUOTA_EXCEEDED"},
		{"one too many", scrape.Other},
		{"known", "known"},
		{"NotFound", "NotFound"},
	} {
		if got := b.Value(c.value); got != c.want {
			t.Errorf("%q becomes %q, want %q", c.value, got, c.want)
		}
	}
}

func FuzzBound(f *testing.F) {
	f.Add("err_keb_timeout")
	f.Add("01a20086-6a14-78fb-bb5d-60d9d249cff5")
	b := scrape.NewBound(50)
	seen := map[string]bool{}
	f.Fuzz(func(t *testing.T, value string) {
		got := b.Value(value)
		if got != value && got != scrape.Other {
			t.Errorf("%q becomes %q", value, got)
		}
		if seen[got] = true; len(seen) > 52 {
			t.Errorf("%d values, want at most 50, the empty one and other", len(seen))
		}
		if _, err := prometheus.NewConstMetric(prometheus.NewDesc("x", "x", []string{"l"}, nil), prometheus.GaugeValue, 1, got); err != nil {
			t.Error(err)
		}
	})
}
