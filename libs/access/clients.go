package access

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// ClientLimits bounds what one client may ask of an API, by its address: the peer, or whom trusted proxies name. Zero is the default
// of a field.
type ClientLimits struct {
	// Rate is how many requests a client may send in a second in the long run, and Burst how many at once.
	Rate  int `env:"KEB_CLIENT_RATE" envDefault:"1000"`
	Burst int `env:"KEB_CLIENT_BURST" envDefault:"5000"`
	// Requests is how many requests of a client may be in progress.
	Requests int `env:"KEB_CLIENT_REQUESTS" envDefault:"200"`
}

const maxLimit = 1_000_000

func (c ClientLimits) withDefaults() ClientLimits {
	for value, fallback := range map[*int]int{&c.Rate: 1000, &c.Burst: 5000, &c.Requests: 200} {
		if *value == 0 {
			*value = fallback
		}
	}
	return c
}

func (c ClientLimits) validate() error {
	var problems []error
	for _, n := range []struct {
		name  string
		value int
	}{{"KEB_CLIENT_RATE", c.Rate}, {"KEB_CLIENT_BURST", c.Burst}, {"KEB_CLIENT_REQUESTS", c.Requests}} {
		if n.value < 0 || n.value > maxLimit {
			problems = append(problems, fmt.Errorf("%s: %d: must be from 1 to %d", n.name, n.value, maxLimit))
		}
	}
	return errors.Join(problems...)
}

// Clients tells the clients of an API apart by their address, and bounds each: how many requests it sends, and how many are in
// progress. It is safe for concurrent use. Each process counts for itself.
type Clients struct {
	limits  ClientLimits
	trusted []netip.Prefix
	rate    *limiter

	mu sync.Mutex
	// requests are those in progress, by address.
	requests map[string]int
}

// NewClients makes the limits of one API. now is a clock.
func NewClients(cfg Config, now func() time.Time) (*Clients, error) {
	trusted, err := cfg.proxies()
	if err == nil {
		err = cfg.Clients.validate()
	}
	if err != nil {
		return nil, fmt.Errorf("access: %w", err)
	}
	limits := cfg.Clients.withDefaults()
	return &Clients{
		limits: limits, trusted: trusted, rate: limit(now, limits.Burst, time.Second/time.Duration(limits.Rate)), requests: map[string]int{},
	}, nil
}

// Limit lets through what is within the limits, and hands everything else to refuse, with an error of status 429. Requests for which
// endless reports true last as long as their client likes, and do not count as in progress; nil is none.
func (c *Clients) Limit(next http.Handler, endless func(r *http.Request) bool, refuse func(w http.ResponseWriter, r *http.Request, e *Error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		addr := address(r, c.trusted)
		if wait := c.rate.fail(addr); wait > 0 {
			refuse(w, r, &Error{
				Status: http.StatusTooManyRequests, RetryAfter: wait,
				Message: fmt.Sprintf("too many requests from your address: %d in a second are allowed", c.limits.Rate),
			})
			return
		}
		if endless == nil || !endless(r) {
			if !c.begin(addr) {
				refuse(w, r, &Error{
					Status: http.StatusTooManyRequests, RetryAfter: time.Second,
					Message: fmt.Sprintf("too many requests from your address: %d at the same time are allowed", c.limits.Requests),
				})
				return
			}
			defer c.end(addr)
		}
		next.ServeHTTP(w, r)
	})
}

func (c *Clients) begin(addr string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.requests[addr] >= c.limits.Requests {
		return false
	}
	c.requests[addr]++
	return true
}

func (c *Clients) end(addr string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.requests[addr]--; c.requests[addr] == 0 {
		delete(c.requests, addr)
	}
}

// knownFor is how long an address that has shown good credentials is not locked out for wrong ones.
const knownFor = time.Hour

// Attempts counts wrong passwords by address, so that nobody can try many. An address with too many is not listened to any more, good
// password or not: it would find the good one among them. But one that has shown good ones lately is, or somebody behind the same proxy
// could lock a platform out.
type Attempts struct {
	limit   *limiter
	trusted []netip.Prefix
}

// NewAttempts counts for one API. now is a clock.
func NewAttempts(cfg Config, now func() time.Time) (*Attempts, error) {
	trusted, err := cfg.proxies()
	if err != nil {
		return nil, fmt.Errorf("access: %w", err)
	}
	return &Attempts{limit: newLimiter(now), trusted: trusted}, nil
}

// Blocked returns how long whoever sent a request has to wait before his credentials are looked at; zero if they may be.
func (a *Attempts) Blocked(r *http.Request) time.Duration {
	a.limit.mu.Lock()
	defer a.limit.mu.Unlock()
	e, ok := a.limit.byAddr[address(r, a.trusted)]
	if !ok {
		return 0
	}
	c, now := e.Value.(*count), a.limit.now()
	if !c.good.IsZero() && now.Sub(c.good) < knownFor {
		return 0
	}
	return a.limit.wait(c, now)
}

// Failed counts wrong credentials. It returns how long to wait before the next; zero while there may be more.
func (a *Attempts) Failed(r *http.Request) time.Duration { return a.limit.fail(address(r, a.trusted)) }

// Succeeded notes that the credentials were good.
func (a *Attempts) Succeeded(r *http.Request) {
	a.limit.mu.Lock()
	defer a.limit.mu.Unlock()
	a.limit.of(address(r, a.trusted)).good = a.limit.now()
}
