package postgres

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lib/pq"

	"github.com/kyma-project/keb/libs/tlsfiles"
)

const (
	// headStart is the time in which the last known primary must open a session before the other servers are tried, too.
	headStart = 500 * time.Millisecond
	// settle is the time that the other servers have to answer after the first primary, to find a primary with a higher timeline.
	settle = time.Second
	// suspicion is the time after which a session without an answer causes a search for a promoted standby; searchEvery and searchLimit
	// are the interval and the time limit of these searches.
	suspicion   = time.Second
	searchEvery = time.Second
	searchLimit = 4 * time.Second
)

// timelineQuery returns the timeline of a primary, which each promotion increases.
const timelineQuery = `SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int8`

// connector creates sessions that a server without an answer cannot block beyond the context of a call. The driver reads an answer without
// a deadline. When the context ends, it only sends a cancel request to the server, on a separate connection. That request ends the
// session first, so a statement that ends normally has no additional cost.
//
// With a standby, it opens sessions on the primary with the highest timeline, and closes those of a lower timeline when it finds a higher one.
// The driver could try several hosts, too, but one after the other: a silent first one would take the whole context of a call.
type connector struct {
	servers []*pq.Connector
	names   []string
	files   tlsfiles.Client
	standby bool

	cancel context.CancelFunc
	done   sync.WaitGroup

	mu       sync.Mutex
	lines    map[*line]struct{}
	timeline int64 // the highest one seen
	primary  int   // the index of the server with that timeline; -1 if none is known, or a session was lost since
}

func newConnector(ctx context.Context, cfg pq.Config, files tlsfiles.Client, standby bool) *connector {
	c := &connector{files: files, standby: standby, lines: map[*line]struct{}{}, primary: -1}
	for _, host := range append([]pq.ConfigMultihost{{Host: cfg.Host, Hostaddr: cfg.Hostaddr, Port: cfg.Port}}, cfg.Multi...) {
		one := cfg.Clone()
		one.Host, one.Hostaddr, one.Port, one.Multi = host.Host, host.Hostaddr, host.Port, nil
		server, _ := pq.NewConnectorConfig(one) // it never returns an error
		c.servers, c.names = append(c.servers, server), append(c.names, net.JoinHostPort(host.Host, strconv.Itoa(int(host.Port))))
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.cancel = cancel
	if standby {
		c.done.Go(func() { c.watch(ctx) })
	}
	return c
}

// Close ends the search for a promoted standby. The pool calls it when it is closed.
func (c *connector) Close() error {
	c.cancel()
	c.done.Wait()
	return nil
}

// Driver returns the driver of the sessions.
func (c *connector) Driver() driver.Driver { return c.servers[0].Driver() }

// Connect opens a session. Unlike the driver's Connect, it returns when ctx ends.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	s, err := c.connect(ctx)
	if err != nil {
		return nil, &sessionError{cause: err}
	}
	return s, nil
}

func (c *connector) connect(ctx context.Context) (*limitedSession, error) {
	if err := register(c.files); err != nil {
		return nil, err
	}
	if !c.standby {
		return c.open(ctx, 0)
	}
	c.mu.Lock()
	first := c.primary
	c.mu.Unlock()
	return c.race(ctx, first)
}

// attempt is the result of opening a session on one server.
type attempt struct {
	server  int
	session *limitedSession
	err     error
}

// race opens a session on the primary. It tries the server first alone for the head start, and all servers at once if first is negative.
func (c *connector) race(ctx context.Context, first int) (*limitedSession, error) {
	ctx, cancel := context.WithCancel(ctx)
	attempts, started := make(chan attempt), 0
	var tried sync.WaitGroup
	start := func(server int) {
		started++
		tried.Go(func() {
			s, err := c.open(ctx, server)
			attempts <- attempt{server, s, err}
		})
	}
	startOthers := func() {
		for i := range c.servers {
			if i != first {
				start(i)
			}
		}
	}
	limit := time.NewTimer(headStart)
	defer limit.Stop()
	alone := first >= 0
	if alone {
		start(first)
	} else {
		startOthers()
		limit.Stop()
	}
	var best *attempt
	errs := make([]error, len(c.servers))
	ended := 0
	for over := false; !over && (ended < started || alone); {
		select {
		case a := <-attempts:
			ended++
			if a.err == nil {
				if a.err = c.outdated(&a); a.err != nil {
					_ = a.session.Close()
				}
			}
			switch {
			case a.err != nil:
				errs[a.server] = a.err
				if alone {
					alone = false
					startOthers()
				}
			case best != nil && best.session.line.timeline >= a.session.line.timeline:
				_ = a.session.Close() // the server is an old primary
			default:
				if best != nil {
					_ = best.session.Close()
				}
				best = &a
				// Without a known primary, the others get the chance to prove a higher timeline.
				if over = first >= 0; !over {
					limit.Reset(settle)
				}
			}
		case <-limit.C:
			if over = best != nil; !over && alone {
				alone = false
				startOthers()
			}
		}
	}
	cancel()
	for ; ended < started; ended++ {
		if a := <-attempts; a.err == nil {
			_ = a.session.Close()
		}
	}
	tried.Wait()
	if best == nil {
		c.forgetPrimary()
		return nil, c.explainAll(errs)
	}
	c.follow(best)
	return best.session, nil
}

