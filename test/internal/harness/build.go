package harness

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/postgres/pgtest"
	"github.com/kyma-project/keb/libs/testkit"
)

// Programs that tests run.
const (
	keb        = "github.com/kyma-project/keb/cmd/keb"
	helloWorld = "github.com/kyma-project/keb/examples/hello-world-worker"
	btpManager = "github.com/kyma-project/keb/services/btp-manager/cmd"
)

// The programs of this test binary, each built once, when a test first needs it.
var (
	programs        = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "keb-e2e-") })
	buildKeb        = build(keb, "keb", false)
	buildRacingKeb  = build(keb, "keb-race", true)
	buildHelloWorld = build(helloWorld, "hello-world-worker", testkit.RaceDetector())
	buildBTPManager = build(btpManager, "btp-manager", testkit.RaceDetector())
)

// Tests is a test binary for goleak.VerifyTestMain: its Run removes the programs and stops the shared Postgres afterwards.
type Tests struct{ M *testing.M }

// Run runs the tests.
func (t Tests) Run() int { return Clean(pgtest.Run(t.M)) }

// Clean removes the programs after the tests have ended with that code, and returns the code to end with.
func Clean(code int) int {
	dir, err := programs()
	if err := errors.Join(err, os.RemoveAll(dir)); err != nil {
		fmt.Fprintln(os.Stderr, "harness:", err)
		return max(code, 1)
	}
	return code
}

func build(pkg, name string, race bool) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		dir, err := programs()
		if err != nil {
			return "", err
		}
		path := filepath.Join(dir, name)
		return path, compile("", path, pkg, race)
	})
}

// compile builds a command in a folder; "" is that of the test. flags are further ones of the linker.
func compile(dir, path, pkg string, race bool, flags ...string) error {
	// Without the profile, and without cgo where no race detector needs it, what the tests have compiled is used again.
	cmd := exec.Command("go", "build", "-pgo=off", "-ldflags="+strings.Join(append(flags, "-w"), " "), "-race="+strconv.FormatBool(race), "-o", path, pkg)
	cmd.Dir = dir
	if !race {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, out.Bytes())
	}
	return nil
}

// others are programs that only some tests need, by package.
var others sync.Map

// Build builds a program of the repository, once for a test binary, and returns its path.
func Build(t testing.TB, folder, name string) string {
	t.Helper()
	return Program(t, "github.com/kyma-project/keb/"+folder, name)
}

// Program builds the program of a package, once for a test binary, and returns its path.
func Program(t testing.TB, pkg, name string) string {
	t.Helper()
	found, _ := others.LoadOrStore(pkg, build(pkg, name, testkit.RaceDetector()))
	once, _ := found.(func() (string, error))
	return program(t, once)
}

// Keb is the path of the built keb, without the race detector: with it, a start takes four times as much processor time.
func Keb(t testing.TB) string { return program(t, buildKeb) }

// HelloWorldWorker is the path of the built example of a team's worker.
func HelloWorldWorker(t testing.TB) string { return program(t, buildHelloWorld) }

// BTPManager is the path of the built BTP manager.
func BTPManager(t testing.TB) string { return program(t, buildBTPManager) }

func program(t testing.TB, build func() (string, error)) string {
	t.Helper()
	path, err := build()
	require.NoError(t, err)
	return path
}
