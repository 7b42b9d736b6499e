package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"

	"github.com/kyma-project/keb/libs/postgres/pglocal"
	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/tracing"
	"github.com/kyma-project/keb/libs/tracing/otlp"
)

// Run runs the system until ctx ends, and prints its addresses and progress to out. Its errors are one line and say what to do.
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
	var logs service.LogConfig
	if err := service.LoadEnvFrom(&logs, cfg.Environment, nil); err != nil {
		return err
	}
	log, err := newLog(file, screen, cfg.Verbose, logs)
	if err != nil {
		return err
	}
	traces, err := tracing.New(ctx, tracing.Config{Exporter: otlp.New, Log: log.With("component", "tracing"), Together: true})
	if err != nil {
		return err
	}
	// Every started part is stopped in reverse order, also after an error.
	s := &system{Process: service.NewProcess(log, traces), cfg: cfg, out: out}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.start(ctx); err != nil {
		return err
	}
	if err := s.announce(); err != nil {
		return err
	}
	return s.Run(ctx)
}

// system holds the parts that were started.
type system struct {
	*service.Process
	settings

	cfg Config
	out io.Writer

	osb, operator, landscape net.Listener
	nats                     *natsServer
	postgres                 *pglocal.Server
	databaseURL              string
	at                       places
	keyring                  *seal.Keyring
}

// start starts the parts in sequence. It checks addresses first, because they are cheap to check and the most frequent error.
func (s *system) start(ctx context.Context) (err error) {
	addrs, err := s.cfg.addresses()
	if err != nil {
		return err
	}
	for _, l := range []struct {
		flag string
		addr *string
		into *net.Listener
	}{
		{osbFlag, &addrs.OSB, &s.osb}, {operatorFlag, &addrs.Operator, &s.operator}, {landscapeFlag, &addrs.Landscape, &s.landscape},
	} {
		if err := s.listen(*l.addr, l.flag, l.into); err != nil {
			return err
		}
		*l.addr = (*l.into).Addr().String()
	}
	if err := checkFree(addrs.NATS); err != nil {
		return err
	}
	keys, err := sealKeys(s.cfg.DataDir)
	if err != nil {
		return err
	}
	if s.keyring, err = seal.ParseKeyring(keys); err != nil {
		return err
	}
	at := addrs.places(keys)
	at.registry = s.Registry
	if s.settings, err = s.cfg.settings(at); err != nil {
		return err
	}
	s.at = at
	if s.databaseURL, s.postgres, err = s.startDatabase(ctx); err != nil {
		return err
	}
	if s.postgres != nil {
		s.Defer(func() error { return stopDatabase(s.postgres) })
		s.Add("postgres", s.watchDatabase)
	}
	if s.nats, err = newNATS(s.cfg.DataDir, addrs.NATS, s.Log); err != nil {
		return err
	}
	s.Defer(func() error { s.nats.stop(); return nil })
	s.Add("nats", s.nats.watch)
	return s.compose(ctx)
}

func (s *system) listen(addr, flag string, into *net.Listener) error {
	ln, err := service.Listen(addr)
	if err != nil {
		return fmt.Errorf("%w: %s", err, flag)
	}
	*into = ln
	// Servers close their listeners; this covers a start that fails before a server runs.
	s.Defer(func() error { _ = ln.Close(); return nil })
	return nil
}

// watchDatabase ends the system if Postgres terminates unexpectedly.
func (s *system) watchDatabase(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.postgres.Done():
		return fmt.Errorf("the server terminated unexpectedly; its log is in %s. Nothing is lost: start keb up again", s.cfg.DataDir)
	}
}

func (s *system) tell(format string, args ...any) {
	_, _ = fmt.Fprintf(s.out, format+"\n", args...) // nowhere else to say it
}

// announce prints the addresses of all parts.
func (s *system) announce() error {
	credentials := fmt.Sprintf("user %s", s.Broker.User)
	if s.Broker.User == credential && s.Broker.Password == credential {
		credentials += ", password keb"
	}
	where := "own server in the data folder"
	if s.postgres == nil {
		where = "KEB_DATABASE_URL"
	}
	waits := "Steps poll external systems at the intervals of production; --fast shortens them."
	if s.cfg.Fast {
		waits = "--fast: the systems are simulated without delays, and steps poll them every 100 ms, unless a variable sets another interval."
	}
	keys, err := filepath.Abs(filepath.Join(s.cfg.DataDir, keysFile))
	if err != nil {
		return fmt.Errorf("find the data folder: %w", err)
	}
	_, err = fmt.Fprintf(s.out, `KEB is up. Data and log are in %s; Ctrl-C stops it.
  OSB API       %s  (%s)
  console       %s/
  operator API  %s/operations
  landscape     %s/admin/systems
  NATS          %s
  Postgres      %s
  stage keys    KEB_STAGE_KEYS_FILE=%s
%s
`, s.cfg.DataDir, s.at.osb, credentials, s.at.operator, s.at.operator, s.at.landscape, s.nats.ClientURL(), where, keys, waits)
	return err
}
