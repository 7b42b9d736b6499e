package harness

import (
	"cmp"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/testkit"
)

// startLimit is generous: on a busy machine a start makes a database cluster, or recovers one.
const startLimit = 90 * time.Second

// accounts are enough for the tests that order a few runtimes.
const accounts = 40

// Options change how keb up is started.
type Options struct {
	// Overlays are folders with process overlays.
	Overlays []string
	// Env are further variables, "NAME=value".
	Env []string
	// Accounts is how many accounts of each hyperscaler there are; a global account needs one of its own. 0 means 40, not the 500 of keb up.
	Accounts int
	// FromNothing lets keb up make its database cluster itself.
	FromNothing bool
	// Race runs a keb with the race detector if the test has it: for tests with many concurrent requests and operations.
	Race bool
}

// System is a keb up with a data folder and addresses of its own, which it keeps from start to start.
type System struct {
	// OSBAddr, OperatorAddr, LandscapeAddr and NATSAddr are "host:port".
	OSBAddr, OperatorAddr, LandscapeAddr, NATSAddr string
	DataDir                                        string
	// HTTP is the client for all of them.
	HTTP *http.Client

	t    testing.TB
	opts Options
	// password is that of the user keb; empty is "keb".
	password  string
	process   *Process
	processes []*Process
}

// New is a system that is not started yet. It is stopped when the test ends.
func New(t testing.TB, opts Options) *System {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 32}
	s := &System{
		OSBAddr: testkit.Addr(t), OperatorAddr: testkit.Addr(t), LandscapeAddr: testkit.Addr(t), NATSAddr: testkit.Addr(t),
		DataDir: filepath.Join(testkit.MemoryDir(t), "keb"), HTTP: &http.Client{Transport: transport, Timeout: 30 * time.Second},
		t: t, opts: opts,
	}
	// Called after the cleanup of the last process, which was started later.
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of keb.log:\n%s", s.logTail())
		}
		transport.CloseIdleConnections()
		s.stopLeftover()
	})
	return s
}

// Start is a system that runs.
func Start(t testing.TB, opts Options) *System {
	t.Helper()
	s := New(t, opts)
	s.Start()
	return s
}

// Env is what a command of the user needs in its environment to find this system.
func (s *System) Env() []string {
	return append([]string{
		"KEB_OSB_ADDR=" + s.OSBAddr, "KEB_OPERATOR_ADDR=" + s.OperatorAddr, "KEB_LANDSCAPE_ADDR=" + s.LandscapeAddr,
		"KEB_NATS_URL=" + s.NATS(), "KEB_DATA_DIR=" + s.DataDir, "DEMO=0",
		// A job that takes up what a test has left behind would change what it counts.
		"KEB_RETRIGGER_EVERY=0", "KEB_EXPIRY_EVERY=0", "KEB_CLEANUP_EVERY=0",
		// Each account is made, and looked at with every list of them.
		"KEB_LANDSCAPE_BINDINGS=" + strconv.Itoa(cmp.Or(s.opts.Accounts, accounts)),
	}, s.opts.Env...)
}

// Launch starts the process and does not wait until it is up.
func (s *System) Launch() *Process {
	s.t.Helper()
	args := []string{"up", "--fast"}
	for _, dir := range s.opts.Overlays {
		args = append(args, "--overlays", dir)
	}
	path := Keb(s.t)
	if s.opts.Race && testkit.RaceDetector() {
		path = program(s.t, buildRacingKeb)
	}
	s.process = Spawn(s.t, path, s.Env(), args...)
	s.processes = append(s.processes, s.process)
	s.t.Cleanup(s.checkContracts)
	return s.process
}

// Start starts the process and waits until it is up.
func (s *System) Start() {
	s.t.Helper()
	s.prepare()
	s.Launch()
	testkit.Eventually(s.t, startLimit, "keb up", func() bool {
		if s.process.Ended() {
			s.t.Fatalf("keb up ended:\n%s", s.process.Output())
		}
		return strings.Contains(s.process.Output(), "KEB is up.") && s.ready()
	})
}

func (s *System) ready() bool {
	response, err := s.HTTP.Get("http://" + s.OperatorAddr + "/readyz")
	return err == nil && response.Body.Close() == nil && response.StatusCode == http.StatusOK
}

// Kill sends SIGKILL to the process, which leaves its Postgres behind.
func (s *System) Kill() {
	s.t.Helper()
	s.checkContracts()
	s.process.Kill()
	s.HTTP.CloseIdleConnections()
}

// Stop stops the process in order.
func (s *System) Stop() {
	s.t.Helper()
	s.checkContracts()
	s.process.Stop()
	s.HTTP.CloseIdleConnections()
}

// Process is the process of the last start.
func (s *System) Process() *Process { return s.process }

// Processes are those of all starts.
func (s *System) Processes() []*Process { return s.processes }

// Run runs a command of keb against the system.
func (s *System) Run(args ...string) *Process {
	s.t.Helper()
	return Spawn(s.t, Keb(s.t), s.Env(), args...)
}

// NATS is the URL of the bus.
func (s *System) NATS() string { return "nats://" + s.NATSAddr }

func (s *System) logTail() string {
	content, err := os.ReadFile(filepath.Join(s.DataDir, "keb.log"))
	if err != nil {
		return err.Error()
	}
	return tail(string(content))
}

// stopLeftover stops the Postgres of a killed process if no other process was started after it.
func (s *System) stopLeftover() {
	file := filepath.Join(s.DataDir, "postgres", "postmaster.pid")
	content, err := os.ReadFile(file)
	if err != nil {
		return // it stopped in order, or never ran
	}
	first, _, _ := strings.Cut(string(content), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil || pid <= 1 {
		return
	}
	if syscall.Kill(pid, syscall.SIGQUIT) != nil {
		return // it is gone already
	}
	testkit.Eventually(s.t, stopLimit, "the end of the Postgres that was left behind", func() bool {
		_, err := os.Stat(file)
		return errors.Is(err, fs.ErrNotExist)
	})
}