// explainAll returns the errors of all servers. One that is not temporary comes first, because it needs a human.
func (c *connector) explainAll(errs []error) error {
	var all []error
	for i, err := range errs {
		if err != nil {
			all = append(all, fmt.Errorf("%s: %w", c.names[i], err))
		}
	}
	slices.SortStableFunc(all, func(a, b error) int { return cmp.Compare(rank(a), rank(b)) })
	if len(all) == 1 {
		return errors.Unwrap(all[0])
	}
	return errors.Join(all...)
}

func rank(err error) int {
	if passes(err) || isTimeout(err) {
		return 1
	}
	return 0
}

// outdated returns an error if a standby was promoted to a timeline that is higher than the session's.
func (c *connector) outdated(a *attempt) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if own := a.session.line.timeline; own < c.timeline {
		return fmt.Errorf("%w: it accepts writes on timeline %d, but a standby was promoted to timeline %d; stop the old primary", errNotPrimary, own, c.timeline)
	}
	return nil
}

// forgetPrimary makes the next session try all servers. Otherwise a pool that had no session during a promotion would trust the old primary.
func (c *connector) forgetPrimary() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.primary = -1
}

// follow remembers the primary of a session, and closes the sessions of lower timelines.
func (c *connector) follow(a *attempt) {
	var old []*line
	c.mu.Lock()
	c.timeline, c.primary = max(c.timeline, a.session.line.timeline), a.server
	for l := range c.lines {
		if l.timeline < c.timeline {
			old = append(old, l)
		}
	}
	c.mu.Unlock()
	for _, l := range old {
		l.hangUp()
	}
}

// open opens a session on one server.
func (c *connector) open(ctx context.Context, server int) (*limitedSession, error) {
	l := &line{}
	l.closed = func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.lines, l)
	}
	l.lost = c.forgetPrimary
	perSession := *c.servers[server]
	perSession.Dialer(l)
	stop := context.AfterFunc(ctx, l.hangUp)
	made, err := perSession.Connect(ctx)
	var s session
	if err == nil {
		var ok bool
		if s, ok = made.(session); !ok {
			err = errors.Join(fmt.Errorf("open postgres session: the driver's connection %T lacks a method", made), made.Close())
		}
	}
	if err == nil && c.standby {
		if l.timeline, err = timelineOf(ctx, s); err != nil {
			err = errors.Join(err, made.Close())
		}
	}
	if !stop() {
		if err == nil {
			err = made.Close()
		}
		return nil, errors.Join(ctx.Err(), err)
	}
	if err != nil {
		if text := err.Error(); strings.Contains(text, "session is read-only") || strings.Contains(text, "server is in hot standby mode") {
			err = fmt.Errorf("%w: %w", errNotPrimary, err)
		}
		return nil, explain(c.files, err)
	}
	l.established.Store(true)
	c.mu.Lock()
	c.lines[l] = struct{}{}
	c.mu.Unlock()
	return &limitedSession{session: s, line: l}, nil
}

// timelineOf returns the timeline of a session's server; zero if the server does not offer it.
func timelineOf(ctx context.Context, s session) (int64, error) {
	rows, err := s.QueryContext(context.WithoutCancel(ctx), timelineQuery, nil)
	if err != nil {
		if code(err) != "" {
			return 0, nil
		}
		return 0, err
	}
	value := make([]driver.Value, 1)
	err = errors.Join(rows.Next(value), rows.Close())
	n, _ := value[0].(int64)
	return n, err
}

// watch searches for a promoted standby while a session waits for an answer.
func (c *connector) watch(ctx context.Context) {
	tick := time.NewTicker(searchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !c.isSuspicious() {
			continue
		}
		searching, cancel := context.WithTimeout(ctx, searchLimit)
		if s, err := c.search(searching); err == nil {
			_ = s.Close()
		}
		cancel()
	}
}

func (c *connector) search(ctx context.Context) (*limitedSession, error) {
	if err := register(c.files); err != nil {
		return nil, err
	}
	return c.race(ctx, -1)
}

// isSuspicious reports whether a session has waited for an answer for longer than usual.
func (c *connector) isSuspicious() bool {
	c.mu.Lock()
	lines := slices.Collect(maps.Keys(c.lines))
	c.mu.Unlock()
	return slices.ContainsFunc(lines, func(l *line) bool { return l.waits() > suspicion })
}
