package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jmoiron/sqlx"

	setup "github.com/kyma-project/keb/cmd/keb/internal/installation"
	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/postgres/pglocal"
)

// onPostgres runs f with a new Postgres server that has fsync on, in a temporary folder that f may use too.
func onPostgres(ctx context.Context, log *slog.Logger, f func(dir string, pg *pglocal.Server, log *slog.Logger) error) (err error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	dir, err := os.MkdirTemp("", "keb-bench-")
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	pg, err := pglocal.Start(ctx, pglocal.Config{DataDir: filepath.Join(dir, "postgres"), Durable: true, Log: log})
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	defer func() { err = errors.Join(err, pg.Stop(context.WithoutCancel(ctx))) }()
	return f(dir, pg, log)
}

// machine gives each run an empty database and an empty NATS server.
type machine struct {
	dir string
	pg  *pglocal.Server
	// keeping is the storage mode of NATS.
	keeping Keeping
	// workers are the additional users of NATS; nil means that NATS has no users at all.
	workers []string
	log     *slog.Logger
	n       int
}

// parts holds the servers of a run.
type parts struct {
	natsURL, databaseURL string
	// password is the password of all users of NATS; empty means that NATS has no users.
	password string
	// replicas is the number of replicas of each stream.
	replicas int
	db       *sqlx.DB
	close    func() error
}

func (m *machine) parts(ctx context.Context, name string) (*parts, error) {
	m.n++
	database := fmt.Sprintf("bench_%s_%d_%d", name, time.Now().UnixNano(), m.n)
	if err := m.pg.CreateDatabase(ctx, database, ""); err != nil {
		return nil, err
	}
	return m.partsOn(ctx, name, database)
}

// partsOn returns an empty NATS server and an existing database.
func (m *machine) partsOn(ctx context.Context, name, database string) (*parts, error) {
	m.n++
	var accounts []byte
	var password string
	if len(m.workers) > 0 {
		password = rand.Text()
		var err error
		accounts, err = setup.RenderNATS(setup.NATSConfig{
			Workers: m.workers, UsersOnly: true, Password: func(string) (string, error) { return strconv.Quote(password), nil },
		})
		if err != nil {
			return nil, fmt.Errorf("users of nats: %w", err)
		}
	}
	servers, err := startNATS(filepath.Join(m.dir, fmt.Sprintf("nats-%s-%d", name, m.n)), m.keeping, accounts)
	if err != nil {
		return nil, err
	}
	stop := func() { stopNATS(servers) }
	url := m.pg.URL(database)
	db, err := postgres.Open(ctx, postgres.Config{URL: url, ApplicationName: "keb-bench", MaxOpen: 2})
	if err != nil {
		stop()
		return nil, err
	}
	return &parts{natsURL: servers[0].ClientURL(), password: password, databaseURL: url, replicas: len(servers), db: db, close: func() error {
		err := db.Close()
		stop()
		return err
	}}, nil
}

// bus connects to NATS, as the user if NATS has users.
func (p *parts) bus(ctx context.Context, user string, log *slog.Logger) (*bus.Bus, error) {
	cfg := bus.Config{URL: p.natsURL, Name: user, Replicas: p.replicas}
	if p.password != "" {
		cfg.User, cfg.Password = user, p.password
		cfg.Guest = user != event.UserOrchestrator
	}
	return bus.Connect(ctx, cfg, bus.Deps{Log: log})
}

// usage holds the counters of resources used so far.
type usage struct {
	at              time.Time
	cpu             time.Duration
	commits, fsyncs int64
	walBytes        float64
}

// usage reads the counters of this process and of Postgres.
func (m *machine) usage(ctx context.Context, db *sqlx.DB) (usage, error) {
	u := usage{at: time.Now()}
	err := db.QueryRowContext(ctx, `
SELECT (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()), wal_sync, wal_bytes FROM pg_stat_wal`).
		Scan(&u.commits, &u.fsyncs, &u.walBytes)
	if err != nil {
		return u, fmt.Errorf("read the counters of postgres: %w", err)
	}
	var self syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err != nil {
		return u, fmt.Errorf("read the time used: %w", err)
	}
	u.cpu = time.Duration(self.Utime.Nano() + self.Stime.Nano())
	server, err := processTreeCPU(m.pg.PID())
	if err != nil {
		return u, err
	}
	u.cpu += server
	return u, nil
}

// clockTick is the unit of CPU times in /proc on Linux.
const clockTick = 10 * time.Millisecond

// processTreeCPU returns the CPU time of a process and its children, including children that have ended.
func processTreeCPU(pid int) (time.Duration, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, fmt.Errorf("read the time used by postgres: %w", err)
	}
	var ticks int64
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		data, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue // the process has just ended
		}
		// The name in parentheses may hold anything; the fields follow it.
		_, rest, ok := strings.Cut(string(data), ") ")
		fields := strings.Fields(rest)
		if !ok || len(fields) < 15 {
			continue
		}
		number := func(i int) int64 { v, _ := strconv.ParseInt(fields[i], 10, 64); return v }
		switch {
		case n == pid:
			ticks += number(11) + number(12) + number(13) + number(14)
		case number(1) == int64(pid):
			ticks += number(11) + number(12)
		}
	}
	return time.Duration(ticks) * clockTick, nil
}

