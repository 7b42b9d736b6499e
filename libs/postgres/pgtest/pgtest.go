// Package pgtest gives each test a PostgreSQL database of its own. Only tests may import it.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/jmoiron/sqlx"

	"github.com/kyma-project/keb/libs/postgres"
)

// DatabaseURLEnv is the name of the environment variable with the address of a PostgreSQL server for tests. Its user must be allowed to
// create databases. Each test creates and removes its own.
const DatabaseURLEnv = "KEB_TEST_DATABASE_URL"

const (
	startLimit = 5 * time.Minute // a fallback may download an image or binaries
	stopLimit  = 30 * time.Second
	callLimit  = time.Minute
)

// pgServer is the PostgreSQL server that the tests of one binary share.
type pgServer struct {
	url  string // of the maintenance database
	stop func(ctx context.Context) error

	mu        sync.Mutex
	admin     *sqlx.DB
	templates map[unsafe.Pointer]*template
	made      []string
	next      atomic.Int64
	prefix    string
}

// template is a migrated database that is copied for tests.
type template struct {
	once    sync.Once
	migrate func(context.Context, *sqlx.DB) error // keeps the address in the key valid
	name    string
	err     error
}

// shared is the only global state of the package: a test binary has one server.
var shared struct {
	once   sync.Once
	server *pgServer
	err    error
}

// Run runs the tests of a package and then stops the shared server. Use it in TestMain: os.Exit(pgtest.Run(m)). Check for leaked
// goroutines after it.
func Run(m *testing.M) int {
	code := m.Run()
	if err := Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest:", err)
		if code == 0 {
			code = 1
		}
	}
	return code
}

// Stop stops the shared PostgreSQL server of this binary, if it runs. Run calls it; only a TestMain that cannot use Run needs it.
func Stop() error {
	// This prevents a later start.
	shared.once.Do(func() { shared.err = errors.New("the tests of this binary are over") })
	if shared.server == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	return shared.server.close(ctx)
}

// Database creates a database for this test and returns its address. The database is a copy of one that was migrated once with migrate,
// unless migrate is nil. It is removed when the test ends. The server is the first available of: KEB_TEST_DATABASE_URL, the machine's
// binaries, a container, downloaded binaries. Without any of them the test fails with advice.
func Database(t testing.TB, migrate func(context.Context, *sqlx.DB) error) string {
	t.Helper()
	shared.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), startLimit)
		defer cancel()
		shared.server, shared.err = startServer(ctx)
	})
	if shared.err != nil {
		t.Fatalf("no PostgreSQL for the test: %v", shared.err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	name, err := shared.server.database(ctx, migrate)
	if err != nil {
		t.Fatalf("make a database for the test: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), callLimit)
		defer cancel()
		if err := postgres.DropDatabase(ctx, shared.server.admin, name); err != nil {
			t.Errorf("remove the test's database: %v", err)
		}
	})
	return withDatabase(shared.server.url, name)
}

func newServer(ctx context.Context, address string, stop func(context.Context) error) (*pgServer, error) {
	admin, err := postgres.Open(ctx, postgres.Config{URL: address, MaxOpen: 4, ApplicationName: "keb-testkit"})
	if err != nil {
		return nil, errors.Join(err, stop(ctx))
	}
	return &pgServer{
		url: address, stop: stop, admin: admin, templates: map[unsafe.Pointer]*template{},
		// Several test binaries can share a server, also from several machines.
		prefix: "keb_test_" + strconv.FormatInt(time.Now().UnixNano(), 36) + "_" + strconv.Itoa(os.Getpid()) + "_",
	}, nil
}

func (s *pgServer) name() string { return s.prefix + strconv.FormatInt(s.next.Add(1), 10) }

func (s *pgServer) database(ctx context.Context, migrate func(context.Context, *sqlx.DB) error) (string, error) {
	from := ""
	if migrate != nil {
		// The key is the address of the function value, not of its code: closures over different variables have different templates.
		key := *(*unsafe.Pointer)(unsafe.Pointer(&migrate))
		s.mu.Lock()
		t := s.templates[key]
		if t == nil {
			t = &template{migrate: migrate, name: s.name()}
			s.templates[key] = t
		}
		s.mu.Unlock()
		t.once.Do(func() { t.err = s.makeTemplate(ctx, t) })
		if t.err != nil {
			return "", t.err
		}
		from = t.name
	}
	name := s.name()
	return name, postgres.CreateDatabase(ctx, s.admin, name, from)
}

func (s *pgServer) makeTemplate(ctx context.Context, t *template) error {
	if err := postgres.CreateDatabase(ctx, s.admin, t.name, ""); err != nil {
		return err
	}
	s.mu.Lock()
	s.made = append(s.made, t.name)
	s.mu.Unlock()
	db, err := postgres.Open(ctx, postgres.Config{URL: withDatabase(s.url, t.name), MaxOpen: 4})
	if err != nil {
		return err
	}
	return errors.Join(t.migrate(ctx, db), db.Close())
}

func (s *pgServer) close(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, name := range s.made {
		errs = append(errs, postgres.DropDatabase(ctx, s.admin, name))
	}
	s.made = nil
	errs = append(errs, s.admin.Close(), s.stop(ctx))
	return errors.Join(errs...)
}

func withDatabase(address, name string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address // it was opened before, so it is valid
	}
	u.Path = "/" + name
	return u.String()
}

// Tests is a test binary whose Run is the package's Run, for goleak.VerifyTestMain(pgtest.Tests{M: m}): the check for leaks then runs
// after the shared server has stopped.
type Tests struct{ M *testing.M }

// Run runs the tests and stops the shared server.
func (t Tests) Run() int { return Run(t.M) }
