package access

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// ClientLimits limits the requests of a client to an API. Clients are distinguished by address: the peer, or the address that trusted
// proxies forward. Zero means the default of a field.
type ClientLimits struct {
	// Rate is the maximum number of requests per second in the long run, and Burst the maximum at one time.
	Rate  int `env:"KEB_CLIENT_RATE" envDefault:"1000"`
	Burst int `env:"KEB_CLIENT_BURST" envDefault:"5000"`
	// Requests is the maximum number of concurrent requests of a client.
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

// Clients limits the number of requests, and of concurrent requests, of each client of an API. It distinguishes clients by address. It
// is safe for concurrent use. Each process counts separately.
type Clients struct {
	limits  ClientLimits
	trusted []netip.Prefix
	rate    *limiter

	mu sync.Mutex
	// requests is the number of concurrent requests by address.
	requests map[string]int
}

// NewClients creates the limits of one API. now is a clock.
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

// Limit passes requests within the limits to next, and all others to refuse, with an error of status 429. Requests for which endless
// returns true do not count as concurrent, because their duration is unlimited; nil means none.
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

// knownFor is how long an address with a successful attempt is not blocked because of failed ones.
const knownFor = time.Hour

// Attempts counts failed attempts by address, to prevent password guessing. It blocks an address with too many, even for correct
// credentials, which could be guessed. It does not block an address that recently succeeded: otherwise a client behind the same
// proxy could block a platform.
type Attempts struct {
	limit   *limiter
	trusted []netip.Prefix
}

// NewAttempts creates the counter of one API. now is a clock.
func NewAttempts(cfg Config, now func() time.Time) (*Attempts, error) {
	trusted, err := cfg.proxies()
	if err != nil {
		return nil, fmt.Errorf("access: %w", err)
	}
	return &Attempts{limit: newLimiter(now), trusted: trusted}, nil
}

// Blocked returns how long the client must wait before its credentials are checked; zero if it is not blocked.
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

// Failed counts wrong credentials. It returns how long to wait before the next attempt; zero if more are allowed now.
func (a *Attempts) Failed(r *http.Request) time.Duration { return a.limit.fail(address(r, a.trusted)) }

// Succeeded records correct credentials.
func (a *Attempts) Succeeded(r *http.Request) {
	a.limit.mu.Lock()
	defer a.limit.mu.Unlock()
	a.limit.of(address(r, a.trusted)).good = a.limit.now()
}
