package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kyma-project/keb/libs/postgres/pglocal"
	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/tracing"
)

// Run runs the system until ctx ends, and tells out what a person wants to know. Its errors are one line and say what to do.
func Run(ctx context.Context, cfg Config, out, screen io.Writer) (err error) {
	if err := cfg.Validate(); err != nil {
		return err
	}
	unlock, err := service.LockDir(cfg.DataDir)
	if err != nil {
		return fmt.Errorf("%w (--data-dir, KEB_DATA_DIR)", err)
	}
	defer unlock()
	file, err := openLog(cfg.DataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	// From here on everything that was started is stopped again, in reverse order, whatever goes wrong.
	s := &system{cfg: cfg, out: out, log: newLog(file, screen, cfg.Verbose), registry: service.Registry()}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.start(ctx); err != nil {
		return err
	}
	if err := s.announce(); err != nil {
		return err
	}
	return s.group.Run(ctx)
}

// system is what has been started so far. What is in closers is closed in reverse order.
type system struct {
	cfg      Config
	out      io.Writer
	log      *slog.Logger
	registry *prometheus.Registry
	group    *service.Group
	closers  []func() error

	osb, operator, landscape net.Listener
	nats                     *server.Server
	postgres                 *pglocal.Server
	databaseURL              string
	keys                     string
	keyring                  *seal.Keyring
	traces                   *tracing.Exporter
}

func (s *system) later(f func() error) { s.closers = append(s.closers, f) }

func (s *system) close() error {
	var problems []error
	for _, closer := range slices.Backward(s.closers) {
		problems = append(problems, closer())
	}
	return errors.Join(problems...)
}

// start brings up one part after the other: addresses first, for they cost nothing and are what most often goes wrong.
func (s *system) start(ctx context.Context) (err error) {
	s.group = service.NewGroup(s.log)
	if s.traces, err = tracing.New(ctx, tracing.Config{Log: s.log.With("component", "tracing"), Together: true}); err != nil {
		return err
	}
	s.later(func() error { s.traces.Close(); return nil })
	for _, l := range []struct {
		addr, flag string
		into       *net.Listener
	}{
		{s.cfg.OSBAddr, "--osb-addr, KEB_OSB_ADDR", &s.osb},
		{s.cfg.OperatorAddr, "--operator-addr, KEB_OPERATOR_ADDR", &s.operator},
		{s.cfg.LandscapeAddr, "--landscape-addr, KEB_LANDSCAPE_ADDR", &s.landscape},
	} {
		if err := s.listen(l.addr, l.flag, l.into); err != nil {
			return err
		}
	}
	if s.keys, err = sealKeys(s.cfg.DataDir); err != nil {
		return err
	}
	if s.keyring, err = seal.ParseKeyring(s.keys); err != nil {
		return err
	}
	if s.databaseURL, s.postgres, err = startDatabase(ctx, s.cfg, s.log, s.tell); err != nil {
		return err
	}
	if s.postgres != nil {
		s.later(func() error { return stopDatabase(s.postgres) })
		s.group.Add("postgres", s.watchDatabase)
	}
	if s.nats, err = startNATS(s.cfg.DataDir, s.log); err != nil {
		return err
	}
	s.later(func() error { stopNATS(s.nats); return nil })
	return s.compose(ctx)
}

func (s *system) listen(addr, flag string, into *net.Listener) error {
	ln, err := service.Listen(addr)
	if err != nil {
		return fmt.Errorf("%w (%s)", err, flag)
	}
	*into = ln
	// A server closes its listener; this is for a start that fails before that.
	s.later(func() error { _ = ln.Close(); return nil })
	return nil
}

// watchDatabase ends the system when Postgres ends by itself.
func (s *system) watchDatabase(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.postgres.Done():
		return fmt.Errorf("the server has ended by itself; its log is in %s, and nothing is lost: start again", s.cfg.DataDir)
	}
}

func (s *system) tell(format string, args ...any) {
	_, _ = fmt.Fprintf(s.out, format+"\n", args...) // nowhere else to say it
}

// announce says where everything is.
func (s *system) announce() error {
	credentials := fmt.Sprintf("user %s", s.cfg.User)
	if s.cfg.User == "keb" && s.cfg.Password == "keb" {
		credentials += ", password keb"
	}
	where := "own server in the data folder"
	if s.postgres == nil {
		where = "the one of KEB_DATABASE_URL"
	}
	_, err := fmt.Fprintf(s.out, `KEB is up. Data and log are in %s; Ctrl-C stops it.
  OSB API       http://%s  (%s)
  console       http://%s/
  operator API  http://%s/operations
  landscape     http://%s/admin/systems
  NATS          %s
  Postgres      %s
`, s.cfg.DataDir, s.osb.Addr(), credentials, s.operator.Addr(), s.operator.Addr(), s.landscape.Addr(), s.nats.ClientURL(), where)
	return err
}