// peakMemory returns the peak memory of this process since resetPeak, in MB.
func peakMemory() float64 {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
			return kb / 1024
		}
	}
	return 0
}

func resetPeak() error { return os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

// load is a closed loop that keeps a fixed number of operations in flight.
type load struct {
	inFlight        int
	warmUp, measure time.Duration
}

// loop keeps operations in flight. start starts operations; finished is called when one has ended.
type loop struct {
	mu        sync.Mutex
	started   map[string]time.Time
	measuring bool
	durations []time.Duration
	free      chan struct{}
	stopped   bool
	idle      chan struct{}
	// first is closed when the first operation has ended, which means that all parts are ready.
	first chan struct{}
	once  sync.Once
}

func newLoop(inFlight int) *loop {
	l := &loop{started: map[string]time.Time{}, free: make(chan struct{}, inFlight), idle: make(chan struct{}), first: make(chan struct{})}
	for range inFlight {
		l.free <- struct{}{}
	}
	return l
}

func (l *loop) begin(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.started[id] = time.Now()
}

func (l *loop) finished(id string) {
	l.mu.Lock()
	at, ok := l.started[id]
	delete(l.started, id)
	if ok && l.measuring {
		l.durations = append(l.durations, time.Since(at))
	}
	if l.stopped && len(l.started) == 0 {
		select {
		case <-l.idle:
		default:
			close(l.idle)
		}
	}
	l.mu.Unlock()
	if ok {
		l.once.Do(func() { close(l.first) })
		l.free <- struct{}{}
	}
}

// run drives the load and returns the measured values. begin starts a number of operations.
func (l *loop) run(ctx context.Context, m *machine, db *sqlx.DB, load load, begin func(n int) error) (result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	driven := make(chan error, 1)
	go func() { driven <- l.drive(ctx, load.inFlight, begin) }()
	pause := func(d time.Duration) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case err := <-driven:
			return fmt.Errorf("drive the load: %w", err)
		}
	}
	select {
	case <-l.first:
	case err := <-driven:
		return result{}, fmt.Errorf("drive the load: %w", err)
	case <-time.After(firstEnds):
		return result{}, fmt.Errorf("no operation has ended within %s", firstEnds)
	}
	if err := pause(load.warmUp); err != nil {
		return result{}, err
	}
	if err := resetPeak(); err != nil {
		return result{}, fmt.Errorf("reset the peak of memory: %w", err)
	}
	before, err := m.usage(ctx, db)
	if err != nil {
		return result{}, err
	}
	l.set(true)
	if err := pause(load.measure); err != nil {
		return result{}, err
	}
	l.set(false)
	after, err := m.usage(ctx, db)
	if err != nil {
		return result{}, err
	}
	r := l.result(load.inFlight, before, after)
	cancel()
	if err := <-driven; err != nil && !errors.Is(err, context.Canceled) {
		return result{}, fmt.Errorf("drive the load: %w", err)
	}
	return r, l.drain()
}

func (l *loop) drive(ctx context.Context, inFlight int, begin func(n int) error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.free:
		}
		n := 1
		for n < inFlight && len(l.free) > 0 {
			<-l.free
			n++
		}
		if err := begin(n); err != nil {
			return err
		}
	}
}

func (l *loop) set(measuring bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.measuring = measuring
}

const (
	// firstEnds bounds the time until the first operation has ended.
	firstEnds    = time.Minute
	drainTimeout = time.Minute
)

// drain waits until no operation is in flight.
func (l *loop) drain() error {
	l.mu.Lock()
	l.stopped = true
	left := len(l.started)
	l.mu.Unlock()
	if left == 0 {
		return nil
	}
	timer := time.NewTimer(drainTimeout)
	defer timer.Stop()
	select {
	case <-l.idle:
		return nil
	case <-timer.C:
		l.mu.Lock()
		defer l.mu.Unlock()
		return fmt.Errorf("%d operations did not end within %s", len(l.started), drainTimeout)
	}
}

func (l *loop) result(inFlight int, before, after usage) result {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.durations)
	n := len(l.durations)
	seconds := after.at.Sub(before.at).Seconds()
	steps := float64(n * stepsPerOperation)
	percentile := func(p float64) float64 {
		if n == 0 {
			return 0
		}
		return round(float64(l.durations[min(n-1, int(p*float64(n)))].Microseconds())/1000, 2)
	}
	perStep := func(v float64) float64 { return v / max(steps, 1) }
	return result{
		InFlight: inFlight, Operations: n,
		StepsPerSecond: round(steps/seconds, 0), OperationsPerSecond: round(float64(n)/seconds, 1),
		P50MS: percentile(0.50), P95MS: percentile(0.95), P99MS: percentile(0.99),
		CPUMSPerStep:    round(perStep((after.cpu-before.cpu).Seconds()*1000), 4),
		CommitsPerStep:  round(perStep(float64(after.commits-before.commits)), 4),
		FsyncsPerStep:   round(perStep(float64(after.fsyncs-before.fsyncs)), 4),
		WALBytesPerStep: round(perStep(after.walBytes-before.walBytes), 0),
		PeakMemoryMB:    round(peakMemory(), 0),
	}
}

func round(v float64, digits int) float64 {
	scale := math.Pow10(digits)
	return math.Round(v*scale) / scale
}
